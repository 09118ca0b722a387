// SPDX-License-Identifier: Apache-2.0
// The signals of this process, read as data from a descriptor instead of interrupting it.
#pragma once

#include "base/fd.h"

#include <csignal>

#include <functional>
#include <optional>

namespace sublet::keep {

struct Signal {
  int number = 0;
  bool from_kernel = false;  // by a key on the terminal, not by kill(2): the foreground group has it already
};

// From construction on, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH and SIGCHLD are
// blocked and read here; those that were ignored before (by nohup, by a shell for a job in the background) stay
// ignored. SIGPIPE is ignored. One object per process, made before any thread; what it changed is put back at the end.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  std::optional<Signal> next();  // never waits

  // What a program without one below it does about its signals.
  struct Manners {
    std::function<void(const Signal&)> leave;  // SIGINT, SIGTERM, SIGHUP, SIGQUIT
    std::function<void()> hide = {};           // before it is stopped
    std::function<void()> draw = {};           // once it goes on, and when its window is another
  };
  // All that have come.
  void take(const Manners& manners);

  // In a child between fork and exec: mask and dispositions as they were before this object.
  void restore() const;

  // Stops this process as the signal's default action does, so that the shell sees it stopped, and returns when it has
  // been continued. In an orphaned process group, where nobody could continue it, it does not stop.
  void stop_self(int signal);

  // Ends this process by the signal, without a core file, so that the shell sees that it was interrupted.
  [[noreturn]] void die_of(int signal);

 private:
  Fd fd_;
  sigset_t taken_{};
  sigset_t mask_before_{};
  struct sigaction pipe_before_ {};
  struct sigaction child_before_ {};
};

}  // namespace sublet::keep
