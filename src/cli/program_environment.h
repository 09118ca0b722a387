// SPDX-License-Identifier: Apache-2.0
// The surroundings of a supervised program: what it takes over from its caller.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

using Variables = std::map<std::string, std::string>;

// The variables of `ours` (an environ) that every program gets: PATH, HOME, USER, LOGNAME, SHELL, LANG, TZ and LC_*.
Variables inherited(const char* const* ours);

// Adds the lines NAME=VALUE of a file. Empty lines and lines that start with '#' are left out. A wrong line is an error
// with its number.
Status add_env_lines(std::string_view text, const std::string& file, Variables& into);

// The same for the file with this path.
Status add_env_file(const std::string& path, Variables& into);

// Adds the values of --env: NAME=VALUE, or NAME with the value that `ours` has.
Status add_env_flags(const std::vector<std::string>& flags, const char* const* ours, Variables& into);

// The variables of `ours` that belong to its user: those of a lease and of its devices are left out, and those that
// JSON cannot carry.
Variables all_of(const char* const* ours);

// The variables that every program gets, with those of --env-file ("": none) and --env, as a list of "NAME=value".
// `all`: of all variables of this process.
Result<nlohmann::json> environment_of(const std::vector<std::string>& flags, const std::string& env_file,
                                      bool all = false);

// The names of variables on which many programs of this shell depend and that a program would not get, as a list with
// commas. `given`: the values of --env; `status`: the daemon's answer, with the variables that it gives.
std::string left_out(const std::vector<std::string>& given, const nlohmann::json& status);

// Fails if a text is not UTF-8, which JSON cannot carry. `what`: name of the texts in the message.
Status check_utf8(std::string_view what, const std::vector<std::string>& texts);

// {"directory", "umask", "limits"} of this process, as POST /v1/programs takes them.
Result<nlohmann::json> surroundings();

}  // namespace sublet::cli
