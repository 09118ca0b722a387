// SPDX-License-Identifier: Apache-2.0
// `shim add|ls|rm|doctor`: programs that take a lease whenever they are called. No daemon is needed; one that answers
// is asked whether a size can ever be had.
#include "base/fd.h"
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/lease_flags.h"
#include "cli/shims.h"
#include "cli/wait_line.h"
#include "keep/preload.h"
#include "shim/real_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>

namespace sublet::cli {
namespace {

struct ShimFlags {
  std::string name;
  std::optional<Bytes> vram;
  std::string consumer, real;
  std::string if_absent = "run";
  bool system = false;
  LeaseFlags lease;  // interposer and share
};

// A failed change of a file: not allowed, or failed otherwise.
Error cannot_change(const std::string& what, int number) {
  Error error = from_errno(fmt::format("cannot {}", printable(what)), number);
  if (number == EACCES || number == EPERM || number == EROFS) error.code = Code::Denied;
  error.hint = "check the owner of the directory, and that its file system is writable";
  return error;
}

Status check_shim_name(const std::string& name) {
  const auto hint = "for example: sublet shim add ffmpeg --vram 2GiB";
  if (name.find('/') != std::string::npos)
    return bad_request(fmt::format("'{}' is a path, not the name of a program", printable(name)),
                       "name a program at another place with --real PATH");
  if (!is_label(name) || name.front() == '.' || name.front() == '-')
    return bad_request(fmt::format("'{}' cannot name a shim", printable(name)), hint);
  if (name.starts_with("sublet"))
    return bad_request(fmt::format("'{}' is a program of Sublet and gets no shim", printable(name)), hint);
  return {};
}

Result<std::string> chosen_directory(const ShimFlags& flags) {
  if (flags.system) {
    if (::geteuid() == 0) return shim::system_directory();
    return denied("only root may change the shims of the system", "leave --system out, or run it with sudo");
  }
  std::string directory = shim::user_directory();
  if (directory.empty()) return bad_request("HOME names no directory for shims", "set HOME to an absolute path");
  return directory;
}

Result<shim::Settings> settings_of(const ShimFlags& flags) {
  shim::Settings settings;
  settings.vram = *flags.vram;
  settings.consumer = flags.consumer.empty() ? flags.name : flags.consumer;
  const auto policy = shim::parse_if_absent(flags.if_absent);
  if (!policy) return policy.error();
  settings.if_absent = *policy;
  settings.interposer = flags.lease.interposer;
  settings.share = flags.lease.share.value_or(0);
  if (!is_label(settings.consumer))
    return bad_request(fmt::format("'{}' cannot name a consumer", printable(settings.consumer)),
                       "a name has 1 to 64 printable characters, and no '/'");
  if (flags.real.empty()) return settings;
  std::error_code failure;
  settings.real = std::filesystem::absolute(flags.real, failure).lexically_normal().string();
  // The file of settings has one line for each setting.
  if (failure || !is_printable(settings.real))
    return bad_request(fmt::format("'{}' cannot name the real program", printable(flags.real)));
  return settings;
}

// The directory is made readable for all, whatever the umask: others may call the shims of the system.
Status make_shim_directory(const std::string& directory) {
  const mode_t before = ::umask(022);
  std::error_code failure;
  std::filesystem::create_directories(directory, failure);
  ::umask(before);
  if (failure) return cannot_change("create the directory " + directory, failure.value());
  return {};
}

Status write_settings(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  ::unlink(fresh.c_str());
  const Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file || ::fchmod(file.get(), 0644) != 0 || !write_all(file.get(), text) ||
      ::rename(fresh.c_str(), path.c_str()) != 0) {
    const int number = errno;
    ::unlink(fresh.c_str());
    return cannot_change("write " + path, number);
  }
  return {};
}

Status write_link(const std::string& path, const std::string& program) {
  const std::string fresh = shim::directory_of(path) + "/." + shim::name_of(path) + ".new";
  ::unlink(fresh.c_str());
  if (::symlink(program.c_str(), fresh.c_str()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0)
    return cannot_change("write " + path, errno);
  return {};
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

Error no_shim(const std::string& path) {
  return bad_request(fmt::format("{} is a file, and no shim", printable(path)), "move it away first");
}

// The real program of the shim that was made.
Result<std::string> make_shim(const std::string& path, const shim::Settings& settings) {
  if (settings.interposer)
    if (const auto library = keep::find_interposer(); !library) return library.error();
  const std::string program = shim::program_path();
  if (::access(program.c_str(), X_OK) != 0)
    return not_found(fmt::format("the program {} is missing", printable(program)), "install Sublet again");
  if (file_exists(path) && !shim::is_shim(path)) return no_shim(path);
  auto real = shim::find_real_program(path, settings, shim::path_variable());
  if (!real) return real;
  if (const auto made = make_shim_directory(shim::directory_of(path)); !made) return made.error();
  const std::string text = shim::settings_text(settings, shim::name_of(path));
  if (const auto written = write_settings(shim::settings_path(path), text); !written) return written.error();
  // As the shim reads them: a directory that others may write is refused here, not at the first call.
  if (const auto read = shim::read_settings(path); !read) return read.error();
  if (const auto linked = write_link(path, program); !linked) return linked.error();
  return real;
}

void warn_of_path(const std::string& path, const std::string& real) {
  const std::string directory = shim::directory_of(path), variable = shim::path_variable();
  const std::string hint = path_hint(directory);
  if (!is_in_path(directory, variable))
    return print_error(fmt::format("warning: {} is not in PATH, so the shim is not called yet", directory), hint);
  const std::string first = shim::first_in_path(shim::name_of(path), variable);
  if (!first.empty() && !shim::is_shim(first))
    print_error(fmt::format("warning: {} stands before the shim in PATH, so the shim is not called",
                            first == real ? "the real program " + real : first),
                hint);
}

int add_shim_file(const Common& common, const ShimFlags& flags) {
  if (const auto checked = check_shim_name(flags.name); !checked) return fail(checked.error());
  if (const auto refused = check_share(flags.lease)) return *refused;
  const auto directory = chosen_directory(flags);
  if (!directory) return fail(directory.error());
  const auto settings = settings_of(flags);
  if (!settings) return fail(settings.error());
  if (auto client = connect(common); client)
    if (const auto fits = check_size_of_shim(*client, flags.name, *settings); !fits) return fail(fits.error());
  const std::string path = *directory + "/" + flags.name;
  const auto real = make_shim(path, *settings);
  if (!real) return fail(real.error());
  say(common, visible(fmt::format("{} takes {} for {}", path, format_size_down(settings->vram), *real)));
  warn_of_path(path, *real);
  return kOk;
}

int remove_shim(const Common& common, const ShimFlags& flags) {
  if (const auto checked = check_shim_name(flags.name); !checked) return fail(checked.error());
  const auto directory = chosen_directory(flags);
  if (!directory) return fail(directory.error());
  const std::string path = *directory + "/" + flags.name;
  if (file_exists(path) && !shim::is_shim(path)) return fail(no_shim(path));
  if (!file_exists(path) && !file_exists(shim::settings_path(path)))
    return fail(
        not_found(fmt::format("there is no shim '{}' in {}", printable(flags.name), *directory),
                  flags.system ? "see: sublet shim ls" : "see: sublet shim ls; --system names a shim of the system"));
  // The link goes first: a shim without settings would refuse to run the program.
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail(cannot_change("remove " + path, errno));
  ::unlink(shim::settings_path(path).c_str());
  say(common, visible(fmt::format("the shim {} is removed", path)));
  return kOk;
}

int list_shims(const Common& common) {
  const auto shims = known_shims();
  if (common.json) return fmt::print("{}\n", shims_json(shims).dump()), kOk;
  if (shims.empty()) return say(common, "there are no shims; make one: sublet shim add ffmpeg --vram 2GiB"), kOk;
  fmt::print("{}", render_shims(shims, common, look_for(common)));
  return kOk;
}

int doctor_of_shims(const Common& common) {
  auto client = connect(common);
  const bool answers = client && client->call({"GET", "/healthz", {}, {}, {}}, std::chrono::seconds(3));
  const Checks checks = check_shims(answers ? &*client : nullptr);
  if (common.json) fmt::print("{}\n", checks_json(checks).dump());
  else fmt::print("{}", render_checks(checks, look_for(common)));
  return failures(checks) == 0 ? kOk : kFailed;
}

void add_system_flag(Command command, ShimFlags& flags, const char* text) {
  command.flag("--system", flags.system, text);
}

void declare_shim_add(Command command, ShimFlags& flags) {
  command.option("NAME", flags.name, "Name of the program, without a directory").required().type("NAME");
  command.size("-m,--vram", flags.vram, "VRAM to lease for each call").required();
  command.option("--name", flags.consumer, "Consumer name of its leases (default: the program's name)")
      .type("CONSUMER")
      .offers(Offer::Of::consumers);
  command.option("--real", flags.real, "The real program (default: the next program of this name in PATH)")
      .type("PATH")
      .offers(Offer::Of::files);
  command
      .option("--if-absent", flags.if_absent,
              "If no daemon answers: run the program without a lease, wait for the daemon, or fail with exit 69 (run)")
      .type("HOW")
      .one_of({"run", "wait", "fail"});
  add_interposer_flags(command, flags.lease);
  add_system_flag(command, flags, "Make it for all users; needs root");
}

}  // namespace

Action add_shim(Command command, Common& common) {
  auto flags = std::make_shared<ShimFlags>();
  const Command add_command = command.verb("add", "Make a shim, or change it");
  declare_shim_add(add_command, *flags);
  const Command list_command = command.verb("ls", "List the shims of the user and of the system");
  const Command remove_command = command.verb("rm", "Remove a shim");
  remove_command.option("NAME", flags->name, "Name of the shim").required().type("NAME").offers(Offer::Of::shims);
  add_system_flag(remove_command, *flags, "Remove it for all users; needs root");
  const Command doctor_command = command.verb("doctor", "Check the shims and PATH; exit 1 if one cannot work");
  for (const Command& sub : {list_command, doctor_command}) add_json(sub, common);
  for (const Command& sub : {add_command, list_command, remove_command, doctor_command}) add_common(sub, common);
  command.footer(
      "A shim stands before the program in PATH, takes a lease and runs the program\n"
      "with its arguments, streams, signals and exit status. A user's shims are in\n"
      "~/.local/share/sublet/shims, and the system's shims in /usr/lib/sublet/shims.");
  return [&common, flags, add_command, list_command, remove_command, doctor_command] {
    if (add_command.parsed()) return add_shim_file(common, *flags);
    if (list_command.parsed()) return list_shims(common);
    if (remove_command.parsed()) return remove_shim(common, *flags);
    if (doctor_command.parsed()) return doctor_of_shims(common);
    return usage_error("shim needs a verb: add, ls, rm or doctor", "for example: sublet shim ls");
  };
}

}  // namespace sublet::cli
