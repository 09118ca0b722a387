// SPDX-License-Identifier: Apache-2.0
// Victims that become eligible a little later.
#include "core/slices.h"
#include "core/victims.h"
#include "state/format.h"

#include <algorithm>

namespace sublet::core {

// The time until the victim is eligible, if nothing else changes; unset: unknown.
static std::optional<Duration> may_be_asked_in(const State& state, const Rules& rules, const PreemptionQuery& query,
                                               const Ineligible& ineligible, Time now) {
  const Lease& lease = *find(state, ineligible.lease);
  if (lease.state == LeaseState::resuming) {
    const auto left = time_left(state, lease.id, now);
    if (!left || query.by_request(lease) || query.lease.tier == Tier::critical) return left;
    // A lease that was resumed by a preemption request keeps its memory for as long as a time slice.
    return *left + (lease.preemption_request
                        ? std::max<Duration>(resume_grace, residency(state, rules, lease, lease.devices))
                        : resume_grace);
  }
  // A lease whose pause failed may not be able to yield then either.
  if (now < standing_of(state, lease.id).ineligible_until || ineligible.until == Time::never()) return std::nullopt;
  return ineligible.until - now;
}

// Sets the sentences of a plan.
static void put_in_words(VictimPlan& room, const State& state, const Rules& rules, const PreemptionQuery& query,
                         Time now) {
  room.why_not = no_victims_text(state, rules, query, room.no_victims);
  for (Ineligible& its : room.ineligible) its.why = ineligible_text(state, rules, query, its, now);
}

VictimPlan plan_later(const State& state, const Rules& rules, const PreemptionQuery& asked, Time now) {
  const PreemptionQuery query = within_quota(state, asked);
  PreemptionQuery patient = query;
  patient.patient = true;
  patient.lists_all = false;
  VictimPlan room = plan_victims(state, rules, patient, now);
  if (!room.found) return room;
  PreemptionQuery hasty = query;
  hasty.lists_all = true;
  for (const Victim& victim : room.victims) {
    const Lease& lease = *find(state, victim.lease);
    const auto left_alone =
        ineligible(state, rules, hasty, lease, way_to_yield(state, rules, lease, query.lease.uid, now), now);
    if (!left_alone) continue;
    const auto in = may_be_asked_in(state, rules, query, *left_alone, now);
    room.wait_for += (room.wait_for.empty() ? "" : "; ") + name_of(lease) + ": " +
                     ineligible_text(state, rules, hasty, *left_alone, now);
    if (!in) room.wait.reset();
    else if (room.wait) room.wait = std::max(*room.wait, *in);
  }
  return room;
}

VictimPlan plan_now_or_later(const State& state, const Rules& rules, const PreemptionQuery& asked, Time now) {
  const PreemptionQuery query = within_quota(state, asked);
  VictimPlan room = plan_victims(state, rules, query, now);
  if (!room.found) {
    if (VictimPlan later = plan_later(state, rules, query, now); later.found) room = std::move(later);
  }
  put_in_words(room, state, rules, query, now);
  return room;
}

}  // namespace sublet::core
