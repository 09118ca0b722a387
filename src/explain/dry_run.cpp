// SPDX-License-Identifier: Apache-2.0
#include "explain/dry_run.h"

#include "core/step.h"
#include "core/victims.h"
#include "explain/advice.h"
#include "state/end_estimate.h"
#include "state/format.h"
#include "state/ledger_set.h"
#include "state/reconfigured.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace sublet::explain {

using namespace core;

namespace {

// The leases that give way in a time slice, or to a plan that was made for the lease in the copy.
VictimPlan room_of(const State& state, const Rules& rules, const std::vector<LeaseId>& leases, const Lease& waiter,
                   const std::vector<std::string>& devices, Time now) {
  VictimPlan room;
  room.found = true;
  room.devices = devices;
  room.victims = as_victims(state, rules, leases, waiter.uid, devices, now);
  room.in_progress = room.victims.empty();
  for (const Victim& victim : room.victims) room.pause += victim.pause.likely, room.cost += victim.cost;
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

// The next time slice of the lease, and how long its victims stay paused then.
VictimPlan room_in_slice(const State& state, const Rules& rules, const Lease& waiter, Projection& projection,
                         Time now) {
  const Projection::Start* start = projection.start_of(waiter.id);
  if (start == nullptr || !start->by_pauses() || start->last.back().cause->kind != PauseCauseKind::slice) return {};
  std::vector<LeaseId> leases;
  std::optional<Time> back;
  for (const Projection::Freed& freed : start->last) leases.push_back(freed.lease);
  for (const LeaseId id : leases)
    if (const auto returns = projection.return_of(id)) back = std::min(back.value_or(*returns), *returns);
  VictimPlan room = room_of(state, rules, leases, waiter, start->devices, now);
  room.wait = std::max(start->last.front().asked - now, Duration{});
  for (const Victim& victim : room.victims)
    if (*room.wait > Duration{})
      room.wait_for += (room.wait_for.empty() ? "" : "; ") + name_of(*find(state, victim.lease)) +
                       ": it has its time slice for " + format_duration(*room.wait) + " more";
  if (!back) return with_time_away(std::move(room), state, rules, waiter, now);
  room.paused_for = *back - start->at;
  room.paused_for_basis = "for one time slice at least; then the victims resume";
  return room;
}

// Which refusal fits best when the lease would have to wait.
Code waiting_code(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (!hopeless_text(state, rules, lease, now).empty()) return Code::GpuLost;
  int known = 0, settling = 0, leased = 0, closed = 0;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!may_use(lease, uuid)) continue;
    closed += !is_in_service(state, uuid);
    if (!may_grant_on(state, device, rules, now)) continue;
    ++known;
    if (device.settling > Bytes{} && free_on(state, device, rules, now) + device.settling >= lease.least()) ++settling;
    if (capacity_of(device, rules) - device.other >= lease.least()) ++leased;
  }
  if (known < lease.device_count) return known + closed < lease.device_count ? Code::Unverified : Code::Draining;
  if (settling >= lease.device_count) return Code::Settling;
  if (leased >= lease.device_count) return Code::Memory;
  return out_of_service_text(state, rules, lease).empty() ? Code::External : Code::Draining;
}

std::string waiting_hint(Code code) {
  switch (code) {
    case Code::Unverified: return "`sublet status` says what is wrong with the device; nothing is granted on a guess";
    case Code::GpuLost:
      return "`sublet doctor` says what the driver reports of it; ask for less, or for another device";
    case Code::Draining: return "ask for another device, or for less, or wait until the device is back in service";
    case Code::Settling: return "try again in a moment: what ended holds these bytes until they are measured gone";
    case Code::External:
      return "unleased processes hold the memory: end one (`sublet proclist`), lease it, or ask for less";
    default: return "let it queue, or ask for less";
  }
}

}  // namespace

Lease outcome_of(const State& after, const Plan& plan) {
  const LeaseId id = *plan.outcome;
  if (const Lease* lease = find(after, id)) return *lease;
  return *std::ranges::find(plan.changed, id, &Lease::id);
}

std::string ended_for_it_text(const Lease& ended) {
  return name_of(ended) + " is ended for it, and has its grace time to end";
}

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

Status refusal(const State& state, const Rules& rules, const Submit& fact, Time now) {
  State after = state;
  const Plan plan = step(after, rules, fact, now);
  return plan.outcome ? Status() : Status(plan.outcome.error());
}

Status would_start(const State& state, const Rules& rules, const Submit& fact, Time now) {
  State after = state;
  const Plan plan = step(after, rules, fact, now);
  if (!plan.outcome) return plan.outcome.error();
  const Lease lease = outcome_of(after, plan);
  if (lease.state != LeaseState::queued) return {};
  const Code code = waiting_code(after, rules, lease, now);
  return Error{code, "the lease " + shortage_text(after, rules, lease, now), waiting_hint(code),
               shortage_numbers(after, rules, lease, now)};
}

std::string_view to_string(Would would) {
  switch (would) {
    case Would::start: return "start";
    case Would::preempt: return "preempt";
    case Would::wait: break;
  }
  return "wait";
}

Result<DryRun> dry_run(const State& state, const Rules& rules, const Submit& fact, Time now) {
  if (const Status may = fact.may_queue ? Status() : would_start(state, rules, fact, now); !may) return may.error();
  State after = state;
  const Plan plan = step(after, rules, fact, now);
  if (!plan.outcome) return plan.outcome.error();
  DryRun found;
  found.lease = outcome_of(after, plan);
  Lease asked = fact.lease;
  asked.wanted_devices = uuids_of(state, asked.wanted_devices);
  found.room = victim_plan(state, rules, asked, fact.preemption_request, now);
  if (found.lease.state != LeaseState::queued) {
    // A spot lease that could be ended at once is gone by now, in the copy.
    found.would = found.room.victims.empty() ? Would::start : Would::preempt;
    return found;
  }
  Projections ahead;
  found.queue = Estimates(after, rules, now, &ahead).of(found.lease);
  // In the copy it has ended; here it runs, and has its time to end.
  for (const Victim& victim : found.room.victims) {
    if (const Lease* its = find(after, victim.lease); !victim.ends || (its != nullptr && !its->ended())) continue;
    found.would = Would::preempt;
    found.queue.eta.reset();
    found.queue.basis = ended_for_it_text(*find(state, victim.lease));
    return found;
  }
  const PreemptionPlan* preemption = plan_for(after, found.lease.id);
  if (preemption != nullptr) found.would = Would::preempt;
  if ((preemption == nullptr || preemption->cause == Cause::slice) && !found.room.found) {
    if (VictimPlan room = room_in_slice(state, rules, found.lease, *ahead.of(after, rules, now), now); room.found)
      found.room = std::move(room);
  } else if (preemption != nullptr &&
             !beyond_ledger(state, rules, asked.uid, found.room.victims, state.host.memory).empty()) {
    std::vector<LeaseId> leases = preemption->asked;
    for (const Victim& victim : preemption->victims) leases.push_back(victim.lease);
    found.room =
        with_time_away(room_of(state, rules, leases, asked, preemption->devices, now), after, rules, found.lease, now);
  }
  return found;
}

}  // namespace sublet::explain
