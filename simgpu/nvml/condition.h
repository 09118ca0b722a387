// SPDX-License-Identifier: Apache-2.0
// The made-up condition of a card, for single queries and for field values.
#pragma once

#include "library.h"

namespace simgpu::nvml {

inline constexpr Count idle_milliwatts = 60'000, min_limit_milliwatts = 200'000, limit_milliwatts = 600'000;
inline constexpr Count idle_mhz = 345, max_graphics_mhz = 1980, memory_mhz = 3201;

struct Condition {
  Count celsius, milliwatts, graphics_mhz, performance_state;
  bool idle;
};
Condition condition(const Card& card);
Wide energy_millijoules(const Card& card);

}  // namespace simgpu::nvml
