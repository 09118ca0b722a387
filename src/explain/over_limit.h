// SPDX-License-Identifier: Apache-2.0
// Finds leases that use more than their size.
#pragma once

#include "state/state.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::explain {

// The bytes that the processes of a lease use beyond its size by the last reading, on one of its devices or on all
// together. Zero while it is pausing, paused or resuming, and for differences within the error of readings.
inline constexpr Bytes over_slack = 64 * MiB;
Bytes over_size(const core::State& state, const core::Lease& lease, std::string_view device);
Bytes over_size(const core::State& state, const core::Lease& lease);

// The bytes that the processes of a lease hold on a device that the lease does not have, by the last reading.
core::StrayUse stray_use(const core::Device& device, LeaseId lease);
// The same of each lease and device, by lease; without differences within the error of readings.
struct Stray {
  LeaseId lease;
  std::string device;  // uuid
  Bytes used;
};
std::vector<Stray> stray_uses(const core::State& state);

}  // namespace sublet::explain
