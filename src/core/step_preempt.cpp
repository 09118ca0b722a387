// SPDX-License-Identifier: Apache-2.0
// Preemption plans: victims are paused for a preemptor, the cheapest first and one after the other, and free memory
// there is reserved for it. Plans are not stored but made anew after each change. A plan that cannot be completed any
// more ends by itself, and its victims come back by their place in the queue.
#include "core/step_preempt.h"
#include "base/mutants.h"
#include "core/current_step.h"
#include "core/nominations.h"
#include "core/rank.h"
#include "core/step_ask.h"
#include "core/step_grant.h"
#include "core/step_obstacles.h"
#include "core/step_request.h"
#include "core/step_slices.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// A cancelled plan may let other leases start, and these may change the other plans. More often that is put off to the
// next step.
constexpr int rounds = 4;
// If more devices than this changed, all devices are examined anew, which takes no longer.
constexpr std::size_t few_changes = 8;
// If possible victims are on more devices than this, only the first of all waiters are preemptors: each step would take
// too long.
constexpr std::size_t most_spread = 64;

}  // namespace

static void pass_on(const Step& step, PreemptionPlan& preemption);
static std::vector<LeaseId> preemptors_in_order(const Step& step);
static bool goes_ahead(const Step& step, LeaseId preemptor, const PreemptionPlan& preemption);
static bool is_gone_on_with(const Step& step, const PreemptionPlan& preemption);
static bool room_stale(Step& step);
static bool change_matters(const Step& step, const std::vector<std::string>& changed);
static std::vector<Preemptor> list_preemptors(Step& step);
static void add_first_waiters(const Step& step, std::vector<QueueKey>& keys);
static void add_parked(const Step& step, std::vector<QueueKey>& keys);
static bool give_up(Step& step);
static void look_for_room(Step& step, const Lease& waiter);
static bool waits_for_reading(Step& step, const Lease& waiter);
static bool others_come_in_with(const Step& step, const Lease& waiter);
static VictimPlan plan_on_or_elsewhere(const Step& step, PreemptionQuery query);
static bool is_free(const Step& step, const Lease& waiter, const std::vector<std::string>& devices);
static bool yields_on_its_request(const Step& step, LeaseId preemptor, const std::vector<std::string>& devices);

// -------------------------------------------------------------------------------- what is to be done

void preempt(Step& step) {
  for (int round = 0; round < rounds && room_stale(step); ++round) {
    step.previous_plans = std::exchange(step.state.preemption.plans, {});
    for (PreemptionPlan& preemption : step.previous_plans) pass_on(step, preemption);
    step.state.preemption.slices.clear();
    step.state.preemption.look_at = Time::never();
    announce_slices_on_several(step);
    for (const LeaseId preemptor : preemptors_in_order(step)) look_for_room(step, *find(step, preemptor));
    leave_slice_groups(step);
    bool freed = give_up(step);
    const std::vector<PreemptionPlan> plans = step.state.preemption.plans;
    for (const PreemptionPlan& preemption : plans) freed |= advance(step, preemption);
    if (!freed) break;
    grant_waiting(step);
  }
}

// Once the lease for which a slice began has entered, the plan goes on for its beneficiaries.
static void pass_on(const Step& step, PreemptionPlan& preemption) {
  const Lease* preemptor = find(step.state, preemption.preemptor);
  const bool came_in =
      preemptor != nullptr && preemptor->reserves() && !step.state.queue.contains(preemption.preemptor);
  if (!preemption.by_slice || !preemption.started || !came_in) return;
  std::erase_if(preemption.beneficiaries, [&step](LeaseId id) { return !step.state.queue.contains(id); });
  if (preemption.beneficiaries.empty()) return;
  preemption.preemptor = preemption.beneficiaries.front();
  preemption.beneficiaries.erase(preemption.beneficiaries.begin());
}

// Preemptors in the order of the queue. A plan that began by request or slice goes on before preemptors begin that
// would not go ahead of it. Otherwise its victims would be paused for those preemptors, or for their own return.
static std::vector<LeaseId> preemptors_in_order(const Step& step) {
  std::vector<const PreemptionPlan*> gone_on_with;
  for (const PreemptionPlan& preemption : step.previous_plans)
    if (is_gone_on_with(step, preemption)) gone_on_with.push_back(&preemption);
  std::vector<LeaseId> found;
  std::set<LeaseId> known;
  const auto add = [&](LeaseId id) {
    if (known.insert(id).second) found.push_back(id);
  };
  for (const Preemptor& preemptor : step.state.preemption.preemptors.in_order()) {
    for (const PreemptionPlan* preemption : gone_on_with)
      if (!goes_ahead(step, preemptor.key.lease, *preemption)) add(preemption->preemptor);
    add(preemptor.key.lease);
  }
  return found;
}

