// SPDX-License-Identifier: Apache-2.0
// Running a program of ours that may hang and reading what it says.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <map>
#include <string>
#include <vector>

namespace sublet::cli {

struct Captured {
  int exit_status = -1;    // 128 + N when it was killed by signal N
  bool timed_out = false;  // it was killed after `timeout`, or could not even be killed and was left behind
  std::string out;         // stdout, at most 4 MiB
};

// Runs argv[0] (a path) with `extra` added to the environment, stdin from /dev/null, stderr dropped. Blocks for at most
// `timeout` and a second.
Result<Captured> capture(const std::vector<std::string>& argv, const std::map<std::string, std::string>& extra,
                         Duration timeout);

// The program `name` of this installation: beside the running executable, or in its ../libexec/sublet. "" if not there.
std::string our_program(const std::string& name);

}  // namespace sublet::cli
