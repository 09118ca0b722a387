// SPDX-License-Identifier: Apache-2.0
// The controlling terminal and who is in its foreground.
#pragma once

#include "base/fd.h"

#include <sys/types.h>

namespace sublet::keep {

// In which process group the program runs, decided once, before it is forked.
enum class Grouping {
  own,     // its own. On a terminal it is moved to the foreground in our place and the shell sees one job: us
  shared,  // ours: there are others in it (a pipeline, a script), and one terminal can have one foreground group only
};

class Terminal {
 public:
  Terminal();  // opens /dev/tty; there may be none

  explicit operator bool() const { return static_cast<bool>(tty_); }
  Grouping grouping() const;

  // The foreground process group; -1 without a terminal.
  pid_t foreground() const;
  // Puts `group` into the foreground, also when we are not in it ourselves.
  void set_foreground(pid_t group) const;

 private:
  Fd tty_;
};

}  // namespace sublet::keep
