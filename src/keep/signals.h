// SPDX-License-Identifier: Apache-2.0
// The signals of this process, read as data from a descriptor.
#pragma once

#include "base/fd.h"

#include <csignal>

#include <array>
#include <functional>
#include <optional>

namespace sublet::keep {

struct Signal {
  int number = 0;
  // true: a key on the terminal sent it, so the foreground group has it already; false: kill(2)
  bool from_kernel = false;
};

// The constructor blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH and SIGCHLD,
// and next() reads them. Signals that were ignored before (by nohup, or by a shell for a background job) stay ignored.
// SIGPIPE, SIGXFSZ and SIGXCPU are ignored: a write that fails returns an error. One object per process, made before
// any thread. The destructor restores everything.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  int fd() const { return fd_.get(); }
  std::optional<Signal> next();  // never waits

  // The reactions of a program without a child program.
  struct Manners {
    std::function<void(const Signal&)> leave;  // SIGINT, SIGTERM, SIGHUP, SIGQUIT
    std::function<void()> hide = {};           // called before the process stops
    std::function<void()> draw = {};           // called after it continues, and when the window's size changes
  };
  // Handles all pending signals.
  void take(const Manners& manners);

  // Call in a child between fork and exec. Restores the mask and the actions from before this object.
  void restore() const;

  // Stops this process as the signal's default action does, so that the shell sees the stop. Returns when the process
  // is continued. In an orphaned process group it does not stop, because nobody could continue it.
  void stop_self(int signal);

  // Ends this process by the signal, without a core file, so that the shell sees an interrupted job.
  [[noreturn]] void die_of(int signal);

 private:
  Fd fd_;
  sigset_t taken_{};
  sigset_t mask_before_{};
  std::array<struct sigaction, 3> ignored_before_{};
  struct sigaction child_before_ {};
};

}  // namespace sublet::keep