// Before a victim was asked, its choice of victims does not matter: that depends on the preemptors ahead of it.
static bool goes_ahead(const Step& step, LeaseId preemptor, const PreemptionPlan& preemption) {
  const bool word = preemption.cause != Cause::request && step.state.preemption.requested.contains(preemptor);
  const Tier tier = preemption.started ? preemption.tier : find(step.state, preemption.preemptor)->tier;
  return word || outranks(find(step.state, preemptor)->tier, tier);
}

static bool is_gone_on_with(const Step& step, const PreemptionPlan& preemption) {
  if (preemption.cause == Cause::request) return step.state.preemption.requested.contains(preemption.preemptor);
  return preemption.by_slice && step.state.preemption.preemptors.contains(preemption.preemptor);
}

// The devices with memory reserved for a lease ahead of this waiter to which it would not give the memory back in time.
// No victim is paused there for it, except by request.
std::vector<std::string> barred_from(const Step& step, const Lease& waiter) {
  const QueueKey* key = step.state.queue.key(waiter.id);
  std::vector<std::string> devices;
  const bool leaves_again = waiter.pausable != Pausable::no;
  if (leaves_again || key == nullptr) return devices;
  const Nominations held(step.state, step.rules, step.now);
  for (const Nominations::Entry& entry : held.entries())
    if (entry.key.before(*key)) devices.insert(devices.end(), entry.room.devices.begin(), entry.room.devices.end());
  return devices;
}

// True if something changed that matters to plans: a device, the first waiters, or the time to look again.
static bool room_stale(Step& step) {
  std::vector<Preemptor> query = list_preemptors(step);
  reindex(step.state, step.rules, step.now);
  const bool time = step.state.preemption.look_at <= step.now;
  if (time) step.state.preemption.look_at = Time::never();
  const bool others = query != step.state.preemption.preemptors.in_order();
  const bool everything = std::exchange(step.state.preemption.stale, false) || time || others;
  const std::vector<std::string> changed = std::exchange(step.state.preemption.changed, {});
  if (!everything && !change_matters(step, changed)) return false;
  if (others) {
    std::vector<std::vector<std::string>> devices;
    for (const Preemptor& preemptor : query) {
      const Lease& lease = *find(step, preemptor.key.lease);
      devices.push_back(lease.waits_in_place() ? lease.devices : lease.wanted_devices);
    }
    step.state.preemption.preemptors = Preemptors(std::move(query), devices);
  }
  if (step.state.preemption.preemptors.empty())
    return !step.state.preemption.plans.empty() || !step.state.preemption.slice_groups.empty();
  return true;
}

// Without a plan in progress and without one found before, only the devices that changed can give a plan now.
static bool change_matters(const Step& step, const std::vector<std::string>& changed) {
  const bool in_progress =
      !step.state.preemption.plans.empty() || !step.state.preemption.slices.empty() || contested(step);
  if (in_progress || !step.state.preemption.requested.empty() || changed.size() > few_changes) return !changed.empty();
  return std::any_of(changed.begin(), changed.end(), [&step](const std::string& uuid) {
    const Device* device = find_device(step.state, uuid);
    return device != nullptr &&
           std::ranges::any_of(step.state.preemption.preemptors.in_order(), [&](const Preemptor& preemptor) {
             return might_make_room(step.state, step.rules, *find(step.state, preemptor.key.lease), *device, step.now);
           });
  });
}

// The preemptors: the first waiters, leases that wait to resume, and leases with a preemption request, wherever they
// stand.
static std::vector<Preemptor> list_preemptors(Step& step) {
  std::vector<QueueKey> by_rule;
  if (step.rules.automatic || mutant(Mutant::nothing_is_manual)) {
    add_first_waiters(step, by_rule);
    add_parked(step, by_rule);
  }
  std::vector<Preemptor> all;
  all.reserve(by_rule.size() + step.state.preemption.requested.size());
  for (const QueueKey& key : by_rule) all.push_back({key, true});
  std::erase_if(step.state.preemption.requested, [&](LeaseId id) {
    const QueueKey* key = step.state.queue.key(id);
    if (key != nullptr) all.push_back({*key, false});
    else if (Lease* lease = find(step, id)) keep_request(step, *lease);
    return key == nullptr;
  });
  std::sort(all.begin(), all.end(), [](const Preemptor& a, const Preemptor& b) {
    return a.key.lease == b.key.lease ? a.by_rule && !b.by_rule : a.key.before(b.key);
  });
  const auto same = [](const Preemptor& a, const Preemptor& b) { return a.key.lease == b.key.lease; };
  all.erase(std::unique(all.begin(), all.end(), same), all.end());
  return all;
}

