// SPDX-License-Identifier: Apache-2.0
// Runs a program that may hang, and reads its output.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <map>
#include <string>
#include <vector>

namespace sublet::keep {

struct Captured {
  int exit_status = -1;    // 128+N after signal N
  bool timed_out = false;  // the program was killed after `timeout`, or hangs unkillably
  std::string out;         // at most 4 MiB
};

enum class Output { out, out_and_errors };

// Runs argv[0] (a path, or a name that PATH leads to) with `extra` added to the environment, and stdin from /dev/null.
// `what`: what is read; other output is dropped. Blocks for at most `timeout` plus one second. It is also killed
// once the other end of `peer` is closed, a pipe or socket; -1: none.
Result<Captured> capture(const std::vector<std::string>& argv, const std::map<std::string, std::string>& extra,
                         Duration timeout, Output what = Output::out, int peer = -1);

// Path of the program `name` of this installation: beside the running executable, or in its ../libexec/sublet; "" if
// neither exists.
std::string our_program(const std::string& name);

}  // namespace sublet::keep
