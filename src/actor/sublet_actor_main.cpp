// SPDX-License-Identifier: Apache-2.0
// sublet-actor: the only process that signals other users' programs and puts them into control groups. It also starts
// the helpers that park them with the programs' own rights.
#include "actor/become.h"
#include "actor/keeper_service.h"
#include "actor/serve.h"
#include "base/descriptors.h"
#include "base/text.h"

#include <fmt/format.h>

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>

namespace {

using namespace sublet;

constexpr const char* usage =
    "sublet-actor signals the programs of leases for subletd, and puts them into control groups. It starts the "
    "helpers\n"
    "that park them (sublet-gpu) with the rights of each process's user, and the keepers of supervised programs\n"
    "(sublet-keep) as the programs' users.\n"
    "  sublet-actor serve --fd N [--name NAME] [--system] [OPTIONS]  serve the daemon on the connected socket N\n"
    "  sublet-actor listen [--user NAME] [--name NAME] [OPTIONS]  serve connections to the socket that the service\n"
    "      manager passes\n"
    "  sublet-actor keep --logs DIR [--log-group NAME] [--keep PATH]  become the keeper that the order on the socket "
    "at\n"
    "      descriptor 0 names; sublet-keeper.socket starts this outside of the actor's confinement\n"
    "  sublet-actor --version | --help\n"
    "OPTIONS are:\n"
    "  --gpu PATH        the program sublet-gpu; default: beside this program\n"
    "  --driver PATH     the CUDA driver's library; default: where the vendor installs it\n"
    "  --env NAME=VALUE  a variable in the environment of sublet-gpu, which is empty otherwise. SIMGPU_DIR also names\n"
    "                    the simulated cards, whose files are evidence that a process uses a GPU\n"
    "  --records DIR     a directory for records of helpers and swap limits, for the next start; a reboot clears it\n"
    "  --keep PATH       the program sublet-keep; default: beside this program\n"
    "  --logs DIR        a directory for the logs of supervised programs, with one directory for each uid\n"
    "  --keeper-service PATH  with listen: the socket of sublet-keeper.socket, which starts the keepers instead\n"
    "--name NAME is the name of the control groups (default 'sublet'). With --system, and with listen, members of the\n"
    "group sublet-admin may have every user's programs signalled. --user NAME may connect besides root (default\n"
    "'sublet').\n";

constexpr std::string_view cards_variable = "SIMGPU_DIR=";
constexpr int first_passed = 3;  // the first descriptor that a service manager passes

struct Options {
  std::string verb;
  std::string name = "sublet";
  std::string user = "sublet";
  std::string log_group;
  int fd = -1;
  bool system = false;
  actor::HelperOptions parking;
  actor::KeeperOptions keepers;
  std::string cards;  // directory of the simulated cards
  std::string problem;
};

constexpr std::array flags_with_value{"--fd",      "--name", "--user", "--gpu",       "--driver",        "--env",
                                      "--records", "--keep", "--logs", "--log-group", "--keeper-service"};

// Looks beside this program, and where packages install programs that users do not call.
std::string find_program(const std::string& name) {
  std::error_code failure;
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe", failure).parent_path();
  for (const char* place : {".", "../libexec/sublet", "../lib/sublet"}) {
    const std::filesystem::path path = bin / place / name;
    if (::access(path.c_str(), X_OK) == 0) return std::filesystem::weakly_canonical(path, failure).string();
  }
  return {};
}

bool plain(const std::string& name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), allowed);
}

// Returns the place for the path that this option sets; null: the option sets none.
std::string* path_named(Options& options, const std::string& word) {
  if (word == "--gpu") return &options.parking.program;
  if (word == "--driver") return &options.parking.driver;
  if (word == "--records") return &options.parking.records;
  if (word == "--keep") return &options.keepers.program;
  if (word == "--logs") return &options.keepers.logs;
  if (word == "--keeper-service") return &options.keepers.service;
  return nullptr;
}

void take_value(Options& options, const std::string& word, const std::string& value) {
  if (word == "--env") {
    if (value.find('=') == std::string::npos || value[0] == '=') options.problem = "--env needs NAME=VALUE";
    options.parking.environment.push_back(value);
    if (value.starts_with(cards_variable)) options.cards = value.substr(cards_variable.size());
  } else if (std::string* path = path_named(options, word)) {
    *path = value;
    if (value.empty() || value[0] != '/') options.problem = word + " needs an absolute path";
  } else if (word == "--fd") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.fd);
    if (error == std::errc{} && end == value.data() + value.size() && options.fd >= 0) return;
    options.problem = "--fd needs the number of an open socket";
  } else {
    (word == "--name" ? options.name : word == "--user" ? options.user : options.log_group) = value;
    if (!plain(value)) options.problem = word + " needs letters, digits, '-' and '_'";
  }
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size() && options.problem.empty(); ++i) {
    const std::string& word = arguments[i];
    if (std::find(flags_with_value.begin(), flags_with_value.end(), word) != flags_with_value.end()) {
      if (i + 1 == arguments.size()) options.problem = fmt::format("{} needs a value", word);
      else take_value(options, word, arguments[++i]);
    } else if (word == "--system") {
      options.system = true;
    } else if (options.verb.empty()) {
      options.verb = word;
    } else {
      options.problem = fmt::format("unexpected '{}'", printable(word));
    }
  }
  if (options.problem.empty() && (options.verb == "serve") != (options.fd >= 0)) {
    options.problem = options.verb == "serve" ? "serve needs --fd" : "--fd belongs to serve";
  }
  if (options.parking.program.empty()) options.parking.program = find_program("sublet-gpu");
  if (options.keepers.program.empty()) options.keepers.program = find_program("sublet-keep");
  return options;
}

