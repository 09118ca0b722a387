// SPDX-License-Identifier: Apache-2.0
// The environment of a program under a lease.
#pragma once

#include "client/endpoint.h"
#include "client/lease.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::keep {

// Returns our environment with these additions: the lease's devices by UUID, its id and bytes, the daemon's socket, and
// `program_env` of /v1/status. LD_LIBRARY_PATH is put before an existing value. Contains no secret.
std::vector<std::string> program_environment(const char* const* ours, const client::Endpoint& endpoint,
                                             const client::Lease& lease, const nlohmann::json& program_env);

}  // namespace sublet::keep
