// SPDX-License-Identifier: Apache-2.0
// Time slices among leases of the same tier. Leases that leave for a slice are asked like victims for a higher tier
// (step_preempt.cpp). Service time is counted for as long as there is another lease to share with.
#include "core/format.h"
#include "core/methods.h"
#include "core/slices.h"
#include "core/stepper.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {

using namespace std::chrono_literals;

namespace {

// A slice whose cost has changed has the same leases in another order.
template <typename Element>
std::vector<Element> in_order(std::vector<Element> elements) {
  std::sort(elements.begin(), elements.end());
  return elements;
}

}  // namespace

// The plan, if the slice of the waiter has begun on this device: victims left for it, or are leaving.
const PreemptionPlan* Stepper::begun(LeaseId waiter, const std::string& uuid) const {
  const PreemptionPlan* plan = started_for(waiter);
  const bool here = plan != nullptr && plan->by_slice &&
                    std::find(plan->devices.begin(), plan->devices.end(), uuid) != plan->devices.end();
  return here ? plan : nullptr;
}

void Stepper::wait_for_slice(const Lease& waiter, const std::vector<std::string>& barred) {
  if (continue_slice(waiter)) return;
  if (devices_wanted(waiter) > 1) {
    const auto its = std::find_if(state_.slices_.begin(), state_.slices_.end(), [&](const auto& on) {
      return on.second.devices.size() > 1 && on.second.enters.front() == waiter.id;
    });
    if (its != state_.slices_.end() && its->second.at <= now_) take_slice(waiter, its->second);
    return;
  }
  for (const std::string& uuid : state_.where_might_yield(waiter.tier)) {
    const Device& device = state_.devices_.at(uuid);
    const auto known = state_.slices_.find(uuid);
    if (known != state_.slices_.end() && known->second.devices.size() > 1) continue;  // that one comes before
    auto slice = slice_on(waiter, device, barred);
    if (!slice || !among_equals(state_, waiter, *slice) || comes_before(waiter, *slice)) continue;
    keep_to_what_was_said(waiter, *slice);
    if (slice->at <= now_) {
      if (take_slice(waiter, *slice)) return;
      continue;
    }
    look_again_at(slice->at);
    if (known != state_.slices_.end() && slice->at >= known->second.at) continue;
    announce(*slice);
    state_.slices_[uuid] = std::move(*slice);
  }
}

// An announced slice is not delayed by what was learned since: the cost of the switch, or the use of the leases that
// leave. A slice is another one if a lease that leaves got its memory since.
void Stepper::keep_to_what_was_said(const Lease& waiter, NextSlice& slice) const {
  slice.said = announced_at(state_, rules_, waiter, slice, now_);
  const auto before = state_.said_.find({waiter.id, in_order(slice.devices)});
  if (before == state_.said_.end() || !binds(before->second, slice)) return;
  slice.said = std::min(slice.said, before->second.said);
  slice.at = std::min(slice.at, slice.said);
}

bool Stepper::binds(const AnnouncedSlice& said, const NextSlice& slice) const {
  return said.leaves == in_order(slice.leaves) &&
         std::ranges::all_of(slice.leaves, [&](LeaseId id) { return state_.standing(id).came_back <= said.first; });
}

// Announces the slice to all leases that enter by it.
void Stepper::announce(const NextSlice& slice) {
  for (const LeaseId id : slice.enters) {
    const auto [its, fresh] = state_.said_.try_emplace({id, in_order(slice.devices)});
    if (!fresh && binds(its->second, slice)) its->second.said = std::min(its->second.said, slice.said);
    else its->second = {in_order(slice.leaves), slice.said, now_};
  }
}

// Slices on several devices are found first, and no other slice begins there before. On each device other slices end at
// their own times, and a lease that waits for all devices would never get a slice.
void Stepper::announce_slices_on_several() {
  for (const LeaseId id : wanting_several()) {
    const Lease& waiter = *find(id);
    if (plan_victims(state_, rules_, PreemptionQuery{waiter, waiter.preemption_request, /*told=*/false}, now_).found)
      continue;
    auto slice = slice_on_several(waiter, barred_from(waiter));
    if (!slice || comes_before(waiter, *slice)) continue;
    keep_to_what_was_said(waiter, *slice);
    if (slice->at > now_) look_again_at(slice->at);
    announce(*slice);
    for (const std::string& uuid : slice->devices) state_.slices_[uuid] = *slice;
  }
}

