// SPDX-License-Identifier: Apache-2.0
// Finds leases that use more than their size.
#pragma once

#include "core/state.h"

#include <string_view>

namespace sublet::core {

// The bytes that the processes of a lease use beyond its size by the last reading, on one of its devices or on all
// together. Zero while it is pausing, paused or resuming, and for differences within the error of readings.
inline constexpr Bytes over_slack = 64 * MiB;
Bytes over_size(const State& state, const Lease& lease, std::string_view device);
Bytes over_size(const State& state, const Lease& lease);

}  // namespace sublet::core
