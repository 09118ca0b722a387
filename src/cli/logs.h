// SPDX-License-Identifier: Apache-2.0
// The output of a program that the daemon keeps, for the verbs that print it.
#pragma once

#include "cli/output.h"

#include <memory>
#include <optional>
#include <string>

namespace sublet::cli {

struct LogsFlags {
  std::string name;    // tag of the program, or id of the session
  std::string target;  // of the program or session in the API
  std::optional<Moment> since;
  std::optional<int> lines;
  bool follow = false;
  bool timestamps = false;
  bool no_marks = false;
};

// Declares all of them but name and target.
void declare_logs(Command command, const std::shared_ptr<LogsFlags>& flags);
// Prints the log. Returns the exit code.
int print_log(const Common& common, const LogsFlags& flags);

}  // namespace sublet::cli
