// SPDX-License-Identifier: Apache-2.0
#include "engine/loop_clock.h"

#include "base/log.h"
#include "base/mutants.h"

#include <utility>

namespace sublet::engine {

LoopClock::LoopClock(Clock& clock)
    : clock_(clock), started_at_(clock.now()), alive_at_(started_at_), undisturbed_since_(started_at_) {}

std::optional<LoopClock::Gap> LoopClock::look(Duration standstill) {
  Gap gap{.asleep = clock_.take_sleep()};
  const Time now = clock_.now();
  const Duration away = now - std::exchange(alive_at_, now) - gap.asleep;
  if (gap.asleep > Duration::zero()) {
    log::warn("the machine slept for {}; all deadlines are extended by that time", format_duration(gap.asleep));
    woke_at_ns_ = now.ns - clock_.offset_ns();
  } else {
    if (away <= standstill || mutant(Mutant::standstills_go_unnoticed)) return std::nullopt;
    log::warn("the daemon stood still for {}; all deadlines are extended by that time", format_duration(away));
    gap.stood_still = away;
  }
  undisturbed_since_ = now;
  lost_time_ = lost_time_ + gap.asleep + gap.stood_still;
  time_asleep_ = time_asleep_ + gap.asleep;
  return gap;
}

void LoopClock::go_on_from(Time last_stored) {
  clock_.go_on_from(last_stored);
  if (earlier_until_ == Time{}) earlier_until_ = last_stored;
  alive_at_ = clock_.now();
}

}  // namespace sublet::engine
