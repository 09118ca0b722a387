// SPDX-License-Identifier: Apache-2.0
// Finds leases that use more than their size.
#pragma once

#include "core/state.h"

#include <string_view>

namespace sublet::core {

// By how much the processes of a lease were last seen to use more than its size, on one of its devices or on all of
// them together. Nothing while it is parked or on the way, and nothing for a difference that is no more than what
// readings of one driver differ by.
inline constexpr Bytes over_slack = 64 * MiB;
Bytes over_size(const State& state, const Lease& lease, std::string_view device);
Bytes over_size(const State& state, const Lease& lease);

}  // namespace sublet::core
