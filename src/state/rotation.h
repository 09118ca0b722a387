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

// The time slices of other leases before that of a waiter.
struct TurnsBefore {
  int slices = 0;          // the present slice included
  Duration present{};      // until the present slice ends, if that is fixed; else the longest slice
  bool is_switch = false;  // no lease has the devices now: the first of these slices has not begun
};
// Leases that come later stand behind the waiter. Unset: some of them do not, since leases share a branch of the tree,
// have other weights or sizes, or others are on the devices, or more than 16 leases share them.
std::optional<TurnsBefore> turns_before(const State& state, const Rotation& rotation, LeaseId waiter, Time now);

}  // namespace sublet::core
