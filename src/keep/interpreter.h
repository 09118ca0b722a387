// SPDX-License-Identifier: Apache-2.0
// Finds a program and its interpreter as exec does.
#pragma once

#include "keep/child.h"

#include <optional>
#include <string>

namespace sublet::keep {

// Returns the failure that exec would report, so that a lease does not wait in the queue for a program that cannot
// start. The interpreter is that of the "#!" line of a script, the program that `env` looks for in such a line, or the
// dynamic linker of a binary. A file that cannot be read is taken to have a working interpreter.
std::optional<ExecFailure> find_program(const std::string& program);

}  // namespace sublet::keep
