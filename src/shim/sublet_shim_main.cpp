// SPDX-License-Identifier: Apache-2.0
// sublet-shim: runs a program under a lease, for a caller that knows nothing of Sublet. A shim is a symbolic link to
// this program. It writes nothing to stdout, and hands over to `sublet`, which asks for the lease.
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "client/endpoint.h"
#include "shim/inside.h"
#include "shim/place.h"
#include "shim/real_program.h"
#include "shim/settings.h"

#include <fmt/format.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace {

using namespace sublet;

constexpr int no_daemon = 69, bad_settings = 78, not_executable = 126, not_found_status = 127;
// A real program that starts its shim again ends at this depth. A longer chain of programs that restart themselves is
// slower than that.
constexpr int deepest = 50;
constexpr std::int64_t counted_s = 60;

constexpr const char* usage =
    "sublet-shim runs a program under a lease. `sublet shim add NAME --vram SIZE` makes a link of that name to it;\n"
    "see sublet-shim(1).\n"
    "  sublet-shim --version | --help\n";

int refuse(const std::string& name, const Error& error, int status) {
  fmt::print(stderr, "sublet: shim '{}': {}\n", printable(name), visible(error.detail));
  if (!error.hint.empty()) fmt::print(stderr, "  hint: {}\n", visible(error.hint));
  return status;
}

int become(const std::string& name, const std::string& real, char** argv) {
  ::execvp(real.c_str(), argv);  // runs a script without an interpreter line by the shell, as a shell does
  const int number = errno;
  return refuse(name, from_errno(fmt::format("'{}' cannot be executed", real), number),
                number == ENOENT ? not_found_status : not_executable);
}

// False: shims and real programs start each other without end. The variable has the depth and the time of the first
// call, "3:1234", since it passes to all later programs.
bool count_depth() {
  const char* text = std::getenv(shim::depth_variable);
  const std::string_view before = text == nullptr ? "" : text;
  const std::size_t colon = std::min(before.find(':'), before.size());
  const std::int64_t now = monotonic_ns() / 1'000'000'000;
  const auto since = parse_number<std::int64_t>(before.substr(std::min(colon + 1, before.size())));
  const bool counts = since && now - *since >= 0 && now - *since < counted_s;
  const int depth = counts ? parse_number<int>(before.substr(0, colon)).value_or(0) : 0;
  ::setenv(shim::depth_variable, fmt::format("{}:{}", depth + 1, counts ? *since : now).c_str(), 1);
  return depth < deepest;
}

// Whether the daemon's socket does not exist, also a moment later: a daemon that starts makes it anew.
bool is_socket_missing() {
  const auto missing = [] {
    const auto endpoint = client::resolve_endpoint();
    return endpoint && !endpoint->tcp() && ::access(endpoint->path.c_str(), F_OK) != 0 && errno == ENOENT;
  };
  if (!missing()) return false;
  ::usleep(500);
  return missing();
}

int run_without_daemon(const std::string& name, const std::string& why, const std::string& real, char** argv) {
  const char* lease = std::getenv("SUBLET_LEASE");
  const std::string how = lease == nullptr || *lease == '\0' ? "without a lease" : fmt::format("inside {}", lease);
  fmt::print(stderr, "sublet: {}; {} runs {}\n", visible(why), printable(name), visible(how));
  return become(name, real, argv);
}

// `sublet __shim NAME BYTES CONSUMER IF_ABSENT INTERPOSER SHARE REAL -- ARGV…` (src/cli/shim_run.cpp).
int hand_over(const std::string& name, const shim::Settings& settings, const std::string& real, int argc, char** argv) {
  std::string sublet = shim::directory_of(shim::program_path()) + "/sublet";
  std::string verb = "__shim", bytes = fmt::format("{}", settings.vram.count), consumer = settings.consumer;
  std::string policy(shim::to_string(settings.if_absent)), shown = name, file = real, mark = "--";
  std::string interposer = settings.interposer ? "interposer" : "bare", share = fmt::format("{}", settings.share);
  std::vector<char*> words;
  for (std::string* word : {&sublet, &verb, &shown, &bytes, &consumer, &policy, &interposer, &share, &file, &mark})
    words.push_back(word->data());
  words.insert(words.end(), argv, argv + argc + 1);
  ::execv(sublet.c_str(), words.data());
  const Error error = from_errno(fmt::format("cannot start {}", sublet), errno);
  if (settings.if_absent != shim::IfAbsent::run) return refuse(name, error, no_daemon);
  return run_without_daemon(name, error.detail, real, argv);
}

int run(const std::string& called, int argc, char** argv) {
  const std::string name = shim::name_of(called);
  const auto settings = shim::read_settings(called);
  if (!settings) {
    Error error = settings.error();
    if (error.hint.empty()) error.hint = fmt::format("make it again: sublet shim add {} --vram SIZE", name);
    return refuse(name, error, bad_settings);
  }
  const auto real = shim::find_real_program(called, *settings, shim::path_variable());
  if (!real) return refuse(name, real.error(), real.error().code == Code::NotFound ? not_found_status : not_executable);
  if (!count_depth())
    return refuse(name,
                  denied(fmt::format("{} starts its own shim again and again", *real),
                         fmt::format("name another program: sublet shim add {} --vram SIZE --real PATH", name)),
                  not_executable);
  if (shim::is_below_keeper()) return become(name, *real, argv);
  // Saves the start of `sublet` where there is no daemon.
  if (settings->if_absent == shim::IfAbsent::run && is_socket_missing())
    return run_without_daemon(name, fmt::format("no daemon answers at {}", client::resolve_endpoint()->url()), *real,
                              argv);
  return hand_over(name, *settings, *real, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    // argv[0] may be any text; this is the path that the kernel executed.
    const char* executed = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
    auto called = shim::called_shim(executed != nullptr ? executed : "");
    // If the shim is the interpreter of a script, the kernel executed the script, and argv[0] is the path of the shim.
    if (!called && argc > 1 && std::strchr(argv[0], '/') != nullptr) called = shim::called_shim(argv[0]);
    if (called) return run(*called, argc, argv);
    const bool version = argc > 1 && std::strcmp(argv[1], "--version") == 0;
    const bool help = argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0);
    fmt::print(version || help ? stdout : stderr, "{}", version ? "sublet-shim " SUBLET_VERSION "\n" : usage);
    return version || help ? 0 : 2;
  } catch (const std::exception& error) {  // out of memory; all other errors are values
    std::fprintf(stderr, "sublet-shim: %s\n", error.what());
    return 125;
  }
}
