// SPDX-License-Identifier: Apache-2.0
#include "simulate/stated.h"

#include "explain/bound.h"
#include "state/rotation.h"

#include <algorithm>

namespace sublet::simulate {

using namespace core;

void StatedBounds::ask(const State& state, const Rules& rules, LeaseId id, Time now) {
  const Lease* lease = find(state, id);
  if (lease == nullptr || lease->ended() || !state.queue.contains(id)) return;
  const auto bound = explain::bound_of(state, rules, *lease, now);
  if (!bound) return;
  const Time at = now + bound->within;
  const auto [found, first] = open_.try_emplace(id, Statement{.earliest = at});
  Statement& its = found->second;
  if (first) ++sum_.stated;
  its.earliest = std::min(its.earliest, at);
  if (its.binding && *its.binding <= at) return;
  its.binding = at, its.has_exceptions = !bound->unless.empty();
  const Rotation* rotation = plan_for(state, id) == nullptr ? rotation_with(state, id) : nullptr;
  its.turns_of = rotation == nullptr ? std::vector<LeaseId>() : rotation->leases;
}

void StatedBounds::look_at_plans(const State& state, const Rules& rules, Time now) {
  if (state.preemption.last_plan == last_plan_) return;
  for (const PreemptionPlan& plan : state.preemption.plans)
    if (plan.id > last_plan_)
      for (const LeaseId id : plan.beneficiaries) ask(state, rules, id, now);
  last_plan_ = state.preemption.last_plan;
}

void StatedBounds::look_at_turns(const State& state, const Rules& rules, Time now) {
  for (const Rotation& rotation : state.preemption.rotations)
    for (const LeaseId id : rotation.leases) ask(state, rules, id, now);
}

// With quotas, any lease counts as within a guarantee: who is above its guarantee is not asked.
static bool delays_turns(const State& state, const Lease& newcomer, const Lease& waiter) {
  const auto weight = [&state](LeaseId lease) {
    AccountId top = account_of(state, lease);
    while (top != 0 && account(state, top).parent != 0) top = account(state, top).parent;
    return top == 0 ? 0 : weight_of(account(state, top));
  };
  return newcomer.tier != waiter.tier || newcomer.vram != waiter.vram ||
         newcomer.device_count != waiter.device_count || weight(newcomer.id) != weight(waiter.id);
}

void StatedBounds::came(const State& state, const Rules& rules, LeaseId newcomer, Time now) {
  const Lease* lease = find(state, newcomer);
  if (lease == nullptr) return;
  const bool quotas = state.tenants.by_name.quotas() > 0;
  for (auto& [id, its] : open_) {
    if (!its.binding || !its.has_exceptions) continue;
    const Lease& waiter = *find(state, id);
    if (quotas || (its.turns_of.empty() ? lease->tier > waiter.tier : delays_turns(state, *lease, waiter)))
      its.binding.reset();
  }
  ask(state, rules, newcomer, now);
}

void StatedBounds::changed(const State& state, const Lease& lease, Time now) {
  if (open_.empty()) return;
  if (lease.ended())
    for (auto& [id, its] : open_)
      if (std::ranges::find(its.turns_of, lease.id) != its.turns_of.end()) its.binding.reset();
  const auto found = open_.find(lease.id);
  if (found == open_.end() || state.queue.contains(lease.id)) return;
  close(found->second, now);
  open_.erase(found);
}

void StatedBounds::close(const Statement& its, Time now) {
  if (now <= its.earliest + in_time) return void(++sum_.kept);
  ++sum_.late;
  sum_.largest = std::max(sum_.largest, now - its.earliest);
  if (its.binding && now > *its.binding + in_time) ++sum_.broken;
}

Bounds StatedBounds::finish(Time now) {
  for (const auto& [id, its] : open_)
    if (now > its.earliest + in_time) close(its, now);
  return sum_;
}

}  // namespace sublet::simulate
