// SPDX-License-Identifier: Apache-2.0
// Time slices among leases of the same tier. Leases that leave for a slice are asked like victims for a higher tier
// (step_ask.cpp). Service time is counted while a lease waits for the device.
#include "core/step_slices.h"
#include "core/step_plan.h"
#include "core/step_preempt.h"
#include "core/victims.h"
#include "state/rank.h"
#include "state/reclaim.h"
#include "state/turns.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace sublet::core {

using Clock = std::set<std::string>;                         // devices whose slices end at the same time
constexpr Duration settling_look = std::chrono::seconds(1);  // between two looks at a slice that is not fixed yet

static std::vector<Clock> clocks_of(const Step& step, const std::vector<SliceWaiter>& waiters);
static void share_with(Step& step, const Clock& clock, const std::vector<SliceWaiter>& waiters,
                       const std::map<std::string, NextSlice>& before);
static std::optional<Time> join_group(Step& step, const SliceGroup& group,
                                      const std::map<std::string, NextSlice>& before);
static void set_rotation(Step& step, const Clock& clock, const SliceGroup& group, std::optional<Rotation> rotation);
static bool is_switching(const Step& step, const SliceGroup& group);
static bool is_free_before(const Step& step, const NextSlice& slice);
static bool take_slice(Step& step, const NextSlice& slice);
static void count_holders(Step& step);
static void count_service(Step& step);

SliceWaiter slice_waiter(const Step& step, const Lease& waiter, const std::vector<std::string>& barred) {
  const std::set<std::string>& with_victims = devices_with_victims(step.state, waiter.tier);
  const bool is_bound = waiter.waits_in_place() || !waiter.wanted_devices.empty();
  SliceWaiter its{waiter.id, is_bound ? std::set<std::string>() : with_victims};
  if (is_bound || devices_wanted(waiter) > 1)
    for (const Device* device : devices_for(step.state, waiter))
      if (devices_wanted(waiter) > 1 || with_victims.contains(device->reading.uuid))
        its.devices.insert(device->reading.uuid);
  std::erase_if(its.devices, [&](const std::string& uuid) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    return !may_use(waiter, uuid) || !may_grant_on(step.state, device, step.rules, step.now) ||
           std::ranges::find(barred, uuid) != barred.end();
  });
  return its;
}

// On a device with a plan, or with slices of a higher tier, no slice begins.
void share_devices(Step& step, std::vector<SliceWaiter> waiters) {
  const auto before = std::exchange(step.state.preemption.slices, {});
  count_holders(step);
  while (!waiters.empty()) {
    const Lease& first = *find(step, waiters.front().lease);
    const auto others = std::ranges::stable_partition(
        waiters, [&](const SliceWaiter& its) { return ranks_like(*find(step, its.lease), first); });
    std::vector<SliceWaiter> equals(waiters.begin(), others.begin());
    waiters.erase(waiters.begin(), others.begin());
    for (SliceWaiter& waiter : equals)
      std::erase_if(waiter.devices, [&step](const std::string& uuid) {
        return plan_on(step.state, uuid) != nullptr || step.state.preemption.slices.contains(uuid);
      });
    for (const Clock& clock : clocks_of(step, equals)) share_with(step, clock, equals, before);
  }
  count_service(step);
}

namespace {

// Sets of devices that grow together where they share one.
class JoinedDevices {
 public:
  explicit JoinedDevices(const State& state) : state_(state) {}

  // The names outlive this object.
  void join(const std::vector<const std::string*>& devices) {
    const std::size_t first = root(place(*devices.front()));
    for (const std::string* device : devices) parent_[root(place(*device))] = first;
    joined_[first] = ++joins_;
  }

  // The set that was joined last comes last.
  std::vector<Clock> all() {
    std::map<std::size_t, Clock> sets;
    for (std::size_t i = 0; i < names_.size(); ++i) sets[joined_[root(i)]].insert(*names_[i]);
    std::vector<Clock> clocks;
    clocks.reserve(sets.size());
    for (auto& [order, devices] : sets) clocks.push_back(std::move(devices));
    return clocks;
  }

 private:
  std::size_t place(const std::string& uuid) {
    const auto [at, is_new] = places_.try_emplace(state_.devices.by_uuid.at(uuid).number, names_.size());
    if (!is_new) return at->second;
    names_.push_back(&uuid);
    parent_.push_back(at->second);
    joined_.push_back(0);
    return at->second;
  }
  std::size_t root(std::size_t its) {
    while (parent_[its] != its) its = parent_[its] = parent_[parent_[its]];
    return its;
  }

  const State& state_;
  std::unordered_map<std::uint32_t, std::size_t> places_;  // by the number of the device
  std::vector<const std::string*> names_;
  std::vector<std::size_t> parent_;
  std::vector<std::size_t> joined_;  // of a root: how many joins there were up to its last
  std::size_t joins_ = 0;
};

std::vector<const std::string*> pointers_to(const auto& names) {
  std::vector<const std::string*> all;
  all.reserve(names.size());
  for (const std::string& name : names) all.push_back(&name);
  return all;
}

}  // namespace

