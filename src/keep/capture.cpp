// SPDX-License-Identifier: Apache-2.0
#include "keep/capture.h"

#include "base/clock.h"
#include "base/fd.h"
#include "proc/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

extern char** environ;

namespace sublet::keep {

namespace {

constexpr std::size_t most_output = 4U << 20;

std::vector<std::string> environment_with(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!extra.contains(std::string(text.substr(0, text.find('='))))) all.emplace_back(text);
  }
  for (const auto& [name, value] : extra) all.push_back(name + "=" + value);
  return all;
}

// Reads until the end or the deadline; false at the deadline, or once the other end of `peer` is closed.
bool read_until(int fd, std::int64_t deadline_ns, int peer, std::string& out) {
  char buffer[16384];
  while (true) {
    const std::int64_t left_ms = (deadline_ns - monotonic_ns()) / 1'000'000;
    if (left_ms <= 0) return false;
    pollfd waited[] = {{fd, POLLIN, 0}, {peer, 0, 0}};
    if (::poll(waited, 2, static_cast<int>(left_ms)) <= 0) continue;
    if ((waited[1].revents & (POLLHUP | POLLERR)) != 0) return false;
    if (waited[0].revents == 0) continue;
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    if (out.size() < most_output) out.append(buffer, static_cast<std::size_t>(got));
  }
}

// The child's end, if it comes before the deadline: a driver call that hangs in the kernel does not even die of
// SIGKILL.
bool reap_until(pid_t pid, std::int64_t deadline_ns, int& status) {
  while (true) {
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == pid) return true;
    if (got < 0 && errno != EINTR) return false;
    if (monotonic_ns() >= deadline_ns) return false;
    ::poll(nullptr, 0, 5);
  }
}

}  // namespace

Result<Captured> capture(const std::vector<std::string>& argv, const std::map<std::string, std::string>& extra,
                         Duration timeout, Output what, int peer) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("pipe", errno);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  proc::Launch launch{.program = argv.at(0), .arguments = {argv.begin() + 1, argv.end()}};
  launch.environment = environment_with(extra);
  launch.descriptors = {{0, proc::Launch::nothing}, {1, to.get()}};
  launch.descriptors.push_back({2, what == Output::out ? proc::Launch::nothing : to.get()});
  const auto pid = launch.start();
  to.reset();
  if (!pid) return pid.error();
  const std::int64_t deadline = monotonic_ns() + timeout.count();
  Captured result;
  int status = 0;
  if (!read_until(from.get(), deadline, peer, result.out) || !reap_until(*pid, deadline, status)) {
    result.timed_out = true;
    ::kill(*pid, SIGKILL);  // our own child, not yet reaped: its pid is its own
    if (!reap_until(*pid, monotonic_ns() + 1'000'000'000, status)) return result;
  }
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

std::string our_program(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  for (const auto& place : {self.parent_path() / name, self.parent_path() / "../libexec/sublet" / name}) {
    if (::access(place.c_str(), X_OK) == 0) return place.string();
  }
  return {};
}

}  // namespace sublet::keep
