// SPDX-License-Identifier: Apache-2.0
// Ceilings by polling: when to look next, and what to do about a lease that uses too much. Pure functions on values.
#pragma once

#include "base/units.h"

#include <algorithm>

namespace sublet::guard {

// No program allocates faster than this without having been seen to: the fill rate of fast cards on a busy bus.
inline constexpr std::int64_t least_rate = 8 * (std::int64_t{1} << 30);  // bytes a second
inline constexpr Duration shortest_sample = std::chrono::milliseconds(20);
inline constexpr Duration longest_sample = std::chrono::seconds(1);
inline constexpr Bytes kill_above = 192 * MiB;     // over the ceiling: no grace is left
inline constexpr Bytes device_is_full = 64 * MiB;  // less is free: other programs run out of memory now

struct Limits {
  Bytes ceiling;     // 0: none
  Bytes soft_limit;  // 0: none
  bool operator==(const Limits&) const = default;
};

// The reaction to the reading of one lease on one device.
enum class Act { none, warn, end, kill };

inline Act judge(Bytes used, const Limits& limits, Bytes device_free) {
  if (limits.ceiling > Bytes{} && used > limits.ceiling)
    return used > limits.ceiling + kill_above || device_free < device_is_full ? Act::kill : Act::end;
  return limits.soft_limit > Bytes{} && used > limits.soft_limit ? Act::warn : Act::none;
}

// The time until the next reading: no program reaches its ceiling before, at `rate` bytes a second.
inline Duration next_sample(Bytes used, Bytes ceiling, std::int64_t rate) {
  const double seconds = static_cast<double>((ceiling - used).count) / static_cast<double>(std::max(rate, least_rate));
  const auto wait = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::max(seconds, 0.0)));
  return std::clamp<Duration>(wait, shortest_sample, longest_sample);
}

}  // namespace sublet::guard