// Order: leases whose slice has begun, then the least service time on the device where it is most, then the higher
// priority.
std::vector<LeaseId> Stepper::wanting_several() const {
  struct Waiter {
    bool begun;
    Duration had;
    int priority;
    LeaseId id;
  };
  std::vector<Waiter> waiters;
  for (const Preemptor& preemptor : state_.preemptors_.in_order()) {
    const Lease& lease = *state_.find(preemptor.key.lease);
    const bool might = devices_wanted(lease) > 1 && state_.somebody_might_yield(lease.tier);
    if (!might || !may_ask(state_, rules_, lease)) continue;
    Waiter waiter{false, {}, lease.priority, lease.id};
    for (const Device* device : devices_for(state_, lease)) {
      waiter.begun |= begun(lease.id, device->reading.uuid) != nullptr;
      waiter.had = std::max(waiter.had, state_.had(lease.id, device->reading.uuid));
    }
    waiters.push_back(waiter);
  }
  std::stable_sort(waiters.begin(), waiters.end(), [](const Waiter& a, const Waiter& b) {
    if (a.begun != b.begun) return a.begun;
    return a.had != b.had ? a.had < b.had : a.priority > b.priority;
  });
  std::vector<LeaseId> ids;
  for (const Waiter& waiter : waiters) ids.push_back(waiter.id);
  return ids;
}

// The next slice on one device; none while its slice group is not known, or the waiter is barred there.
std::optional<NextSlice> Stepper::slice_on(const Lease& waiter, const Device& device,
                                           const std::vector<std::string>& barred) {
  const std::string& uuid = device.reading.uuid;
  if (!waits_for(waiter, device) || !state_.known(device, rules_, now_)) return std::nullopt;
  if (std::find(barred.begin(), barred.end(), uuid) != barred.end()) return std::nullopt;
  SliceGroup slice_group = slice_group_on(state_, rules_, waiter, device, now_);
  if (!slice_group.residents.empty()) join_slice_group(device, slice_group);
  // No lease is paused for these waiters there, so they take no slice from others.
  std::erase_if(slice_group.waiters, [&](LeaseId id) {
    if (id == waiter.id) return false;
    const auto others = barred_from(*find(id));
    return std::find(others.begin(), others.end(), uuid) != others.end();
  });
  return slice_of(state_, rules_, waiter, device, slice_group, begun(waiter.id, uuid), now_);
}

// The slice on the devices where it comes first. It begins when the last of the leaving leases has had its time.
std::optional<NextSlice> Stepper::slice_on_several(const Lease& waiter, const std::vector<std::string>& barred) {
  std::vector<NextSlice> slices;
  for (const Device* device : devices_for(state_, waiter)) {
    if (state_.slices_.contains(device->reading.uuid)) continue;
    if (auto slice = slice_on(waiter, *device, barred)) slices.push_back(std::move(*slice));
  }
  const std::size_t count = devices_wanted(waiter);
  if (slices.size() < count) return std::nullopt;
  std::stable_sort(slices.begin(), slices.end(), [](const NextSlice& a, const NextSlice& b) { return a.at < b.at; });
  NextSlice all{{}, {}, {waiter.id}, {}};
  const PreemptionPlan* in_progress = nullptr;
  for (std::size_t i = 0; i < count; ++i) {
    all.devices.push_back(slices[i].devices.front());
    if (in_progress == nullptr) in_progress = begun(waiter.id, all.devices.back());
    all.at = std::max(all.at, slices[i].at);
    for (const LeaseId id : slices[i].leaves)
      if (std::find(all.leaves.begin(), all.leaves.end(), id) == all.leaves.end()) all.leaves.push_back(id);
  }
  if (!among_equals(state_, waiter, all)) return std::nullopt;
  // The leases leave all of these devices one after the other: the cost of that counts as a whole.
  if (in_progress != nullptr) all.at = std::max(all.at, goes_on(state_, rules_, waiter, all, *in_progress, now_));
  else all.at = std::max(all.at, quantum_ends(state_, rules_, waiter, all));
  return all;
}

// True if the memory is free by itself before the slice, or so soon after it that the saved wait is shorter than the
// cost.
bool Stepper::comes_before(const Lease& waiter, const NextSlice& slice) const {
  Duration price{};
  for (const Victim& victim : as_victims(state_, rules_, slice.leaves, waiter.uid, slice.devices, now_))
    price += victim.cost;
  return std::all_of(slice.devices.begin(), slice.devices.end(), [&](const std::string& uuid) {
    const auto by_itself = room_by_itself(state_, rules_, waiter, state_.devices_.at(uuid), now_);
    return by_itself && *by_itself <= std::max(slice.at, now_) + price;
  });
}

bool Stepper::take_slice(const Lease& waiter, const NextSlice& slice) {
  auto devices = slice.devices;
  auto victims = as_victims(state_, rules_, slice.leaves, waiter.uid, devices, now_);
  std::vector<LeaseId> with = slice.enters;
  std::erase(with, waiter.id);
  return begin_plan({waiter.id, waiter.tier, Cause::slice, /*by_slice=*/true, /*started=*/false, std::move(devices),
                     std::move(victims), std::move(with)});
}

