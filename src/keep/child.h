// SPDX-License-Identifier: Apache-2.0
// A program that has a pid and does not run yet: a forked child that waits at a pipe until it is let go or abandoned.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "keep/limits.h"
#include "keep/signals.h"
#include "keep/terminal.h"

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace sublet::keep {

struct Launch {
  std::vector<std::string> arguments;    // without `program`, [0] is looked up in PATH unless it contains a slash
  std::vector<std::string> environment;  // "NAME=value"
  std::vector<Limit> limits = {};        // set in the child; empty: it inherits ours
  int output = -1;                       // becomes its 1 and 2, with /dev/null as its 0; -1: it inherits ours
  std::optional<int> umask = {};         // unset: it inherits ours
  bool supervised = false;               // the daemon starts it again, also after a reboot
  std::string program = {};              // the file, where it differs from arguments[0]; "": arguments[0]

  const std::string& file() const { return program.empty() ? arguments.front() : program; }
};

// The failure of exec(2).
struct ExecFailure {
  int errnum = 0;
  std::string why = {};   // of an existing file: what is wrong with its interpreter; "": the text of `errnum`
  std::string hint = {};  // "": none
  int status() const;     // exit status as in a shell: 127 not found, 126 not executable
  std::string detail(const std::string& program) const;
};

// Describes a status of waitpid: "exit status 7", or "signal 9 (Killed)".
std::string describe_end(int status);

class Child {
 public:
  // Forks. Call it only in a process with one thread. The child keeps only descriptors without close-on-exec, and has
  // the signals as they were before `signals`. If this process dies first, the waiting child ends.
  static Result<Child> fork(const Launch& launch, const Signals& signals, Grouping grouping);

  pid_t pid() const { return pid_; }

  void let_go();   // lets the child exec
  void abandon();  // ends the child before the exec

  // Readable when the exec succeeded or failed; then call exec_result().
  int exec_fd() const { return exec_.get(); }
  std::optional<ExecFailure> exec_result();  // closes exec_fd(); unset: the exec succeeded

 private:
  pid_t pid_ = -1;
  Fd gate_;  // writing end: a byte lets the child go, closing it abandons the child
  Fd exec_;  // reading end: errno if exec failed, end of file if it succeeded
};

}  // namespace sublet::keep
