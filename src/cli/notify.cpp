// SPDX-License-Identifier: Apache-2.0
#include "cli/notify.h"

#include "base/descriptors.h"
#include "base/fd.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "keep/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace sublet::cli {
namespace {

constexpr int longest_ms = 10'000;  // the watcher keeps stderr open, and a reader may wait for its end

std::string not_sent(const std::string& problem) { return "warning: no notice was sent: " + problem; }

// Runs in the child of the watcher.
[[noreturn]] void become_notice(const Notice& notice, std::chrono::seconds waited, const std::string& title,
                                const std::string& text) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, fd);
  ::setenv("SUBLET_LEASE", notice.lease.c_str(), 1);
  ::setenv("SUBLET_NAME", notice.consumer.c_str(), 1);
  ::setenv("SUBLET_WAITED_SECONDS", fmt::format("{}", waited.count()).c_str(), 1);
  if (notice.command == notify_send)
    ::execlp(notify_send, notify_send, "--app-name=Sublet", "--", title.c_str(), text.c_str(), nullptr);
  else ::execlp("sh", "sh", "-c", notice.command.c_str(), nullptr);
  ::_exit(errno == ENOENT ? 127 : 126);
}

// Waits for the command. Returns the reason why it failed; "" if it did not.
std::string watch_notice(pid_t pid, const std::string& command) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  pollfd entry{process.get(), POLLIN, 0};
  if (process && ::poll(&entry, 1, longest_ms) == 0)
    return fmt::format("'{}' has not ended after {} s", printable(command), longest_ms / 1000);
  int status = 0;
  if (::waitpid(pid, &status, 0) != pid || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) return {};
  if (command == notify_send && WIFEXITED(status) && WEXITSTATUS(status) == 127)
    return "'notify-send' was not found in PATH; name another command: --notify=COMMAND";
  return fmt::format("'{}' ended with {}", printable(command), keep::describe_end(status));
}

}  // namespace

void send_notice(const Notice& notice, const keep::Signals& signals, int status_fd,
                 const std::function<void(const std::string& line)>& warn) {
  const std::string title = fmt::format("{} starts", visible(notice.consumer));
  const auto waited = std::chrono::round<std::chrono::seconds>(notice.waited);
  const std::string text =
      fmt::format("{} got {} after {} in the queue.", notice.lease, format_size_down(notice.vram),
                  waited.count() == 0 ? std::string("less than a second") : format_duration(waited));
  std::fflush(nullptr);
  const pid_t between = ::fork();
  if (between < 0) return warn(not_sent(fmt::format("fork: {}", std::strerror(errno))));
  if (between > 0) {
    ::waitpid(between, nullptr, 0);
    return;
  }
  // The watcher's parent ends at once, so that the watcher is no process of the lease. It does not hold the connection
  // either.
  signals.restore();
  shed_descriptors(status_fd);
  // A reader of our output must not wait for the notice. A failure is reported on stderr, or on the status descriptor.
  if (const Fd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC)); nothing) {
    ::dup2(nothing.get(), 0);
    if (status_fd != 1) ::dup2(nothing.get(), 1);
  }
  ::setsid();
  if (::fork() != 0) ::_exit(0);
  const pid_t command = ::fork();
  if (command == 0) become_notice(notice, waited, title, text);
  const std::string problem =
      command < 0 ? fmt::format("fork: {}", std::strerror(errno)) : watch_notice(command, notice.command);
  if (!problem.empty()) warn(not_sent(problem));
  ::_exit(0);
}

}  // namespace sublet::cli