// A slice that has begun keeps its victims as long as they are enough. Service times change all the time. A slice that
// is made anew could be put off, and memory freed for it would be reserved for nothing.
bool Stepper::continue_slice(const Lease& waiter) {
  const PreemptionPlan* old = started_for(waiter.id);
  if (old == nullptr || !old->by_slice) return false;
  std::vector<LeaseId> leaves;
  std::vector<Victim> victims = old->victims;
  for (const auto& [id, undone] : undone_) {  // to be asked by the next method
    const bool leaves_anyway = std::ranges::find(victims, id, &Victim::lease) != victims.end();
    if (state_.find(id)->tier <= waiter.tier && !leaves_anyway) victims.emplace_back().lease = id;
  }
  for (const Victim& victim : victims) {
    const Lease* lease = find(victim.lease);
    if (lease == nullptr) continue;
    const bool there = lease->state == LeaseState::active || does_not_go_on(state_, rules_, *lease, now_);
    if (!there) continue;  // it has left, or is leaving
    const WayToYield way = way_to_yield(state_, rules_, *lease, waiter.uid, now_);
    const bool may = now_ >= state_.standing(lease->id).ineligible_until && !lease->stop_requested;
    if (!may || way.kind == WayToYield::Kind::none || way.ends() != victim.ends) return false;
    leaves.push_back(lease->id);
  }
  for (const std::string& uuid : old->devices) {
    const auto device = state_.devices_.find(uuid);  // it may have been lost since
    if (device == state_.devices_.end() || !state_.known(device->second, rules_, now_)) return false;
    Bytes gain;
    for (const Victim& its : as_victims(state_, rules_, leaves, waiter.uid, {uuid}, now_)) gain += its.gain;
    if (gain < lacking(state_, rules_, PreemptionQuery{waiter, std::nullopt, /*told=*/false}, device->second, now_))
      return false;
  }
  victims = as_victims(state_, rules_, leaves, waiter.uid, old->devices, now_);
  return begin_plan({waiter.id, waiter.tier, Cause::slice, /*by_slice=*/true, /*started=*/false, old->devices,
                     std::move(victims), old->beneficiaries});
}

// A lease that joins the slice group of a device starts with the service time of the member that has least.
void Stepper::join_slice_group(const Device& device, const SliceGroup& slice_group) {
  auto& group = state_.slice_groups_[device.reading.uuid];
  std::optional<Duration> least;
  for (auto& [id, service] : group) {
    count_time(id, service);
    least = std::min(least.value_or(service.had), service.had);
  }
  const State::ServiceTime level{least.value_or(Duration{}), {}};
  for (const auto* members : {&slice_group.residents, &slice_group.waiters})
    for (const LeaseId id : *members) count_time(id, group.try_emplace(id, level).first->second);
}

// Adds the time up to now to its service time.
void Stepper::count_time(LeaseId id, State::ServiceTime& service) {
  if (service.since) service.had += now_ - *service.since;
  const Lease* lease = find(id);
  service.since = lease != nullptr && lease->state == LeaseState::active ? std::optional(now_) : std::nullopt;
}

// Service time counts only while another lease of the same standing waits. All service times are kept while that lasts,
// whatever lease leaves or enters meanwhile.
void Stepper::leave_slice_groups() {
  for (auto& [uuid, group] : state_.slice_groups_) {
    const auto device = state_.devices_.find(uuid);
    for (auto& [id, service] : group) count_time(id, service);
    std::erase_if(group, [&, &device = device](const auto& one) {
      return device == state_.devices_.end() || !contends(one.first, device->second);
    });
  }
  std::erase_if(state_.slice_groups_, [](const auto& of) { return of.second.empty(); });
  // An announcement that is not made any more binds no lease: other leases come first now, or a plan with another cause
  // serves the waiter.
  std::erase_if(state_.said_, [this](const auto& its) {
    const auto& [waiter, devices] = its.first;
    const PreemptionPlan* plan = state_.plan_for(waiter);
    const auto slice = state_.slices_.find(devices.front());
    const bool begins = plan != nullptr && plan->by_slice;
    return !begins && (slice == state_.slices_.end() || in_order(slice->second.leaves) != its.second.leaves ||
                       !holds(slice->second.enters, waiter));
  });
}

bool Stepper::contends(LeaseId id, const Device& device) const {
  const Lease* lease = state_.find(id);
  if (lease == nullptr || lease->ended()) return false;
  if (state_.queue_.contains(id)) return waits_for(*lease, device);
  if (!lease->reserves() || !device.leases.contains(id)) return false;
  if (lease->state != LeaseState::active) return true;
  return std::ranges::any_of(state_.preemptors_.on(device.reading.uuid),
                             [&](LeaseId other) { return other != id && state_.find(other)->tier == lease->tier; });
}

// True if a lease on one of these devices is leaving, or is about to be asked.
bool Stepper::somebody_yields(const std::vector<std::string>& devices) const {
  return std::ranges::any_of(devices, [this](const std::string& uuid) {
    return std::ranges::any_of(state_.devices_.at(uuid).leases, [this](LeaseId id) {
      return is_leaving(state_, *state_.find(id)) || state_.runtime_.at(id).weighed;
    });
  });
}

// True if any member of a slice group has its memory: else all of them only wait.
bool Stepper::contested() const {
  return std::any_of(state_.slice_groups_.begin(), state_.slice_groups_.end(), [this](const auto& of) {
    return std::any_of(of.second.begin(), of.second.end(), [this](const auto& one) {
      const Lease* lease = state_.find(one.first);
      return lease == nullptr || lease->reserves();
    });
  });
}

}  // namespace sublet::core