// Devices are joined by a lease that is on several of them, and by a waiter that wants several.
static std::vector<Clock> clocks_of(const Step& step, const std::vector<SliceWaiter>& waiters) {
  JoinedDevices joined(step.state);
  Clock devices;
  for (const SliceWaiter& its : waiters) {
    devices.insert(its.devices.begin(), its.devices.end());
    if (devices_wanted(*find(step.state, its.lease)) > 1 && !its.devices.empty()) joined.join(pointers_to(its.devices));
  }
  for (const std::string& uuid : devices) {
    std::vector<const std::string*> together{&uuid};
    for (const LeaseId id : step.state.devices.by_uuid.at(uuid).leases) {
      const Lease& lease = *find(step.state, id);
      if (!ranks_like(lease, *find(step.state, waiters.front().lease)) || lease.state != LeaseState::active) continue;
      for (const std::string& other : lease.devices) together.push_back(&other);
    }
    joined.join(together);
  }
  return joined.all();
}

static void share_with(Step& step, const Clock& clock, const std::vector<SliceWaiter>& waiters,
                       const std::map<std::string, NextSlice>& before) {
  SliceGroup group{{clock.begin(), clock.end()}, {}};
  for (const SliceWaiter& waiter : waiters) {
    SliceWaiter here{waiter.lease, {}};
    std::ranges::copy_if(clock, std::inserter(here.devices, here.devices.end()),
                         [&waiter](const std::string& uuid) { return waiter.devices.contains(uuid); });
    if (!here.devices.empty() && plan_for(step.state, waiter.lease) == nullptr)
      group.waiters.push_back(std::move(here));
  }
  const auto ends = join_group(step, group, before);
  while (!group.waiters.empty()) {
    auto [slices, rotation] = next_slices(step.state, step.rules, group, ends, step.now);
    const auto free = std::ranges::find_if(slices, [&step](const NextSlice& its) { return is_free_before(step, its); });
    if (free != slices.end()) {
      std::erase_if(group.waiters, [&free](const SliceWaiter& its) { return its.lease == free->enters.front(); });
      continue;
    }
    if (slices.empty()) rotation.reset();
    if (rotation || !is_switching(step, group)) set_rotation(step, clock, group, std::move(rotation));
    for (const NextSlice& slice : slices) {
      if (slice.at <= step.now && take_slice(step, slice)) continue;
      look_again_at(step, slice.fixed ? slice.at : std::min(slice.at, step.now + settling_look));
      for (const std::string& uuid : slice.devices) step.state.preemption.slices.try_emplace(uuid, slice);
    }
    return;
  }
}

static void set_rotation(Step& step, const Clock& clock, const SliceGroup& group, std::optional<Rotation> rotation) {
  const Tier tier = find(step, group.waiters.front().lease)->tier;
  std::erase_if(step.state.preemption.rotations, [&](const Rotation& old) {
    return old.tier == tier && std::ranges::any_of(old.devices, [&](const auto& uuid) { return clock.contains(uuid); });
  });
  if (rotation) step.state.preemption.rotations.push_back(std::move(*rotation));
}

// A lease of the tier leaves or enters one of the devices: a rotation goes on meanwhile.
static bool is_switching(const Step& step, const SliceGroup& group) {
  const Lease& waiter = *find(step.state, group.waiters.front().lease);
  return std::ranges::any_of(group.devices, [&](const std::string& uuid) {
    return std::ranges::any_of(step.state.devices.by_uuid.at(uuid).leases, [&](LeaseId id) {
      const Lease& lease = *find(step.state, id);
      return ranks_like(lease, waiter) && (lease.state == LeaseState::pausing || lease.state == LeaseState::resuming ||
                                           lease.state == LeaseState::offered);
    });
  });
}

// The service time with which a lease joins these: beside those of its user, if there are any.
static Integral service_of_lease(const Step& step, const std::pair<std::string, Tier>& where,
                                 const Shares<LeaseId>& shares, LeaseId newcomer) {
  std::vector<std::pair<Integral, bool>> others, all;
  for (const LeaseId id : shares.keys()) {
    all.emplace_back(shares.of(id, step.now), shares.amount(id) == 0);
    if (account_of(step.state, id) == account_of(step.state, newcomer)) others.push_back(all.back());
  }
  if (others.empty()) return service_of_newcomer(all, 0);
  return service_of_newcomer(others, slice_on(step.state, where).count());
}

