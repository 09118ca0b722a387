// SPDX-License-Identifier: Apache-2.0
// Sessions make way for others. While others wait, a session over the limit of continuous activity,
// sessions.max_continuous, is paused. A spot session that must end for others saves its work first.
#include "sessions/sessions.h"

#include "base/log.h"
#include "core/format.h"
#include "explain/explain.h"
#include "sessions/rules.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using core::Lease;
using core::LeaseState;

constexpr Duration preempt_again = 1min;      // after a pause that was refused
constexpr Duration preempted_at_most = 1min;  // until its resume is requested, though its preemptor still waits
constexpr std::size_t most_waiters = 256;     // that are looked at
constexpr Duration next_notice = 1min;        // after the last one, if the lease was not ended

}  // namespace

void Sessions::note_break(Entry& entry, const Activity& seen, Time now) const {
  if (seen.state == Activity::State::idle && now - seen.last >= break_of(options_.max_continuous))
    entry.session.progress.continuous_since = now;
}

bool Sessions::is_over_cap(const Entry& entry, Time now) const {
  const Progress& progress = entry.session.progress;
  return progress.state == State::active && !progress.preemptor &&
         now - progress.continuous_since >= options_.max_continuous && now >= entry.preempt_at;
}

// The waiter for which this session is paused now; none: no waiter would get its memory by that. A lease that only
// wants to grow is no waiter, unless its session has rested. A waiter of a lower tier is none either: the session would
// preempt it at once.
LeaseId Sessions::preemptor_for(LeaseId lease, Time now) {
  const core::State& state = engine_.state();
  if (!preempted_) {
    std::vector<engine::Waiter> waiters = engine::waiters(state, most_waiters);
    std::erase_if(waiters, [&](const engine::Waiter& waiter) {
      return core::find(state, waiter.lease)->resize.has_value() && !rests(waiter.lease);
    });
    std::vector<engine::Candidate> candidates;
    for (auto& [number, entry] : entries_) {
      const Lease* its = waiters.empty() || !is_over_cap(entry, now) ? nullptr : lease_of(entry.session);
      if (its == nullptr || its->state != LeaseState::active) continue;
      note_break(entry, activity(entry.session), now);
      if (is_over_cap(entry, now))
        candidates.push_back(
            {its->id, now - entry.session.progress.continuous_since, engine::freed_by(state, *its), its->tier});
    }
    preempted_ = engine::choose(std::move(candidates), waiters, engine::free_memory(state, engine_.rules(), now),
                                engine::moving_devices(state));
  }
  for (const engine::Choice& choice : *preempted_)
    if (choice.pause == lease) return choice.waiter;
  return {};
}

// Continuous activity has a limit while others wait. A pause that is refused for now is tried again.
Time Sessions::cap(Entry& entry, const Lease& lease, const Activity& seen, Time now) {
  const Duration limit = options_.max_continuous;
  Progress& progress = entry.session.progress;
  if (limit <= Duration{}) return Time::never();
  const Duration look_again = std::clamp<Duration>(limit / 20, 100ms, 30s);
  note_break(entry, seen, now);
  const LeaseId waiter = is_over_cap(entry, now) ? preemptor_for(lease.id, now) : LeaseId{};
  if (!waiter) return now + look_again;
  preempted_.reset();
  const std::string preempted = fmt::format("preempted for {} after {} of continuous activity",
                                            core::name_of(*core::find(engine_.state(), waiter)),
                                            format_duration(now - progress.continuous_since));
  if (!explain::has_pause_method(engine_.state(), lease)) {
    const char* why =
        lease.pausable == core::Pausable::no ? "; it is never paused (--pausable no)" : "; it has no pause method";
    end(entry, End::expired, false, preempted + why, now);
    return now;
  }
  entry.preempt_at = now + preempt_again;
  const core::PauseCause cause{core::PauseCauseKind::max_continuous, waiter,
                               core::args("held", now - progress.continuous_since, "preemptor",
                                          core::name_of(*core::find(engine_.state(), waiter)))};
  progress.preemptor = waiter;
  progress.preempted_at = now;
  const auto paused = engine_.decide(core::Pause{lease.id, 0, cause, engine_.observer().host_memory(&lease)});
  if (paused) {
    move(entry, State::paused, preempted + "; it comes back by itself", now);
    return Time::never();
  }
  progress.preemptor = {};
  log::warn({.lease = lease.id, .program = {}}, "{} is not {}: {}", entry.session.id(), preempted,
            paused.error().detail);
  return now + look_again;
}

// It was paused by sessions.max_continuous: its resume waits until its preemptor has the memory.
Time Sessions::come_back(Entry& entry, const Lease& lease, Time now) {
  Progress& progress = entry.session.progress;
  if (lease.state != LeaseState::paused || lease.parking->resume_requested) return Time::never();
  const bool served = !engine_.state().queue.contains(progress.preemptor);
  if (!served && now < progress.preempted_at + preempted_at_most) return now + 1s;
  if (!engine_.decide(core::Resume{lease.id})) return now + 1s;
  changed(entry);
  return Time::never();
}

// The core asks for the memory of a spot session that cannot be paused. Its checkpoint command has lease.grace, before
// the core tells its program to end.
Time Sessions::heed_notice(Entry& entry, const Lease& lease, Time now) {
  const Session& session = entry.session;
  const Checkpoint& checkpoint = session.progress.checkpoint;
  if (lease.tier != core::Tier::spot || session.request.checkpoint.empty()) return Time::never();
  if (entry.noticed && entry.notice_run == 0 && !checkpoint.running) {
    begin_checkpoint(entry, now);
    entry.notice_run = checkpoint.number;
    move(entry, session.progress.state, "others need its memory: its work is being saved", now);
  } else if (entry.noticed && entry.notice_run != 0 && !checkpoint.running) {
    entry.noticed = false;
    entry.notice_run = 0;
    entry.ask_notice_at = now + next_notice;
    const bool rested = session.progress.state != State::active;
    move(entry, session.progress.state, rested ? "others need its memory: its work was saved" : "", now);
    (void)engine_.decide(core::Amend{.lease = lease.id, .notice = Duration{}});
  } else if (!entry.noticed && now >= entry.ask_notice_at) {
    entry.ask_notice_at = Time::never();
    (void)engine_.decide(core::Amend{.lease = lease.id, .notice = engine_.rules().grace});
  }
  return entry.noticed ? Time::never() : entry.ask_notice_at;
}

}  // namespace sublet::sessions
