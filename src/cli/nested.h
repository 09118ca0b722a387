// SPDX-License-Identifier: Apache-2.0
// `run` inside `run`.
#pragma once

#include "client/client.h"
#include "client/lease.h"

#include <optional>
#include <string_view>

namespace sublet::cli {

// The lease of this process: SUBLET_LEASE, if this daemon granted it and one of its processes is our ancestor. The
// variable alone proves nothing, since anyone can copy it.
std::optional<client::Lease> outer_lease(client::Client& client);

// Whether `visible` is the CUDA_VISIBLE_DEVICES that `sublet run` set for the lease in the environment.
bool is_visible_list_of_lease(client::Client& client, std::string_view visible);

}  // namespace sublet::cli
