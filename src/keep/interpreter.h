// SPDX-License-Identifier: Apache-2.0
// Finds out why exec would not start a file that exists: the file's interpreter is missing or not executable.
#pragma once

#include "keep/child.h"

#include <optional>
#include <string>

namespace sublet::keep {

// Returns 0 if the file can be executed, else the errno of exec. Does not look at its interpreter.
int executable(const std::string& path);

// Returns the failure of exec because of the interpreter: that of the "#!" line of a script, or the dynamic linker of a
// binary. Nothing if the interpreter works, or if the file cannot be read.
std::optional<ExecFailure> interpreter_failure(const std::string& path);

}  // namespace sublet::keep
