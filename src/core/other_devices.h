// SPDX-License-Identifier: Apache-2.0
// Devices beside the freest where a lease can be paused for a waiter that takes any device. Private; reads only.
#pragma once

#include "core/victims.h"

#include <cstddef>
#include <vector>

namespace sublet::core {

struct OtherDevices {
  std::vector<const Device*> devices;
  Time again = Time::never();  // when one may be paused on a device that is left out
};

// At most `most` devices that are not among the freest.
OtherDevices other_devices_for(const State& state, const Rules& rules, const PreemptionQuery& query,
                               const std::vector<const Device*>& freest, std::size_t most, Time now);

}  // namespace sublet::core
