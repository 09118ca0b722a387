// SPDX-License-Identifier: Apache-2.0
#include "keep/terminal.h"

#include "proc/process_table.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

namespace sublet::keep {
namespace {

bool is_pipe(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

// Whether the shell's job consists of this process alone. Only the process table distinguishes such a job from the
// first program of a pipeline.
bool alone_in_group() {
  if (::getpgrp() != ::getpid()) return false;
  const auto root = proc::ProcRoot::open();
  if (!root) return false;
  const auto processes = root->list();
  if (!processes) return false;
  for (const auto& process : *processes) {
    if (process.pgrp == ::getpgrp() && process.ref.pid != ::getpid() && !process.dead()) return false;
  }
  return true;
}

}  // namespace

Terminal::Terminal() : tty_(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK)) {}

Grouping Terminal::grouping() const {
  if (!tty_) return Grouping::own;
  // The other programs of a pipeline may not have started yet, but the pipe exists from the beginning.
  if (is_pipe(STDIN_FILENO) || is_pipe(STDOUT_FILENO)) return Grouping::shared;
  return alone_in_group() ? Grouping::own : Grouping::shared;
}

pid_t Terminal::foreground() const { return tty_ ? ::tcgetpgrp(tty_.get()) : -1; }

void Terminal::set_foreground(pid_t group) const {
  if (!tty_) return;
  // In the background the call would stop us unless SIGTTOU is blocked.
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGTTOU);
  ::sigprocmask(SIG_BLOCK, &one, &before);
  ::tcsetpgrp(tty_.get(), group);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace sublet::keep
