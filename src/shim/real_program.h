// SPDX-License-Identifier: Apache-2.0
// Finds the program that a shim stands for. Reads the file system; any thread.
#pragma once

#include "shim/settings.h"

#include <string>
#include <string_view>

namespace sublet::shim {

// The first entry of `path` (a value of PATH) whose file `name` exec would take, "" if there is none. Shims count.
std::string first_in_path(const std::string& name, std::string_view path);

// The path of the real program of the shim: `settings.real`, else the first program of the shim's name in `path` that
// is no shim and does not lie in the shim's directory. NotFound if there is none, Denied if it cannot be executed or is
// a shim itself.
Result<std::string> find_real_program(const std::string& shim, const Settings& settings, std::string_view path);

// PATH of the caller, or the default of exec.
std::string path_variable();

}  // namespace sublet::shim
