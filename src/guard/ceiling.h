// SPDX-License-Identifier: Apache-2.0
// Ceilings by polling: when to look next, and what to do about a lease that uses too much. Pure functions on values.
#pragma once

#include "base/units.h"

#include <algorithm>
#include <utility>

namespace sublet::guard {

// No program allocates faster than this without having been seen to: the fill rate of fast cards on a busy bus.
inline constexpr std::int64_t least_rate = 8 * (std::int64_t{1} << 30);  // bytes a second
inline constexpr Duration shortest_sample = std::chrono::milliseconds(20);
inline constexpr Duration longest_sample = std::chrono::seconds(1);
inline constexpr Bytes kill_above = 192 * MiB;     // over the ceiling: no grace is left
inline constexpr Bytes device_is_full = 64 * MiB;  // less is free: other programs run out of memory now
// From a reading until a signal arrives.
inline constexpr Duration signal_takes = 2 * shortest_sample;
// A reading that began this soon after the request to end may show memory from before the request.
inline constexpr Duration request_takes = std::chrono::milliseconds(100);

struct Limits {
  Bytes ceiling;     // 0: none
  Bytes soft_limit;  // 0: none
  bool operator==(const Limits&) const = default;
};

// runs: its lease is active. away: it is pausing, paused or resuming. ending: it was asked to end, and lives.
enum class Stage { runs, away, ending };

// The reading of one lease on one device.
struct Reading {
  Bytes used;
  Bytes coming{};  // until a signal arrives, if it goes on growing as in the last two intervals
  Bytes due{};     // away: what it may get back; ending: what it held when it was asked to end
  Bytes held{};    // ending: the most that it held until the request can have reached it
  Bytes device_free = GiB;
  bool lowered = false;  // the ceiling was lowered a moment ago, so the use is no leak
};

// The last time at which a ceiling was lowered. A program that was away then can free memory only after its return.
struct Lowering {
  Time at{};
  bool away = false;  // the program did not run since

  void it_runs(Time now) {
    if (std::exchange(away, false)) at = now;
  }
  bool is_recent(Time now, Duration grace) const { return now - at < grace; }
};

enum class Act { none, warn, end, kill };

// The growth until a signal arrives, by the rates of the last two intervals in bytes a second. One interval alone may
// show a single allocation between two readings, and such a program does not go on growing.
inline Bytes growth_until_signal(double rate, double rate_before) {
  const double seconds = std::chrono::duration<double>(signal_takes).count();
  return Bytes{static_cast<std::int64_t>(std::min(rate, rate_before) * seconds)};
}

// The reaction. A program that is ending or away takes no memory beyond its ceiling: it has had its grace.
inline Act judge(const Reading& reading, const Limits& limits, Stage stage) {
  const Bytes used = reading.used;
  if (limits.ceiling > Bytes{} && used > limits.ceiling) {
    const bool is_far = used + reading.coming > std::max(limits.ceiling, reading.due) + kill_above;
    const bool others_suffer = reading.device_free < device_is_full && !reading.lowered;
    switch (stage) {
      case Stage::runs: return (is_far && !reading.lowered) || others_suffer ? Act::kill : Act::end;
      case Stage::away: return is_far || (others_suffer && used > reading.due) ? Act::kill : Act::none;
      case Stage::ending: return is_far || others_suffer || used > reading.held ? Act::kill : Act::none;
    }
  }
  const bool is_over_soft = limits.soft_limit > Bytes{} && used > limits.soft_limit;
  return stage == Stage::runs && is_over_soft ? Act::warn : Act::none;
}

// The time until the next reading: no program reaches its ceiling before, at `rate` bytes a second.
inline Duration next_sample(Bytes used, Bytes ceiling, std::int64_t rate) {
  const double seconds = static_cast<double>((ceiling - used).count) / static_cast<double>(std::max(rate, least_rate));
  const auto wait = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::max(seconds, 0.0)));
  return std::clamp<Duration>(wait, shortest_sample, longest_sample);
}

}  // namespace sublet::guard