// Ignores signals that a terminal sends to its group: this process ends at the end of its socket.
void reset_process() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGALRM, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(signal, SIG_IGN);
  ::umask(022);    // the daemon, another user, lists the processes of a group
  rlimit files{};  // each keeper needs a descriptor
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

bool is_socket(int fd, bool listening) {
  int type = 0, accepts = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return false;
  size = sizeof accepts;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && (accepts != 0) == listening;
}

int fail(const std::string& problem) {
  fmt::print(stderr, "sublet-actor: {}\n", problem);
  return 1;
}

int serve(const Options& options) {
  if (!is_socket(options.fd, false)) return fail(fmt::format("descriptor {} is not a connected socket", options.fd));
  shed_descriptors(options.fd);
  reset_process();
  const auto root = proc::ProcRoot::open();
  if (!root) return fail(root.error().detail);
  actor::AdminGroup admins;
  actor::Helpers helpers(*root, options.parking);
  actor::LinkSources links(*root);
  actor::ServiceOptions service{.group_name = options.name,
                                .client_pid = ::getppid(),
                                .is_admin = {},
                                .helpers = &helpers,
                                .links = &links,
                                .keepers = options.keepers,
                                .unleased = {.cards = options.cards}};
  // Our parent is the daemon, with the same rights.
  service.keepers.group = ::getegid();
  service.keepers.for_root = ::geteuid() == 0;
  if (options.system) service.is_admin = [&admins](std::uint32_t uid) { return admins.has(uid); };
  actor::Service served(*root, std::move(service));
  return actor::serve(options.fd, served, &helpers, &links);
}

int listen(const Options& options) {
  const char* passed = std::getenv("LISTEN_FDS");
  const char* to = std::getenv("LISTEN_PID");
  const bool ours =
      passed != nullptr && to != nullptr && std::string(passed) == "1" && std::string(to) == std::to_string(::getpid());
  if (!ours || !is_socket(first_passed, true)) {
    return fail("no listening socket was passed: start sublet-actor by sublet-actor.socket");
  }
  const passwd* user = ::getpwnam(options.user.c_str());
  if (user == nullptr) return fail(fmt::format("user '{}' does not exist", options.user));
  const std::uint32_t uid = user->pw_uid;
  shed_descriptors(first_passed);
  reset_process();
  const auto root = proc::ProcRoot::open();
  if (!root) return fail(root.error().detail);
  // Only the opening of the process connector may need this capability.
  actor::LinkSources links(*root);
  (void)links.listen();
  if (!actor::give_up_capability(CAP_NET_ADMIN)) {
    return fail(fmt::format("cannot give up CAP_NET_ADMIN: {}", std::strerror(errno)));
  }
  actor::AdminGroup admins;
  actor::Helpers helpers(*root, options.parking);
  return actor::listen_for(first_passed, uid, *root,
                           {.group_name = options.name,
                            .client_pid = 0,
                            .is_admin = [&admins](std::uint32_t who) { return admins.has(who); },
                            .helpers = &helpers,
                            .links = &links,
                            .keepers = options.keepers,
                            .unleased = {.cards = options.cards}});
}

int keep(Options options) {
  if (options.keepers.logs.empty()) return fail("keep needs --logs");
  options.keepers.service.clear();
  if (!options.log_group.empty()) {
    const group* entry = ::getgrnam(options.log_group.c_str());
    if (entry == nullptr) return fail(fmt::format("group '{}' does not exist", options.log_group));
    options.keepers.group = entry->gr_gid;
  }
  shed_descriptors(0);
  return fail(actor::become_ordered_keeper(0, options.keepers));
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse(arguments);
  if (options.problem.empty()) {
    if (options.verb == "serve") return serve(options);
    if (options.verb == "listen") return listen(options);
    if (options.verb == "keep") return keep(options);
    if (options.verb == "--version" || options.verb == "--help" || options.verb == "-h") {
      fmt::print("{}", options.verb == "--version" ? "sublet-actor " SUBLET_VERSION "\n" : usage);
      return 0;
    }
  }
  fmt::print(stderr, "sublet-actor: {}\n{}",
             options.problem.empty() ? fmt::format("unknown verb '{}'", printable(options.verb)) : options.problem,
             usage);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory; all other errors are values
    std::fprintf(stderr, "sublet-actor: %s\n", error.what());
    return 1;
  }
}
