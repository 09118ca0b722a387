// SPDX-License-Identifier: Apache-2.0
// `session open --pty`: the program of a session in the terminal of the caller.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::cli {

// Whether the program would read commands from a terminal: a shell, an interpreter or an editor without other arguments
// than options, also behind `env`.
bool needs_terminal(const std::vector<std::string>& command);

// Runs the program here, under the lease of the session, which ends with the program. `session`: a reply with the
// token. `status`: a reply of /v1/status. Returns the exit code.
int run_in_terminal(const Common& common, client::Client client, const nlohmann::json& session,
                    const nlohmann::json& status, const std::vector<std::string>& command);

}  // namespace sublet::cli
