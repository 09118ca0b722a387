// SPDX-License-Identifier: Apache-2.0
// The controlling terminal and its foreground process group.
#pragma once

#include "base/fd.h"

#include <sys/types.h>

namespace sublet::keep {

// The process group of the program. It is decided once, before the fork.
enum class Grouping {
  own,     // a new group; on a terminal it goes to the foreground in our place, and the shell sees us as its job
  shared,  // our group: it has other members (a pipeline, a script), and a terminal has only one foreground group
};

class Terminal {
 public:
  Terminal();  // opens /dev/tty, if there is a terminal

  explicit operator bool() const { return static_cast<bool>(tty_); }
  Grouping grouping() const;

  // The foreground process group; -1 without a terminal.
  pid_t foreground() const;
  // Puts `group` into the foreground, even if we are not in that group.
  void set_foreground(pid_t group) const;

 private:
  Fd tty_;
};

}  // namespace sublet::keep
