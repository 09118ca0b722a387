// SPDX-License-Identifier: Apache-2.0
// Time slices among leases of the same tier. Leases that leave for a slice are asked like victims for a higher tier
// (step_preempt.cpp). Service time is counted for as long as there is another lease to share with.
#include "core/step_slices.h"
#include "core/current_step.h"
#include "core/format.h"
#include "core/methods.h"
#include "core/rank.h"
#include "core/slices.h"
#include "core/step_plan.h"
#include "core/step_preempt.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {

static std::vector<LeaseId> wanting_several(const Step& step);
static std::optional<NextSlice> slice_on(Step& step, const Lease& waiter, const Device& device,
                                         const std::vector<std::string>& barred);
static std::optional<NextSlice> slice_on_several(Step& step, const Lease& waiter,
                                                 const std::vector<std::string>& barred);
static bool comes_before(const Step& step, const Lease& waiter, const NextSlice& slice);
static bool take_slice(Step& step, const Lease& waiter, const NextSlice& slice);
static void join_slice_group(Step& step, const Device& device, const SliceGroup& slice_group);
static void count_time(Step& step, LeaseId id, ServiceTime& service);
static bool contends(const Step& step, LeaseId id, const Device& device);

void wait_for_slice(Step& step, const Lease& waiter, const std::vector<std::string>& barred) {
  if (devices_wanted(waiter) > 1) {
    const auto its = std::find_if(
        step.state.preemption.slices.begin(), step.state.preemption.slices.end(),
        [&](const auto& on) { return on.second.devices.size() > 1 && on.second.enters.front() == waiter.id; });
    if (its != step.state.preemption.slices.end() && its->second.at <= step.now) take_slice(step, waiter, its->second);
    return;
  }
  for (const std::string& uuid : devices_with_victims(step.state, waiter.tier)) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    const auto known = step.state.preemption.slices.find(uuid);
    if (known != step.state.preemption.slices.end() && known->second.devices.size() > 1)
      continue;  // that one comes before
    auto slice = slice_on(step, waiter, device, barred);
    if (!slice || !among_equals(step.state, waiter, *slice) || comes_before(step, waiter, *slice)) continue;
    slice->said = announced_at(step.state, step.rules, waiter, *slice, step.now);
    if (slice->at <= step.now) {
      if (take_slice(step, waiter, *slice)) return;
      continue;
    }
    look_again_at(step, slice->at);
    if (known != step.state.preemption.slices.end() && slice->at >= known->second.at) continue;
    step.state.preemption.slices[uuid] = std::move(*slice);
  }
}

// Slices on several devices are found first, and no other slice begins there before. On each device other slices end at
// their own times, and a lease that waits for all devices would never get a slice.
void announce_slices_on_several(Step& step) {
  for (const LeaseId id : wanting_several(step)) {
    const Lease& waiter = *find(step, id);
    if (plan_victims(step.state, step.rules, PreemptionQuery{waiter, waiter.preemption_request, /*told=*/false},
                     step.now)
            .found)
      continue;
    auto slice = slice_on_several(step, waiter, barred_from(step, waiter));
    if (!slice || comes_before(step, waiter, *slice)) continue;
    slice->said = announced_at(step.state, step.rules, waiter, *slice, step.now);
    if (slice->at > step.now) look_again_at(step, slice->at);
    for (const std::string& uuid : slice->devices) step.state.preemption.slices[uuid] = *slice;
  }
}

// Order: the least service time on the device where it is most, then the higher priority.
static std::vector<LeaseId> wanting_several(const Step& step) {
  struct Waiter {
    Duration had;
    int priority;
    LeaseId id;
  };
  std::vector<Waiter> waiters;
  for (const Preemptor& preemptor : step.state.preemption.preemptors.in_order()) {
    const Lease& lease = *find(step.state, preemptor.key.lease);
    const bool might = devices_wanted(lease) > 1 && may_have_victims(step.state, lease.tier) &&
                       plan_for(step.state, lease.id) == nullptr;
    if (!might || !may_ask(step.state, step.rules, lease)) continue;
    Waiter waiter{{}, lease.priority, lease.id};
    for (const Device* device : devices_for(step.state, lease))
      waiter.had = std::max(waiter.had, service_time(step.state, lease.id, device->reading.uuid));
    waiters.push_back(waiter);
  }
  std::stable_sort(waiters.begin(), waiters.end(), [](const Waiter& a, const Waiter& b) {
    return a.had != b.had ? a.had < b.had : a.priority > b.priority;
  });
  std::vector<LeaseId> ids;
  for (const Waiter& waiter : waiters) ids.push_back(waiter.id);
  return ids;
}

// The next slice on one device; none while its slice group is not known, or the waiter may not have one there.
static std::optional<NextSlice> slice_on(Step& step, const Lease& waiter, const Device& device,
                                         const std::vector<std::string>& barred) {
  const std::string& uuid = device.reading.uuid;
  if (!may_use(waiter, uuid) || !may_grant_on(step.state, device, step.rules, step.now)) return std::nullopt;
  if (std::find(barred.begin(), barred.end(), uuid) != barred.end()) return std::nullopt;
  SliceGroup slice_group = slice_group_on(step.state, step.rules, waiter, device, step.now);
  if (!slice_group.residents.empty()) join_slice_group(step, device, slice_group);
  // No lease is paused for these waiters there, so they take no slice from others.
  std::erase_if(slice_group.waiters, [&](LeaseId id) {
    if (id == waiter.id) return false;
    const auto others = barred_from(step, *find(step, id));
    return std::find(others.begin(), others.end(), uuid) != others.end();
  });
  return slice_of(step.state, step.rules, waiter, device, slice_group, step.now);
}

