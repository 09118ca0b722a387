// SPDX-License-Identifier: Apache-2.0
// The life of a preemption plan. A waiter that finds victims proposes a plan. With the first victim that is asked the
// plan gets an id, is stored, and lasts: its devices belong to it, and memory that becomes free there is reserved for
// its beneficiaries. It is over once they have their memory, wait no longer, or the plan is cancelled. Its victims wait
// to resume from the moment they are asked.
#include "core/step_plan.h"
#include "core/slices.h"
#include "core/step_preempt.h"
#include "core/step_request.h"
#include "core/step_slices.h"
#include "core/victims.h"
#include "state/format.h"
#include "state/methods.h"
#include "state/rank.h"
#include "state/tenant_rights.h"

#include "base/mutants.h"

#include <algorithm>

namespace sublet::core {
namespace {

std::string_view to_string(PlanEnd why) {
  switch (why) {
    case PlanEnd::unwanted: return "unwanted";
    case PlanEnd::out_of_service: return "out_of_service";
    case PlanEnd::no_victims: return "no_victims";
    case PlanEnd::stalled: return "stalled";
    case PlanEnd::outranked: break;
  }
  return "outranked";
}

bool is_on(const PreemptionPlan& plan, std::string_view device) {
  return std::ranges::find(plan.devices, device) != plan.devices.end();
}

}  // namespace

static std::optional<PlanEnd> review(Step& step, PreemptionPlan& plan);
static bool is_wanted(const Step& step, const PreemptionPlan& plan);
static std::optional<PlanEnd> choose_again(Step& step, PreemptionPlan& plan);
static std::optional<PlanEnd> keep_slice(Step& step, PreemptionPlan& plan);
static std::optional<PlanEnd> wait_for_victims(Step& step, PreemptionPlan& plan, bool later);
static void cancel(Step& step, const PreemptionPlan& plan, PlanEnd why);

void review_plans(Step& step) {
  std::vector<PreemptionPlan>& plans = step.state.preemption.plans;
  std::erase_if(plans, [](const PreemptionPlan& plan) { return plan.phase() == PreemptionPlan::Phase::proposed; });
  for (std::size_t i = 0; i < plans.size();) {
    PreemptionPlan& plan = plans[i];
    const LeaseId preemptor = plan.preemptor();
    std::erase_if(plan.beneficiaries, [&step](LeaseId id) { return !step.state.queue.contains(id); });
    const bool over = plan.beneficiaries.empty();
    if (over) plan.beneficiaries = {preemptor};
    const auto why = over ? std::nullopt : review(step, plan);
    if (why) cancel(step, plan, *why);
    if (over || why) plans.erase(plans.begin() + static_cast<std::ptrdiff_t>(i));
    else ++i;
  }
}

// Nothing: the plan goes on.
static std::optional<PlanEnd> review(Step& step, PreemptionPlan& plan) {
  if (!is_wanted(step, plan)) return PlanEnd::unwanted;
  if (waits_for_reading(step, plan)) return std::nullopt;
  for (const std::string& uuid : plan.devices) {
    const Device* device = find_device(step.state, uuid);
    if (device == nullptr || !may_grant_on(step.state, *device, step.rules, step.now)) return PlanEnd::out_of_service;
  }
  if (somebody_yields(step, plan.devices)) plan.moved_at = step.now;
  return plan.cause == Cause::slice ? keep_slice(step, plan) : choose_again(step, plan);
}

static bool is_wanted(const Step& step, const PreemptionPlan& plan) {
  const Lease& waiter = *find(step.state, plan.preemptor());
  const bool requested = step.state.preemption.requested.contains(waiter.id);
  if (step.state.queue.key(waiter.id)->limited) return false;
  if (plan.cause == Cause::request && !requested) return false;
  const bool by_rule = step.rules.automatic || mutant(Mutant::nothing_is_manual);
  if (plan.cause != Cause::request && plan.cause != Cause::reclaim && !by_rule && !requested) return false;
  return devices_wanted(waiter) == plan.devices.size() &&
         std::ranges::all_of(plan.devices, [&waiter](const std::string& uuid) { return may_use(waiter, uuid); });
}

bool waits_for_reading(const Step& step, const PreemptionPlan& plan) {
  return std::ranges::any_of(plan.devices, [&step](const std::string& uuid) {
    const Device* device = find_device(step.state, uuid);
    const bool late = device != nullptr && !is_known(step.state, *device, step.rules, step.now);
    return late && (device->problem.empty() || !device->read_at) && !is_given_up(*device, step.rules, step.now);
  });
}

// The bytes that the beneficiaries lack on the device once all pauses in progress are done; 0 or less: nothing.
static Bytes lacking_for(const Step& step, const PreemptionPlan& plan, const Device& device) {
  Bytes need;
  for (const LeaseId id : plan.beneficiaries) need += need_on(step.state, *find(step.state, id), device.reading.uuid);
  return need - free_on(step.state, device, step.rules, step.now) - device.settling - being_yielded(step.state, device);
}

// The cheapest victims on the same devices, as things are now: whatever another device would cost, the victims that
// were paused already would have been paused for nothing.
static std::optional<PlanEnd> choose_again(Step& step, PreemptionPlan& plan) {
  const Lease& waiter = *find(step, plan.preemptor());
  PreemptionQuery query = query_of(step, waiter);
  query.on = plan.devices;
  const VictimPlan found = plan_victims(step.state, step.rules, query, step.now);
  const bool sooner = found.no_victims.code == NoVictims::Code::free_sooner;
  plan.victims = found.victims;
  if (found.found || sooner) plan.moved_at = step.now;
  if (found.found) {
    if (!found.victims.empty()) plan.cause = found.reclaims ? Cause::reclaim : query.cause();
    plan.tier = keeps_out(step, query, found);
    return std::nullopt;
  }
  look_again_at(step, found.again);
  if (sooner) return std::nullopt;
  for (const Ineligible& ineligible : found.ineligible) look_again_at(step, ineligible.until);
  query.patient = true;
  return wait_for_victims(step, plan, plan_victims(step.state, step.rules, query, step.now).found);
}

// A slice that has begun keeps its victims: service times change all the time. If they are not enough any more, the
// last beneficiaries wait for another slice.
static std::optional<PlanEnd> keep_slice(Step& step, PreemptionPlan& plan) {
  const auto enough = [&](const std::vector<LeaseId>& leaves) {
    const Lease& waiter = *find(step, plan.preemptor());
    return std::ranges::all_of(plan.devices, [&](const std::string& uuid) {
      Bytes gain;
      for (const Victim& its : as_victims(step.state, step.rules, leaves, waiter.uid, {uuid}, step.now))
        gain += its.gain;
      return gain >= lacking_for(step, plan, step.state.devices.by_uuid.at(uuid));
    });
  };
  const Lease& waiter = *find(step, plan.preemptor());
  bool later = false;
  std::vector<LeaseId> leaves;
  const auto consider = [&](LeaseId id) {
    const Lease* lease = find(step.state, id);
    if (lease == nullptr || lease->stop_requested || std::ranges::find(leaves, id) != leaves.end()) return;
    if (lease->state != LeaseState::active && !does_not_go_on(step.state, step.rules, *lease, step.now)) return;
    const WayToYield way = way_to_yield(step.state, step.rules, *lease, waiter.uid, step.now);
    if (is_protected(step.state, *lease) && !step.state.queue.key(waiter.id)->guaranteed) return;
    const bool may_end = way.ends() && outranks(waiter, *lease);
    if (!way.parks() && !may_end) return;
    const Time from = standing_of(step.state, id).ineligible_until;
    if (step.now >= from) return leaves.push_back(id);
    later = true;
    look_again_at(step, from);
  };
  for (const Victim& victim : plan.victims) consider(victim.lease);
  for (const LeaseId id : plan.asked) consider(id);  // its pause came to nothing, and may be tried again
  const std::vector<Victim> left = std::exchange(plan.victims, {});
  if (enough({})) {
    plan.moved_at = step.now;
    return std::nullopt;
  }
  while (!enough(leaves) && plan.beneficiaries.size() > 1) plan.beneficiaries.pop_back();
  if (enough(leaves)) plan.victims = as_victims(step.state, step.rules, leaves, waiter.uid, plan.devices, step.now);
  else if (const auto why = wait_for_victims(step, plan, later)) return why;
  else plan.victims = left;
  return std::nullopt;
}

// None of the victims that are left may be paused now. The plan waits for them only if another victim left already.
// `later`: they may be paused, if nothing else changes.
static std::optional<PlanEnd> wait_for_victims(Step& step, PreemptionPlan& plan, bool later) {
  const bool freed = std::ranges::any_of(plan.asked, [&step](LeaseId id) {
    const Lease* victim = find(step.state, id);
    return victim == nullptr || victim->ended() || victim->state == LeaseState::paused;
  });
  if (!later || !freed) return PlanEnd::no_victims;
  const Time until = plan.moved_at + longest_stall;
  look_again_at(step, until);
  return step.now < until ? std::nullopt : std::optional(PlanEnd::stalled);
}

bool propose(Step& step, PreemptionPlan plan) {
  std::vector<PreemptionPlan>& plans = step.state.preemption.plans;
  const Lease& waiter = *find(step, plan.preemptor());
  const bool requested = plan.cause == Cause::reclaim && waiter.preemption_request;
  const auto shares_a_device = [&plan](const PreemptionPlan& other) {
    return std::ranges::any_of(plan.devices, [&other](const std::string& uuid) { return is_on(other, uuid); });
  };
  if (std::ranges::any_of(plans, [&](const PreemptionPlan& other) {
        return shares_a_device(other) &&
               !may_displace(step.state, waiter, requested ? Cause::request : plan.cause, other);
      }))
    return false;
  for (const PreemptionPlan& other : plans)
    if (shares_a_device(other)) cancel(step, other, PlanEnd::outranked);
  std::erase_if(plans, shares_a_device);
  plans.push_back(std::move(plan));
  return true;
}

void note_victim_asked(Step& step, const PreemptionPlan& plan, LeaseId victim) {
  for (PreemptionPlan& its : step.state.preemption.plans) {
    if (its.devices != plan.devices) continue;
    if (its.id == 0) its.id = ++step.state.preemption.last_plan;
    if (std::ranges::find(its.asked, victim) == its.asked.end()) its.asked.push_back(victim);
    its.moved_at = step.now;
  }
}

static PlanRecord record_of(const PreemptionPlan& plan) {
  PlanRecord record{plan.id, plan.cause, plan.tier, plan.beneficiaries, plan.devices, {}, plan.asked};
  for (const Victim& victim : plan.victims) record.victims.push_back(victim.lease);
  std::ranges::sort(record.victims);  // their costs change all the time, and their order with them
  return record;
}

void store_plans(Step& step) {
  auto& stored = step.state.preemption.stored;
  const std::vector<PreemptionPlan>& plans = step.state.preemption.plans;
  for (const PreemptionPlan& plan : plans) {
    if (plan.id == 0) continue;
    PlanRecord record = record_of(plan);
    const auto [its, is_new] = stored.try_emplace(plan.id);
    if (!is_new && its->second == record) continue;
    its->second = record;
    step.plan.preemptions.push_back({std::move(record), false});
  }
  std::erase_if(stored, [&](const auto& its) {
    const bool over = std::ranges::find(plans, its.first, &PreemptionPlan::id) == plans.end();
    if (over) step.plan.preemptions.push_back({its.second, true});
    return over;
  });
  if (!step.plan.preemptions.empty()) note(step, "plan_changed");
}

// The waiter is told, if it waits on.
static void cancel(Step& step, const PreemptionPlan& plan, PlanEnd why) {
  if (plan.id == 0) return;
  const Lease& waiter = *find(step, plan.preemptor());
  explain(step, waiter, ReasonKind::preemption_cancelled,
          args(to_string(why), true, "devices", device_names(step.state, plan.devices)));
}

}  // namespace sublet::core
