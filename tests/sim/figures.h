// SPDX-License-Identifier: Apache-2.0
// How well leases are served: the times that they wait and are paused, and the bytes that are moved for that. A change
// of the scheduler is judged by these figures on the same seeds.
#pragma once

#include "base/units.h"

#include <array>
#include <cstdint>
#include <string>

namespace sublet::sim {

struct Figures {
  // Counts of durations, in steps of an eighth of a doubling from 1 ms; the first also counts all shorter ones.
  static constexpr std::size_t steps = 256;
  struct Times {
    std::array<std::uint64_t, steps> counts{};
    void add(Duration time);
    Duration at(double part) const;  // that so large a part does not exceed; zero without any
  };
  Times waits;   // from the request to the grant
  Times pauses;  // from the pause order until the lease runs again, by a resume
  std::uint64_t never_granted = 0;
  std::uint64_t moved = 0;  // bytes parked

  void add(const Figures& other);
  std::string text() const;  // one line
};

}  // namespace sublet::sim
