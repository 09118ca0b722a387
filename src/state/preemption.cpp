// SPDX-License-Identifier: Apache-2.0
// Plans, requests, and how leases stand as victims.
#include "state/preemption.h"

#include "state/rank.h"
#include "state/state.h"

#include <algorithm>
#include <iterator>

namespace sublet::core {

Standing standing_of(const State& state, LeaseId id) {
  const auto lease = state.leases.by_id.find(id);
  const auto found = state.leases.runtime.find(id);
  if (lease == state.leases.by_id.end() || found == state.leases.runtime.end()) return {};
  const LeaseRuntime& runtime = found->second;
  const Lease& its = lease->second;
  const Time given_at = its.preemption_request ? its.preemption_request->given_at.value_or(Time{}) : Time{};
  const Time came_back = std::max({runtime.restored_at, its.granted_at.value_or(Time{}), given_at, runtime.settled_in});
  return {runtime.restored_at,
          came_back,
          runtime.used_until,
          runtime.tried_at,
          runtime.left_alone ? runtime.left_alone->until : Time{},
          runtime.failures,
          runtime.attempt ? runtime.attempt->next : std::nullopt,
          runtime.parked,
          runtime.silent_since};
}

const Obstacle* last_obstacle(const State& state, LeaseId id) {
  const auto found = state.leases.runtime.find(id);
  return found != state.leases.runtime.end() && found->second.left_alone ? &*found->second.left_alone : nullptr;
}

const Obstacle* bar_of(const State& state, LeaseId id, PauseMethod method, Time now) {
  const auto holds = [&](const std::optional<Obstacle>& its) {
    return its && now < its->until && (its->kind().scope == ObstacleScope::lease || method == PauseMethod::driver);
  };
  const auto found = state.leases.runtime.find(id);
  if (found != state.leases.runtime.end() && holds(found->second.obstacle)) return &*found->second.obstacle;
  // A spot lease is ended for this obstacle, so that the result for another lease does not count: it is asked itself
  // first.
  const Lease* lease = find(state, id);
  const bool may_be_ended = lease != nullptr && lease->tier == Tier::spot;
  return !may_be_ended && holds(state.pauses.obstacle) ? &*state.pauses.obstacle : nullptr;
}

const PreemptionPlan* plan_on(const State& state, std::string_view device) {
  for (const PreemptionPlan& plan : state.preemption.plans)
    if (std::find(plan.devices.begin(), plan.devices.end(), device) != plan.devices.end()) return &plan;
  return nullptr;
}

const PreemptionPlan* plan_for(const State& state, LeaseId beneficiary) {
  const auto found = std::ranges::find_if(state.preemption.plans,
                                          [beneficiary](const PreemptionPlan& plan) { return plan.has(beneficiary); });
  return found == state.preemption.plans.end() ? nullptr : &*found;
}

void restore_plans(State& state, std::vector<PlanRecord> records, Time now) {
  Preemption& all = state.preemption;
  for (PlanRecord& record : records) {
    all.last_plan = std::max(all.last_plan, record.id);
    for (const std::string& uuid : record.devices) device_entry(state, uuid);
    const auto waits = [&state](LeaseId id) { return state.queue.contains(id); };
    const bool apart = std::ranges::none_of(
        record.devices, [&state](const std::string& uuid) { return plan_on(state, uuid) != nullptr; });
    if (apart && std::ranges::any_of(record.beneficiaries, waits)) {
      PreemptionPlan plan{.id = record.id,
                          .cause = record.cause,
                          .tier = record.tier,
                          .beneficiaries = {},
                          .devices = record.devices,
                          .victims = {},
                          .asked = record.asked,
                          .moved_at = now};
      std::ranges::copy_if(record.beneficiaries, std::back_inserter(plan.beneficiaries), waits);
      for (const LeaseId id : record.victims)
        if (find(state, id) != nullptr) plan.victims.emplace_back().lease = id;
      all.plans.push_back(std::move(plan));
    }
    all.stored.insert_or_assign(record.id, std::move(record));
  }
}

bool goes_before(const State& state, const Lease& waiter, const PreemptionPlan& plan) {
  const QueueKey *own = state.queue.key(waiter.id), *other = state.queue.key(plan.preemptor());
  const bool guaranteed = own != nullptr && own->guaranteed;
  const bool for_quota = plan.cause == Cause::quota || (other != nullptr && other->guaranteed);
  return guaranteed != for_quota ? guaranteed : outranks(waiter.tier, plan.tier);
}

// A request goes before the time slices of equals.
bool may_displace(const State& state, const Lease& waiter, Cause cause, const PreemptionPlan& plan) {
  return goes_before(state, waiter, plan) || (cause == Cause::request && plan.cause == Cause::slice);
}

std::optional<PreemptionRequest> request_of(const State& state, LeaseId waiter) {
  const Lease* lease = find(state, waiter);
  return lease == nullptr || !state.preemption.requested.contains(waiter) ? std::nullopt : lease->preemption_request;
}

}  // namespace sublet::core
