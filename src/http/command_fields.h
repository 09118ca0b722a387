// SPDX-License-Identifier: Apache-2.0
// The fields of a command that a user hands to the daemon, with the surroundings of the command.
#pragma once

#include "http/message.h"

#include <string>
#include <vector>

namespace sublet::http {

inline constexpr std::size_t most_arguments = 65536;

// Reads a list of texts. Nothing happens if there is no such field.
Status take_texts(const json& body, const char* field, std::size_t most, std::vector<std::string>& into);
// Reads `limits`: resource limits as of getrlimit(2).
Status take_limits(const json& body, json& into);
Status check_environment(const std::vector<std::string>& environment);

}  // namespace sublet::http