// The service time of all members counts from now on. Returns the end of the present slice, where it is fixed.
static std::optional<Time> join_group(Step& step, const SliceGroup& group,
                                      const std::map<std::string, NextSlice>& before) {
  std::optional<Time> ends;
  if (group.waiters.empty()) return ends;
  const Lease& waiter = *find(step, group.waiters.front().lease);
  for (const std::string& uuid : group.devices) {
    std::vector<LeaseId> members;
    for (const LeaseId id : step.state.devices.by_uuid.at(uuid).leases)
      if (const Lease& lease = *find(step, id); ranks_like(lease, waiter))
        if (may_leave(step.state, step.rules, waiter, lease, step.now)) members.push_back(id);
    if (members.empty()) continue;
    for (const SliceWaiter& its : group.waiters)
      if (its.devices.contains(uuid)) members.push_back(its.lease);
    auto& shares = step.state.preemption.slice_groups[{uuid, waiter.tier}];
    for (const LeaseId id : members)
      if (!shares.contains(id)) shares.start(id, service_of_lease(step, {uuid, waiter.tier}, shares, id), step.now);
    const auto its = before.find(uuid);
    if (its != before.end() && its->second.fixed && its->second.tier == waiter.tier)
      ends = std::max(ends.value_or(its->second.at), its->second.at);
  }
  return ends;
}

// True if the memory is free by itself before the slice, or so soon after it that the saved wait is shorter than the
// cost.
static bool is_free_before(const Step& step, const NextSlice& slice) {
  const Lease& waiter = *find(step.state, slice.enters.front());
  Duration price{};
  for (const Victim& victim : as_victims(step.state, step.rules, slice.leaves, waiter.uid, slice.devices, step.now))
    price += victim.cost;
  return std::ranges::all_of(slice.devices, [&](const std::string& uuid) {
    const auto by_itself =
        room_by_itself(step.state, step.rules, waiter, step.state.devices.by_uuid.at(uuid), step.now);
    return by_itself && *by_itself <= std::max(slice.at, step.now) + price;
  });
}

static bool take_slice(Step& step, const NextSlice& slice) {
  const Lease& waiter = *find(step, slice.enters.front());
  std::vector<LeaseId> enters = slice.enters;
  std::erase_if(enters, [&step](LeaseId id) { return plan_for(step.state, id) != nullptr; });
  if (enters.empty() || enters.front() != waiter.id) return false;
  auto victims = as_victims(step.state, step.rules, slice.leaves, waiter.uid, slice.devices, step.now);
  return propose(step, {.cause = Cause::slice,
                        .tier = waiter.tier,
                        .beneficiaries = std::move(enters),
                        .devices = slice.devices,
                        .victims = std::move(victims)});
}

// The end of a slice follows from the service of the leases that hold the devices now.
static void count_holders(Step& step) {
  for (auto& [where, group] : step.state.preemption.slice_groups) {
    const std::vector<LeaseId> members = group.keys();
    count_holders(step.state, where, members, step.now);
    for (const LeaseId id : members) {
      const Lease* lease = find(step, id);
      group.hold(id, lease != nullptr && lease->state == LeaseState::active ? 1 : 0, step.now);
    }
  }
}

// All service times are kept while a member of the group waits, whatever lease leaves or enters meanwhile.
static void count_service(Step& step) {
  for (auto& [where, group] : step.state.preemption.slice_groups) {
    const std::string& uuid = where.first;
    const Device* device = find_device(step.state, uuid);
    const auto has_left = [&step, &uuid, device](LeaseId id) {
      const Lease* lease = find(step, id);
      if (device == nullptr || lease == nullptr || lease->ended()) return true;
      if (step.state.queue.contains(id)) return !may_use(*lease, uuid);
      return !lease->reserves() || !device->leases.contains(id);
    };
    group.erase_if(has_left);
    const std::vector<LeaseId> members = group.keys();
    if (std::ranges::none_of(members, [&step](LeaseId id) { return step.state.queue.contains(id); })) {
      group = Shares<LeaseId>();
      step.state.preemption.turns.erase(where);
      continue;
    }
    count_turns(step.state, where, members, step.now);
    for (const LeaseId id : members) group.hold(id, find(step, id)->state == LeaseState::active ? 1 : 0, step.now);
  }
  std::erase_if(step.state.preemption.slice_groups, [](const auto& of) { return of.second.keys().empty(); });
  std::erase_if(step.state.preemption.rotations, [&step](const Rotation& its) {
    return std::ranges::none_of(its.devices, [&](const std::string& uuid) {
      return step.state.preemption.slice_groups.contains({uuid, its.tier});
    });
  });
}

// True if a lease on one of these devices is leaving.
bool somebody_yields(const Step& step, const std::vector<std::string>& devices) {
  return std::ranges::any_of(devices, [&step](const std::string& uuid) {
    return std::ranges::any_of(step.state.devices.by_uuid.at(uuid).leases, [&step](LeaseId id) {
      return is_leaving(step.state, *find(step.state, id)) && !is_given_back(step.state, id);
    });
  });
}

// True if any member of a slice group has its memory: else all of them only wait.
bool contested(const Step& step) {
  return std::ranges::any_of(step.state.preemption.slice_groups, [&step](const auto& of) {
    return std::ranges::any_of(of.second.keys(), [&step](LeaseId id) {
      const Lease* lease = find(step.state, id);
      return lease == nullptr || lease->reserves();
    });
  });
}

}  // namespace sublet::core
