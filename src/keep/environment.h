// SPDX-License-Identifier: Apache-2.0
// The environment of a program under a lease.
#pragma once

#include "client/endpoint.h"
#include "client/lease.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace sublet::keep {

// Returns our environment with these additions: the lease's devices, its id and bytes, the daemon's socket, and
// `program_env` of `status`, a reply of /v1/status. The devices have the order of our CUDA_VISIBLE_DEVICES. They are
// named by UUID, or by index where our SUBLET_GPU_NAMES or the daemon says so. LD_LIBRARY_PATH is put before an
// existing value. Contains no secret.
std::vector<std::string> program_environment(const char* const* ours, const client::Endpoint& endpoint,
                                             const client::Lease& lease, const nlohmann::json& status);

// The devices in the order in which `visible` names them, a list of indices and UUIDs. Others come last.
std::vector<std::string> ordered_devices(std::vector<std::string> uuids, std::string_view visible,
                                         const nlohmann::json& status);
// The devices of a lease as a value of CUDA_VISIBLE_DEVICES. `visible`: the caller's list, "" without one.
std::string visible_devices(std::vector<std::string> uuids, std::string_view visible, bool by_index,
                            const nlohmann::json& status);

}  // namespace sublet::keep
