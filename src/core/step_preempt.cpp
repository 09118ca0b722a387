// SPDX-License-Identifier: Apache-2.0
// Preemption: looks for victims for the waiters that have no plan yet, and has the plans carried out. See step_plan.cpp
// for the life of a plan.
#include "core/step_preempt.h"
#include "base/mutants.h"
#include "core/current_step.h"
#include "core/step_ask.h"
#include "core/step_grant.h"
#include "core/step_obstacles.h"
#include "core/step_plan.h"
#include "core/step_request.h"
#include "core/step_slices.h"
#include "core/victims.h"
#include "state/nominations.h"
#include "state/rank.h"

#include <algorithm>

namespace sublet::core {
namespace {

// A cancelled plan may let other leases start, and these may change the other plans. More often that is put off to the
// next step.
constexpr int rounds = 4;
// If more devices than this changed, all devices are examined anew, which takes no longer.
constexpr std::size_t few_changes = 8;
// If possible victims are on more devices than this, only the first of all waiters are preemptors: each step would take
// too long.
constexpr std::size_t most_spread = 64;

}  // namespace

static bool is_stale(Step& step);
static bool change_matters(const Step& step, const std::vector<std::string>& changed);
static std::vector<Preemptor> list_preemptors(Step& step);
static void add_first_waiters(const Step& step, std::vector<QueueKey>& keys);
static void add_parked(const Step& step, std::vector<QueueKey>& keys);
static bool open_devices(Step& step, const std::vector<PreemptionPlan>& before);
static void look_for_victims(Step& step, const Lease& waiter, std::vector<SliceWaiter>& slice_waiters);
static bool is_free(const Step& step, const Lease& waiter, const std::vector<std::string>& devices);

void preempt(Step& step) {
  Preemption& all = step.state.preemption;
  for (int round = 0; round < rounds && is_stale(step); ++round) {
    const std::vector<PreemptionPlan> before = all.plans;
    all.look_at = Time::never();
    review_plans(step);
    std::vector<SliceWaiter> waiters;
    for (const Preemptor& preemptor : all.preemptors.in_order()) {
      const LeaseId waiter = preemptor.key.lease;
      if (plan_for(step.state, waiter) == nullptr) look_for_victims(step, *find(step, waiter), waiters);
    }
    share_devices(step, std::move(waiters));
    bool freed = open_devices(step, before);
    const std::vector<PreemptionPlan> plans = all.plans;
    for (const PreemptionPlan& plan : plans) freed |= advance(step, plan);
    if (!freed) break;
    grant_waiting(step);
  }
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
static bool is_stale(Step& step) {
  reindex(step.state, step.rules, step.now);
  std::vector<Preemptor> query = list_preemptors(step);
  const bool time = step.state.preemption.look_at <= step.now;
  if (time) step.state.preemption.look_at = Time::never();
  const bool others = query != step.state.preemption.preemptors.in_order();
  const bool everything = std::exchange(step.state.preemption.stale, false) || time || others;
  const std::vector<std::string> changed = std::exchange(step.state.preemption.changed, {});
  if (!everything && !change_matters(step, changed)) return false;
  if (others) step.state.preemption.preemptors = Preemptors(std::move(query));
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
  const bool automatic = step.rules.automatic || mutant(Mutant::nothing_is_manual);
  if (automatic || !step.state.preemption.reclaimable.empty()) {
    add_first_waiters(step, by_rule);
    add_parked(step, by_rule);
  }
  std::vector<Preemptor> all;
  all.reserve(by_rule.size() + step.state.preemption.requested.size());
  for (const QueueKey& key : by_rule) all.push_back({key, automatic});
  std::erase_if(step.state.preemption.requested, [&](LeaseId id) {
    const QueueKey* key = step.state.queue.key(id);
    if (key != nullptr) all.push_back({*key, false});
    else if (Lease* lease = find(step, id)) keep_request(step, *lease);
    return key == nullptr;
  });
  std::erase_if(all, [](const Preemptor& its) { return its.key.limited; });
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

// Adds the paused leases beside which others could leave, by their tier or as reclaimable ones.
static void add_parked(const Step& step, std::vector<QueueKey>& keys) {
  const Queue& queue = step.state.queue;
  const auto add_on = [&](const std::string& uuid) {
    const auto device = step.state.devices.by_uuid.find(uuid);
    if (device == step.state.devices.by_uuid.end()) return;  // no reading had it since the start
    for (const LeaseId id : device->second.leases) {
      const Lease& lease = *find(step.state, id);
      const QueueKey* key = lease.state == LeaseState::paused ? queue.key(id) : nullptr;
      if (key == nullptr) continue;
      const QueueTree& tree = lease.devices.size() > 1 ? queue.sets() : *queue.named(lease.devices.front());
      if (step.state.pauses.away.size() <= parked_preemptors || tree.before(*key) < parked_preemptors)
        keys.push_back(*key);
    }
  };
  std::ranges::for_each(step.state.devices.with_paused_above, add_on);
  for (const auto& [id, terms] : step.state.preemption.reclaimable)
    std::ranges::for_each(find(step.state, id)->devices, add_on);
}

// Memory that was reserved by a plan is free for all again.
static bool open_devices(Step& step, const std::vector<PreemptionPlan>& before) {
  bool freed = false;
  for (const PreemptionPlan& old : before) {
    for (const std::string& device : old.devices) {
      if (const PreemptionPlan* now = plan_on(step.state, device);
          now != nullptr && std::ranges::all_of(old.beneficiaries, [now](LeaseId id) { return now->has(id); }) &&
          old.cause != Cause::quota && !outranks(old.tier, now->tier))
        continue;
      if (!mutant(Mutant::kept_room_stays_kept)) step.state.devices.opened.push_back(device);
      freed = true;
    }
  }
  return freed;
}

PreemptionQuery query_of(const Step& step, const Lease& waiter) {
  const bool by_rules = waiter.preemption_request || may_ask(step.state, step.rules, waiter);
  return within_quota(
      step.state,
      {.lease = waiter, .preemption_request = waiter.preemption_request, .lists_all = false, .by_rules = by_rules});
}

static void look_for_victims(Step& step, const Lease& waiter, std::vector<SliceWaiter>& slice_waiters) {
  const std::optional<PreemptionRequest>& request = waiter.preemption_request;
  if (!request && !may_have_victims(step.state, waiter.tier) && step.state.preemption.reclaimable.empty())
    return note_obstacles(step, waiter);
  const PreemptionQuery query = query_of(step, waiter);
  const VictimPlan plan = plan_victims(step.state, step.rules, query, step.now);
  // Without victims, the memory is there or comes by itself. Memory that other leases are about to leave is reserved.
  if (plan.found && plan.victims.empty() && (!plan.in_progress || is_free(step, waiter, plan.devices))) return;
  const std::vector<std::string> barred = barred_from(step, waiter);
  const bool may =
      query.cause() == Cause::request ||
      std::find_first_of(plan.devices.begin(), plan.devices.end(), barred.begin(), barred.end()) == plan.devices.end();
  if (plan.found && may) {
    propose(step, {.cause = plan.reclaims ? Cause::reclaim : query.cause(),
                   .tier = keeps_out(step, query, plan),
                   .beneficiaries = {waiter.id},
                   .devices = plan.devices,
                   .victims = plan.victims});
    return;
  }
  note_obstacles(step, waiter);
  look_again_at(step, plan.again);
  for (const Ineligible& ineligible : plan.ineligible) look_again_at(step, ineligible.until);
  // A request whose victims cannot be paused any more takes no right away. Without one, no lease enters for a time
  // slice that could not leave after it.
  const bool leaves = waiter.pausable != Pausable::no || request;
  if (leaves && may_ask(step.state, step.rules, waiter)) slice_waiters.push_back(slice_waiter(step, waiter, barred));
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

}  // namespace sublet::core
