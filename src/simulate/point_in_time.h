// SPDX-License-Identifier: Apache-2.0
// A scheduler to compare with: at each moment it divides the devices by the guarantees and weights of the tenants, and
// knows no past. It cannot pause: for a tenant below its part it ends jobs of tenants above theirs. These begin anew,
// or from their last checkpoint. Our own implementation of published rules (docs/placement.md).
#pragma once

#include "simulate/run.h"

namespace sublet::simulate {

struct PointInTime {
  Duration checkpoint{};  // between two checkpoints of a job; 0: none
  Duration grace{};       // that a job has to end
};

// The headroom is all that counts of `setting.rules`.
Outcome run_point_in_time(const std::vector<Job>& jobs, const Setting& setting, const PointInTime& how);

}  // namespace sublet::simulate
