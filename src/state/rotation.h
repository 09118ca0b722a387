// SPDX-License-Identifier: Apache-2.0
// The declared rotation of leases that share devices in strict order: the part of the time that each tenant gets, and
// the time slices that come before a lease. Reads only.
#pragma once

#include "state/state.h"

#include <optional>
#include <string_view>

namespace sublet::core {

// The rotation that the lease takes part in; null: none.
const Rotation* rotation_with(const State& state, LeaseId lease);

// The part of the time that the leases of the tenant get, with those of all tenants below it; 0: none of them shares.
double part_of_time(const State& state, const Rotation& rotation, std::string_view tenant);

// The time until the present slice ends; a whole slice if that is not known yet.
Duration present_slice(const State& state, const Rotation& rotation, Time now);

// The number of time slices of other leases before that of the waiter, the present slice included. Leases that come
// later stand behind it. Unset: some of them do not, since leases share a branch of the tree or have other weights.
std::optional<int> turns_before(const State& state, const Rotation& rotation, LeaseId waiter, Time now);

}  // namespace sublet::core
