// SPDX-License-Identifier: Apache-2.0
// Sessions make way for others. While others wait, a session over the limit of continuous activity,
// sessions.max_continuous, is paused. A spot session that must end for others saves its work first.
#include "sessions/sessions.h"

#include "base/log.h"
#include "explain/explain.h"
#include "sessions/rules.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sessions {
namespace {

using namespace std::chrono_literals;
using core::Lease;
using core::LeaseState;

constexpr Duration next_notice = 1min;  // after the last one, if the lease was not ended

}  // namespace

void Sessions::note_break(Entry& entry, const Activity& seen, Time now) const {
  if (seen.state == Activity::State::idle && now - seen.last >= break_of(options_.max_continuous))
    entry.session.progress.continuous_since = now;
}

bool Sessions::is_over_cap(const Entry& entry, Time now) const {
  const Progress& progress = entry.session.progress;
  return progress.state == State::active && now - progress.continuous_since >= options_.max_continuous;
}

// Unless it ends for a waiter, which counts on its memory.
void Sessions::keep_memory(const Entry& entry) {
  const LeaseId lease = entry.session.progress.lease;
  if (!reclaimable_.wanted_for(lease)) reclaimable_.withdraw(lease);
}

// Continuous activity has a limit while others wait. A session that cannot be paused ends.
Time Sessions::cap(Entry& entry, const Lease& lease, const Activity& seen, Time now) {
  const Duration limit = options_.max_continuous;
  if (limit <= Duration{}) return Time::never();
  note_break(entry, seen, now);
  const Duration look_again = std::clamp<Duration>(limit / 20, 100ms, 30s);
  if (!is_over_cap(entry, now)) {
    reclaimable_.withdraw(lease.id);
    return now + look_again;
  }
  const bool has_method = explain::why_never_paused(engine_.state(), lease).empty();
  if (const LeaseId waiter = reclaimable_.wanted_for(lease.id); waiter && !has_method) {
    const core::Lease* waits = core::find(engine_.state(), waiter);
    end(entry, End::expired, false,
        fmt::format(
            "preempted for {} after {} of continuous activity; {}",
            waits == nullptr ? to_string(waiter) : core::name_of(*waits),
            format_duration(now - entry.session.progress.continuous_since),
            lease.pausable == core::Pausable::no ? "it is never paused (--pausable no)" : "it has no pause method"),
        now);
    return now;
  }
  // For a waiter of a lower tier it is not paused: it would preempt that waiter at once.
  reclaimable_.declare(lease.id, {.taken = has_method ? core::Reclaim::Taken::turn : core::Reclaim::Taken::end,
                                  .least = lease.tier,
                                  .since = entry.session.progress.continuous_since,
                                  .since_as = "held"});
  return now + look_again;
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
