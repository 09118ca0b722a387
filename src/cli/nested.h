// SPDX-License-Identifier: Apache-2.0
// `run` inside `run`.
#pragma once

#include "client/client.h"
#include "client/lease.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

// The lease of this process. `status`: a reply of /v1/status, in which a daemon of this machine names it by descent.
// Another daemon does not know this process: then it is SUBLET_LEASE, if one of the lease's processes is our ancestor.
// The variable alone proves nothing, since anyone can copy it.
std::optional<client::Lease> outer_lease(client::Client& client, const nlohmann::json& status);
// Whether the environment is that of the lease.
bool has_environment_of(const client::Lease& lease);

// Whether `visible` is the CUDA_VISIBLE_DEVICES that `sublet run` set for the lease in the environment.
bool is_visible_list_of_lease(client::Client& client, std::string_view visible, const nlohmann::json& status);
// Whether a list names each of these devices once, by UUID or by index, and no other.
bool names_exactly(std::string_view visible, const std::vector<std::string>& uuids, const nlohmann::json& status);

}  // namespace sublet::cli
