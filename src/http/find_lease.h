// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "http/message.h"

#include <functional>
#include <string>

namespace sublet::http {

// Finds the lease with the id or tag `name` among live leases, else in the store, and calls `next` with it. The
// caller's own tags come first. An unknown lease is NotFound, with the nearest name.
Reply with_lease(Call& call, const std::string& name, std::function<Reply(const core::Lease&)> next);

// Finds a lease that has ended since, in the store. `none`: the answer if the store does not know it.
Later ended_lease(engine::Engine& engine, LeaseId id, Error none, std::function<Reply(const core::Lease&)> next);

bool has_token(const Request& request, const core::Lease& lease);
// True if the caller is the lease's user, or has the lease's token.
bool is_owner(const Request& request, const core::Lease& lease);
// Denied unless the caller is the lease's user, an admin, or has the lease's token.
Status may_act(const Request& request, const core::Lease& lease);

// The lease around the caller: its own, or that of the nearest process above it, if it reserves memory; null: none.
// `owned`: also a lease that the caller has asked for itself.
const core::Lease* lease_around(const Call& call, bool owned);

}  // namespace sublet::http