// The slice on the devices where it comes first. It begins when the last of the leaving leases has had its time.
static std::optional<NextSlice> slice_on_several(Step& step, const Lease& waiter,
                                                 const std::vector<std::string>& barred) {
  std::vector<NextSlice> slices;
  for (const Device* device : devices_for(step.state, waiter)) {
    if (step.state.preemption.slices.contains(device->reading.uuid)) continue;
    if (auto slice = slice_on(step, waiter, *device, barred)) slices.push_back(std::move(*slice));
  }
  const std::size_t count = devices_wanted(waiter);
  if (slices.size() < count) return std::nullopt;
  std::stable_sort(slices.begin(), slices.end(), [](const NextSlice& a, const NextSlice& b) { return a.at < b.at; });
  NextSlice all{{}, {}, {waiter.id}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    all.devices.push_back(slices[i].devices.front());
    all.at = std::max(all.at, slices[i].at);
    for (const LeaseId id : slices[i].leaves)
      if (std::find(all.leaves.begin(), all.leaves.end(), id) == all.leaves.end()) all.leaves.push_back(id);
  }
  if (!among_equals(step.state, waiter, all)) return std::nullopt;
  // The leases leave all of these devices one after the other: the cost of that counts as a whole.
  all.at = std::max(all.at, quantum_ends(step.state, step.rules, waiter, all));
  return all;
}

// True if the memory is free by itself before the slice, or so soon after it that the saved wait is shorter than the
// cost.
static bool comes_before(const Step& step, const Lease& waiter, const NextSlice& slice) {
  Duration price{};
  for (const Victim& victim : as_victims(step.state, step.rules, slice.leaves, waiter.uid, slice.devices, step.now))
    price += victim.cost;
  return std::all_of(slice.devices.begin(), slice.devices.end(), [&](const std::string& uuid) {
    const auto by_itself =
        room_by_itself(step.state, step.rules, waiter, step.state.devices.by_uuid.at(uuid), step.now);
    return by_itself && *by_itself <= std::max(slice.at, step.now) + price;
  });
}

static bool take_slice(Step& step, const Lease& waiter, const NextSlice& slice) {
  auto devices = slice.devices;
  auto victims = as_victims(step.state, step.rules, slice.leaves, waiter.uid, devices, step.now);
  std::vector<LeaseId> enters = slice.enters;
  std::erase_if(enters, [&](LeaseId id) { return id == waiter.id || plan_for(step.state, id) != nullptr; });
  enters.insert(enters.begin(), waiter.id);
  return propose(step, {.cause = Cause::slice,
                        .tier = waiter.tier,
                        .beneficiaries = std::move(enters),
                        .devices = std::move(devices),
                        .victims = std::move(victims)});
}

// A lease that joins the slice group of a device starts with the service time of the member that has least.
static void join_slice_group(Step& step, const Device& device, const SliceGroup& slice_group) {
  auto& group = step.state.preemption.slice_groups[device.reading.uuid];
  std::optional<Duration> least;
  for (auto& [id, service] : group) {
    count_time(step, id, service);
    least = std::min(least.value_or(service.had), service.had);
  }
  const ServiceTime level{least.value_or(Duration{}), {}};
  for (const auto* members : {&slice_group.residents, &slice_group.waiters})
    for (const LeaseId id : *members) count_time(step, id, group.try_emplace(id, level).first->second);
}

// Adds the time up to now to its service time.
static void count_time(Step& step, LeaseId id, ServiceTime& service) {
  if (service.since) service.had += step.now - *service.since;
  const Lease* lease = find(step, id);
  service.since = lease != nullptr && lease->state == LeaseState::active ? std::optional(step.now) : std::nullopt;
}

// Service time counts only while another lease of the same standing waits. All service times are kept while that lasts,
// whatever lease leaves or enters meanwhile.
void leave_slice_groups(Step& step) {
  for (auto& [uuid, group] : step.state.preemption.slice_groups) {
    const auto device = step.state.devices.by_uuid.find(uuid);
    for (auto& [id, service] : group) count_time(step, id, service);
    std::erase_if(group, [&, &device = device](const auto& one) {
      return device == step.state.devices.by_uuid.end() || !contends(step, one.first, device->second);
    });
  }
  std::erase_if(step.state.preemption.slice_groups, [](const auto& of) { return of.second.empty(); });
}

static bool contends(const Step& step, LeaseId id, const Device& device) {
  const Lease* lease = find(step.state, id);
  if (lease == nullptr || lease->ended()) return false;
  if (step.state.queue.contains(id)) return may_use(*lease, device.reading.uuid);
  if (!lease->reserves() || !device.leases.contains(id)) return false;
  if (lease->state != LeaseState::active) return true;
  return std::ranges::any_of(step.state.preemption.preemptors.on(device.reading.uuid), [&](LeaseId other) {
    return other != id && ranks_like(*find(step.state, other), *lease);
  });
}

// True if a lease on one of these devices is leaving.
bool somebody_yields(const Step& step, const std::vector<std::string>& devices) {
  return std::ranges::any_of(devices, [&step](const std::string& uuid) {
    return std::ranges::any_of(step.state.devices.by_uuid.at(uuid).leases,
                               [&step](LeaseId id) { return is_leaving(step.state, *find(step.state, id)); });
  });
}

// True if any member of a slice group has its memory: else all of them only wait.
bool contested(const Step& step) {
  return std::any_of(step.state.preemption.slice_groups.begin(), step.state.preemption.slice_groups.end(),
                     [&step](const auto& of) {
                       return std::any_of(of.second.begin(), of.second.end(), [&step](const auto& one) {
                         const Lease* lease = find(step.state, one.first);
                         return lease == nullptr || lease->reserves();
                       });
                     });
}

}  // namespace sublet::core
