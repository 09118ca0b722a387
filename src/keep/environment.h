// SPDX-License-Identifier: Apache-2.0
// The environment of a program under a lease.
#pragma once

#include "client/endpoint.h"
#include "client/lease.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::keep {

// Ours, and on top of it: the devices of the lease by uuid, the lease's id and bytes, the daemon's socket, and what the
// daemon says its programs need (`program_env` of /v1/status; LD_LIBRARY_PATH is put in front of what there is). No
// secret is in it.
std::vector<std::string> program_environment(const char* const* ours, const client::Endpoint& endpoint,
                                             const client::Lease& lease, const nlohmann::json& program_env);

}  // namespace sublet::keep
