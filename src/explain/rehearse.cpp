// SPDX-License-Identifier: Apache-2.0
#include "explain/rehearse.h"

#include "core/end_estimate.h"
#include "core/format.h"
#include "core/ledger_set.h"
#include "core/slices.h"
#include "core/step.h"
#include "core/victims.h"
#include "explain/prospects.h"

#include <algorithm>

namespace sublet::explain {

using namespace core;

namespace {

// A time slice pauses leases of the same tier, which victim_plan() does not plan.
VictimPlan plan_of(const PreemptionPlan& preemption) {
  VictimPlan room;
  room.found = true;
  room.devices = preemption.devices;
  room.victims = preemption.victims;
  room.in_progress = preemption.victims.empty();
  for (const Victim& victim : preemption.victims) room.pause += victim.pause.likely, room.cost += victim.cost;
  return room;
}

// The same once their time is over.
VictimPlan plan_of(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice, Time now) {
  VictimPlan room;
  room.found = true;
  room.devices = slice.devices;
  room.wait = std::max(slice.at - now, Duration{});
  room.victims = as_victims(state, rules, slice.leaves, waiter.uid, slice.devices, now);
  for (const Victim& victim : room.victims) {
    room.pause += victim.pause.likely, room.cost += victim.cost;
    room.wait_for += (room.wait_for.empty() ? "" : "; ") + name_of(*find(state, victim.lease)) +
                     ": it has its time slice for " + format_duration(*room.wait) + " more";
  }
  return room;
}

bool parks_somebody(const VictimPlan& room) {
  return room.found && std::ranges::any_of(room.victims, [](const Victim& victim) { return !victim.ends; });
}

// Until it gives its memory back, the victims have no claim on it.
VictimPlan with_time_away(VictimPlan room, const State& state, const Rules& rules, const Lease& asked, Time now) {
  if (!parks_somebody(room)) return room;
  const Time start = asked.runs_since(now);
  const Expected end = expected_end(state, rules, asked, start, now);
  const bool by_limit = end.basis == Basis::limit || end.basis == Basis::stopping;
  if (asked.owner.kind == OwnerKind::token && asked.nameless && asked.ttl) {
    room.paused_for = *asked.ttl;
    room.paused_for_basis = "until the time limit of this lease, if it is not renewed";
  } else if (end.known()) {
    room.paused_for = end.at - now;
    room.paused_for_basis =
        "until it " + std::string(by_limit ? "" : "ends: ") + expected_text(state, asked, end.basis, start, now);
  } else {
    room.paused_for_basis = "it " + expected_text(state, asked, end.basis, start, now);
  }
  return room;
}

VictimPlan with_time_of_slice(VictimPlan room, const State& state, const Rules& rules, const Lease& asked) {
  if (!parks_somebody(room)) return room;
  room.paused_for = residency(state, rules, asked, room.devices);
  room.paused_for_basis = "for one time slice at least; then the victims resume";
  return room;
}

Lease outcome_of(const State& after, const Plan& plan) {
  const LeaseId id = *plan.outcome;
  if (const Lease* lease = find(after, id)) return *lease;
  return *std::find_if(plan.changed.begin(), plan.changed.end(), [id](const Lease& lease) { return lease.id == id; });
}

}  // namespace

VictimPlan victim_plan(const State& state, const Rules& rules, const Lease& asked,
                       const std::optional<PreemptionRequest>& preemption_request, Time now) {
  const PreemptionQuery query{asked, preemption_request};
  VictimPlan plan = plan_now_or_later(state, rules, query, now);
  if (!plan.found) plan.hint = what_else(state, rules, query, plan, now);
  return with_time_away(std::move(plan), state, rules, asked, now);
}

void limit_to_host(VictimPlan& room, const State& state, const Rules& rules, std::uint32_t preemptor) {
  if (!room.found || beyond_ledger(state, rules, preemptor, room.victims, state.host.memory).empty()) return;
  room.no_victims.code = NoVictims::Code::beyond_ledger;
  room.why_not = too_many_text(state, rules, preemptor, room.victims, state.host.memory);
  room.found = false;
  room.beyond_ledger = true;
  room.victims.clear();
}

std::string_view to_string(Would would) {
  switch (would) {
    case Would::start: return "start";
    case Would::preempt: return "preempt";
    case Would::wait: break;
  }
  return "wait";
}

Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, Time now) {
  State after = state;
  const Plan plan = step(after, rules, fact, now);
  if (!plan.outcome) return plan.outcome.error();
  Rehearsal found;
  found.lease = outcome_of(after, plan);
  Lease asked = fact.lease;
  asked.wanted_devices = uuids_of(state, asked.wanted_devices);
  found.room = victim_plan(state, rules, asked, fact.preemption_request, now);
  if (found.lease.state != LeaseState::queued) {
    // A spot lease that could be ended at once is gone by now, in the copy.
    found.would = found.room.victims.empty() ? Would::start : Would::preempt;
    return found;
  }
  found.queue = queue_info(after, rules, found.lease, now);
  // In the copy it has ended; here it runs, and has its time to end.
  for (const Victim& victim : found.room.victims) {
    if (const Lease* its = find(after, victim.lease); !victim.ends || (its != nullptr && !its->ended())) continue;
    found.would = Would::preempt;
    found.queue.eta.reset();
    found.queue.basis = name_of(*find(state, victim.lease)) + " is ended for it, and has its grace time to end";
    return found;
  }
  if (const PreemptionPlan* preemption = plan_for(after, found.lease.id)) {
    found.would = Would::preempt;
    if (preemption->cause == Cause::slice)
      found.room = with_time_of_slice(plan_of(*preemption), after, rules, found.lease);
    else if (!beyond_ledger(state, rules, asked.uid, found.room.victims, state.host.memory).empty())
      found.room = with_time_away(plan_of(*preemption), after, rules, found.lease, now);
  }
  for (const auto& [device, slice] : after.preemption.slices)
    if (found.would == Would::wait && !found.room.found && holds(slice.enters, found.lease.id))
      found.room = with_time_of_slice(plan_of(after, rules, found.lease, slice, now), after, rules, found.lease);
  return found;
}

}  // namespace sublet::explain