// Adds the first waiters for each device, and for each number of devices: waiters for other things keep none of them
// out.
static void add_first_waiters(const Step& step, std::vector<QueueKey>& keys) {
  const Queue& queue = step.state.queue;
  queue.all().first(preemptors, keys);
  std::size_t devices = 0;
  for (const auto& where : step.state.devices.with_victims) devices += where.size();
  if (queue.size() <= preemptors || devices > most_spread) return;
  for (const auto& [count, tree] : queue.any()) tree.first(preemptors, keys);
  for (const auto& [among, tree] : queue.subsets()) tree.first(preemptors, keys);
  queue.sets().first(preemptors, keys);
  for (const auto& where : step.state.devices.with_victims)
    for (const std::string& device : where)
      if (const QueueTree* tree = queue.named(device)) tree->first(preemptors, keys);
}

static void add_parked(const Step& step, std::vector<QueueKey>& keys) {
  const Queue& queue = step.state.queue;
  for (const LeaseId id : step.state.pauses.away) {
    const QueueKey* key = queue.key(id);
    if (key == nullptr) continue;
    const std::vector<std::string>& devices = find(step.state, id)->devices;
    const QueueTree& tree = devices.size() > 1 ? queue.sets() : *queue.named(devices.front());
    if (step.state.pauses.away.size() <= parked_preemptors || tree.before(*key) < parked_preemptors)
      keys.push_back(*key);
  }
}

// Cancels the plans of preemptors that have no need of them any more, or no hope: their memory is free for all again.
static bool give_up(Step& step) {
  bool freed = false;
  for (const PreemptionPlan& old : step.previous_plans) {
    for (const std::string& device : old.devices) {
      if (const PreemptionPlan* now = plan_on(step.state, device);
          now != nullptr && now->preemptor == old.preemptor && !outranks(old.tier, now->tier))
        continue;
      if (!mutant(Mutant::kept_room_stays_kept)) step.state.devices.opened.push_back(device);
      freed = true;
    }
  }
  return freed;
}

static void look_for_room(Step& step, const Lease& waiter) {
  if (waits_for_reading(step, waiter)) return;
  const std::optional<PreemptionRequest>& preemption_request = waiter.preemption_request;
  if (!preemption_request && !may_have_victims(step.state, waiter.tier)) return note_obstacles(step, waiter);
  const PreemptionQuery query{waiter, preemption_request, /*lists_all=*/false};
  const VictimPlan plan = plan_on_or_elsewhere(step, query);
  // The memory comes by itself, or is there. Memory that other leases left for the preemptor stays reserved for it, or
  // they would take it back.
  const bool settles = std::ranges::any_of(plan.devices, [&step](const std::string& uuid) {
    return step.state.devices.by_uuid.at(uuid).settling > Bytes{};
  });
  const bool for_it =
      plan.in_progress || (settles && (started_for(step, waiter.id) != nullptr ||
                                       (preemption_request && yields_on_its_request(step, waiter.id, plan.devices))));
  if (plan.found && plan.victims.empty() && (!for_it || is_free(step, waiter, plan.devices))) return;
  const std::vector<std::string> barred = barred_from(step, waiter);
  const bool may =
      query.cause() == Cause::request ||
      std::find_first_of(plan.devices.begin(), plan.devices.end(), barred.begin(), barred.end()) == plan.devices.end();
  if (plan.found && plan.victims.empty() && others_come_in_with(step, waiter) && continue_slice(step, waiter)) return;
  if (plan.found && may) {
    // The slice goes on while its victims are being paused.
    const auto old = std::ranges::find_if(step.previous_plans, [&waiter](const PreemptionPlan& preemption) {
      return preemption.preemptor == waiter.id && preemption.by_slice;
    });
    const bool by_slice = !preemption_request && old != step.previous_plans.end();
    const Cause cause = by_slice && plan.victims.empty() ? Cause::slice : query.cause();
    begin_plan(step,
               {waiter.id, keeps_out(step, query, plan), cause, by_slice, /*started=*/false, plan.devices, plan.victims,
                by_slice && old->devices == plan.devices ? old->beneficiaries : std::vector<LeaseId>()});
    return;
  }
  note_obstacles(step, waiter);
  look_again_at(step, plan.again);
  for (const Ineligible& ineligible : plan.ineligible) look_again_at(step, ineligible.until);
  // A request whose victims cannot be paused any more takes no right away.
  if (may_ask(step.state, step.rules, waiter)) wait_for_slice(step, waiter, barred);
}

