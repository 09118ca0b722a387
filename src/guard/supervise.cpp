// SPDX-License-Identifier: Apache-2.0
#include "guard/supervise.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::guard {
namespace {

void enter(Progress& progress, Phase phase, Time now, std::string why) {
  if (progress.phase != phase) progress.since = now;
  progress.phase = phase;
  progress.why = std::move(why);
}

bool is_success(const Ended& end) { return end.reason == core::EndReason::released && end.status.value_or(0) == 0; }

bool restarts(Restart policy, const Ended& end) {
  // Sublet can never grant its lease.
  if (end.reason == core::EndReason::rejected) return false;
  return policy == Restart::always || (policy == Restart::on_failure && !is_success(end));
}

Duration backoff_after(std::size_t recent) {
  Duration wait = first_backoff;
  for (std::size_t i = 0; i < recent && wait < longest_backoff; ++i) wait *= 2;
  return std::min(wait, longest_backoff);
}

}  // namespace

bool is_being_ended(const Progress& progress, const core::Lease* lease) {
  if (progress.ending) return true;
  if (lease == nullptr || lease->ended()) return false;
  return lease->stop_requested || (lease->parking && lease->parking->then_stop);
}

void begin_start(Program& program, Time now) {
  Progress& progress = program.progress;
  ++progress.start;
  progress.next_start = Time::never();
  progress.wish = Wish::none;
  progress.ending = false;
  progress.warning.clear();
  enter(progress, Phase::starting, now, "");
  progress.since = now;
}

void restart(Program& program, Time now) {
  ++program.progress.restarts;
  begin_start(program, now);
}

void follow(Program& program, core::LeaseState state, Time now) {
  const bool waits = state == core::LeaseState::queued || state == core::LeaseState::offered;
  enter(program.progress, waits ? Phase::queued : Phase::running, now, "");
}

void end_start(Program& program, const Ended& end, Time now) {
  Progress& progress = program.progress;
  progress.ending = false;
  progress.exit_status = end.status;
  progress.end_reason = core::to_string(end.reason);
  if (progress.wish == Wish::restart) return begin_start(program, now);
  if (end.on_request || progress.wish != Wish::none) return enter(progress, Phase::stopped, now, end.why);
  const bool good = is_success(end);
  if (!restarts(program.manifest.restart, end))
    return enter(progress, good ? Phase::exited : Phase::failed, now, end.why);
  std::erase_if(progress.recent, [now](Time at) { return now - at >= restart_window; });
  if (progress.recent.size() >= most_restarts) {
    return enter(progress, Phase::failed, now,
                 fmt::format("{}; it was restarted {} times in ten minutes, so it is not started again", end.why,
                             most_restarts));
  }
  progress.next_start = now + backoff_after(progress.recent.size());
  progress.recent.push_back(now);
  enter(progress, Phase::backoff, now, end.why);
}

}  // namespace sublet::guard
