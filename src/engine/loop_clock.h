// SPDX-License-Identifier: Apache-2.0
// The time of the loop, and its clock gaps.
#pragma once

#include "base/clock.h"

#include <cstdint>
#include <optional>

namespace sublet::engine {

class LoopClock {
 public:
  struct Gap {
    Duration asleep{}, stood_still{};  // one of them is 0
  };

  explicit LoopClock(Clock& clock);

  Time now() const { return clock_.now(); }
  // The gap since the last look, if there was one. A loop that does not run for `standstill` was stopped.
  std::optional<Gap> look(Duration standstill);
  Time looked_at() const { return alive_at_; }  // the time of the last look
  // The clock never goes back over a restart: it continues at the last stored time.
  void go_on_from(Time last_stored);
  std::int64_t offset_ns() const { return clock_.offset_ns(); }
  Time at_monotonic(std::int64_t ns) const { return clock_.at_monotonic(ns); }

  Time started_at() const { return started_at_; }
  // The last stored time of the daemon before this one.
  Time earlier_until() const { return earlier_until_; }
  // Since when the daemon has run without a gap in its clock: its start, or the end of the last gap.
  Time undisturbed_since() const { return undisturbed_since_; }
  // Time since the start that counts for nobody: the gaps.
  Duration lost_time() const { return lost_time_; }
  // The part in which the machine slept, with all programs.
  Duration time_asleep() const { return time_asleep_; }
  // CLOCK_MONOTONIC in ns when a sleep of the machine was last noticed; 0: never.
  std::int64_t woke_at_ns() const { return woke_at_ns_; }

 private:
  Clock& clock_;
  Time started_at_;
  Time alive_at_;  // last time at which the loop ran
  Time earlier_until_{};
  Time undisturbed_since_;
  Duration lost_time_{}, time_asleep_{};
  std::int64_t woke_at_ns_ = 0;
};

}  // namespace sublet::engine
