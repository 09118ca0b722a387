// SPDX-License-Identifier: Apache-2.0
#include "explain/bound.h"

#include "state/format.h"
#include "state/rotation.h"

#include <algorithm>

namespace sublet::explain {

using namespace core;

namespace {

// A lease of a higher rank displaces a plan, and has the devices for as long as it wants.
std::string unless_outranked(const State& state, const Lease& waiter) {
  const QueueKey* key = state.queue.key(waiter.id);
  const bool guaranteed = key != nullptr && key->guaranteed, quotas = state.tenants.by_name.quotas() > 0;
  if (waiter.tier == Tier::critical) return guaranteed || !quotas ? "" : "a lease within a guarantee comes";
  if (guaranteed) return "a lease of a higher tier and within a guarantee comes";
  return quotas ? "a lease of a higher tier or within a guarantee comes" : "a lease of a higher tier comes";
}

// The most that a pause in progress will take from now on; unset: it has taken longer than predicted already.
std::optional<Duration> rest_of_pause(const State& state, const Lease& victim, Time now) {
  if (victim.state != LeaseState::pausing || !victim.parking) return Duration{};
  const auto most = [&](Move move) {
    const PauseMethod method = victim.parking->method;
    return state.learned.costs.predict(victim.whose(), victim.devices, method, move, bytes_to_move(state, victim))
        .at_most;
  };
  const Duration rest = victim.parking->since + most(Move::pause) + most(Move::settle) - now;
  return rest < Duration{} ? std::nullopt : std::optional(rest);
}

std::string cause_text(const PreemptionPlan& plan) {
  switch (plan.cause) {
    case Cause::quota: return "the guarantee of its tenant: memory that others borrowed is taken back";
    case Cause::slice: return "its time slice begins: the leases of the present slice are being paused";
    case Cause::request: return "a request: its victims are being paused";
    default: return "its victims are being paused";
  }
}

std::optional<Bound> bound_by_plan(const State& state, const Lease& waiter, const PreemptionPlan& plan, Time now) {
  if (plan.id == 0) return std::nullopt;
  Bound bound{{}, cause_text(plan), unless_outranked(state, waiter)};
  for (const LeaseId id : plan.asked) {
    const Lease* victim = find(state, id);
    if (victim == nullptr || victim->ended()) continue;
    const auto rest = victim->stop_requested ? std::nullopt : rest_of_pause(state, *victim, now);
    if (!rest) return std::nullopt;
    bound.within += *rest;
  }
  for (const Victim& victim : plan.victims) {
    if (victim.ends || victim.reclaim) return std::nullopt;
    const Lease& lease = *find(state, victim.lease);
    bound.within += victim.pause.at_most;
    bound.within +=
        state.learned.costs.predict(lease.whose(), lease.devices, victim.method, Move::settle, victim.bytes).at_most;
  }
  return bound;
}

// From now on: the rest of the present slice, then each slice with the switch before it, and the pause of the last.
std::optional<Bound> bound_by_turns(const State& state, const Lease& waiter, const Rotation& rotation, Time now) {
  const auto turns = turns_before(state, rotation, waiter.id, now);
  if (!turns) return std::nullopt;
  const bool quotas = state.tenants.by_name.quotas() > 0;
  const int slices = turns->slices;
  const int switches = turns->is_switch ? slices + 1 : slices;
  const Duration present = slices > 0 ? turns->present : Duration{};
  const std::string before = slices == 1 ? "one time slice" : std::to_string(slices) + " time slices";
  return Bound{present + std::max(slices - 1, 0) * rotation.longest_slice + switches * rotation.switching,
               before + " of " + format_duration(rotation.slice) + " before its own",
               quotas
                   ? "a lease of another size, weight or tier or within a guarantee comes, or one of these ends early"
                   : "a lease of another size, weight or tier comes, or one of these ends early"};
}

}  // namespace

std::optional<Bound> bound_of(const State& state, const Rules& rules, const Lease& waiter, Time now) {
  if (rules.safe_mode || !state.queue.contains(waiter.id)) return std::nullopt;
  if (const PreemptionPlan* plan = plan_for(state, waiter.id)) return bound_by_plan(state, waiter, *plan, now);
  if (const Rotation* rotation = rotation_with(state, waiter.id)) return bound_by_turns(state, waiter, *rotation, now);
  return std::nullopt;
}

}  // namespace sublet::explain