// No decision is made while the last reading of the plan's devices is too old; the plan so far is kept.
static bool waits_for_reading(Step& step, const Lease& waiter) {
  const PreemptionPlan* old = started_for(step, waiter.id);
  if (old == nullptr || !step.state.queue.contains(waiter.id)) return false;
  const auto is_late = [&step](const std::string& uuid) {
    const Device* device = find_device(step.state, uuid);
    return device != nullptr && !is_known(step.state, *device, step.rules, step.now) && device->problem.empty() &&
           !is_given_up(*device, step.rules, step.now);
  };
  if (std::ranges::none_of(old->devices, is_late)) return false;
  PreemptionPlan kept = *old;
  kept.victims.clear();
  return begin_plan(step, std::move(kept));
}

// The memory on its way is enough for the waiter, and not for the beneficiaries of the same time slice.
static bool others_come_in_with(const Step& step, const Lease& waiter) {
  const PreemptionPlan* old = started_for(step, waiter.id);
  if (old == nullptr || !old->by_slice || old->beneficiaries.empty()) return false;
  return std::ranges::any_of(old->devices, [&](const std::string& uuid) {
    Bytes need = need_on(step.state, waiter, uuid);
    for (const LeaseId id : old->beneficiaries)
      if (const Lease* other = find(step.state, id); other != nullptr && step.state.queue.contains(id))
        need += need_on(step.state, *other, uuid);
    const auto device = step.state.devices.by_uuid.find(uuid);
    return device != step.state.devices.by_uuid.end() &&
           may_grant_on(step.state, device->second, step.rules, step.now) &&
           free_on(step.state, device->second, step.rules, step.now) + device->second.settling +
                   being_yielded(step.state, device->second) <
               need;
  });
}

// A lease has one plan at a time.
const PreemptionPlan* started_for(const Step& step, LeaseId preemptor) {
  const auto found = std::ranges::find_if(step.previous_plans, [preemptor](const PreemptionPlan& preemption) {
    return preemption.preemptor == preemptor && preemption.started;
  });
  return found == step.previous_plans.end() ? nullptr : &*found;
}

// If victims were paused for it already, the plan goes on there, whatever another device would cost by now. Otherwise
// their pause would be for nothing.
static VictimPlan plan_on_or_elsewhere(const Step& step, PreemptionQuery query) {
  if (const PreemptionPlan* before = started_for(step, query.lease.id)) {
    query.on = before->devices;
    if (VictimPlan there = plan_victims(step.state, step.rules, query, step.now); there.found) return there;
    query.on.clear();
  }
  return plan_victims(step.state, step.rules, query, step.now);
}

// True if the memory is free. If the waiter does not get it, it is reserved for another lease, and no victim there is
// paused for this waiter.
static bool is_free(const Step& step, const Lease& waiter, const std::vector<std::string>& devices) {
  return std::all_of(devices.begin(), devices.end(), [&](const std::string& uuid) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    return may_grant_on(step.state, device, step.rules, step.now) &&
           free_on(step.state, device, step.rules, step.now) >= need_on(step.state, waiter, uuid);
  });
}

void look_again_at(Step& step, Time at) {
  if (at > step.now) step.state.preemption.look_at = std::min(step.state.preemption.look_at, at);
}

bool begin_plan(Step& step, PreemptionPlan preemption) {
  for (const std::string& device : preemption.devices)
    if (plan_on(step.state, device) != nullptr) return false;  // of one that stands before it
  const PreemptionPlan* old = started_for(step, preemption.preemptor);
  preemption.started =
      old != nullptr &&
      (old->by_slice ? preemption.by_slice : std::ranges::is_permutation(old->devices, preemption.devices));
  if (preemption.cause == Cause::request)
    preemption.started |= yields_on_its_request(step, preemption.preemptor, preemption.devices);
  step.state.preemption.plans.push_back(std::move(preemption));
  return true;
}

// True if a lease on these devices is pausing or paused for the preemptor. Such leases keep the request alive while no
// more victims are found.
static bool yields_on_its_request(const Step& step, LeaseId preemptor, const std::vector<std::string>& devices) {
  return std::ranges::any_of(devices, [&](const std::string& uuid) {
    return std::ranges::any_of(step.state.devices.by_uuid.at(uuid).leases, [&](LeaseId id) {
      const Lease& lease = *find(step.state, id);
      const bool away = lease.state == LeaseState::pausing || lease.state == LeaseState::paused;
      return away && step.state.leases.runtime.at(id).yields_for == preemptor;
    });
  });
}

}  // namespace sublet::core
