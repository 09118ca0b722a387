// SPDX-License-Identifier: Apache-2.0
// A program that has a pid and does not run yet: forked, and held at a pipe until it is let go or abandoned.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "keep/signals.h"
#include "keep/terminal.h"

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace sublet::keep {

struct Launch {
  std::vector<std::string> arguments;    // [0] is looked up in PATH unless it holds a slash
  std::vector<std::string> environment;  // "NAME=value"
};

// What became of exec(2).
struct ExecFailure {
  int errnum = 0;
  int status() const;  // as a shell has it: 127 not found, 126 found and not executable
  std::string detail(const std::string& program) const;
};

// Looks the program up as exec will, so that nobody waits in a queue for one that does not exist.
std::optional<ExecFailure> find_program(const std::string& program);

class Child {
 public:
  // Forks. Fork only from a process with one thread. The child has our descriptors only where they are not
  // close-on-exec, and the signals as they were before `signals`. If this process dies first, the held child ends.
  static Result<Child> fork(const Launch& launch, const Signals& signals, Grouping grouping);

  pid_t pid() const { return pid_; }

  void let_go();   // it execs
  void abandon();  // it ends without having run anything

  // Readable once exec was done or has failed; then result() says which.
  int exec_fd() const { return exec_.get(); }
  std::optional<ExecFailure> exec_result();  // closes exec_fd()

 private:
  pid_t pid_ = -1;
  Fd gate_;  // writing end: a byte lets the child go, closing it abandons it
  Fd exec_;  // reading end: errno if exec failed, end of file if not
};

}  // namespace sublet::keep
