// SPDX-License-Identifier: Apache-2.0
// What is checked of room that is held: who stands behind one that has waited long, and whose start nobody knows, takes
// no more than that one leaves over of the whole device, all together. Looked at where one lease waits for one device
// that can be no other.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sublet::sim {

// In the terms of the design: tier, priority with what it has aged, first come.
bool Oracle::stands_before(const Lease& a, const Lease& b, Time now) const {
  const double aging = config_.rules.aging_per_minute;
  const auto aged = [&](const Lease& lease) {
    return lease.priority + aging * static_cast<double>((now - lease.waits_since()).count()) / 60e9;
  };
  if (a.tier != b.tier) return a.tier > b.tier;
  if (std::abs(aged(a) - aged(b)) > 1e-6) return aged(a) > aged(b);
  return aging > 0 ? a.id < b.id : a.waits_since() < b.waits_since();
}

// Nobody's time is up before they could renew it: after a restart it may be later than what is stored.
std::optional<Time> Oracle::limit(const Lease& lease) const {
  const Lease* its = engine_->state().find(lease.id);
  return its == nullptr ? lease.expires_at : its->expires_at;
}

// When it gives its room back, where that is known: by its time limit, or by how long such programs ran before.
bool Oracle::end_is_known(const Lease& lease, Time now) const {
  if (lease.ended()) return true;
  if (lease.stop_requested && lease.stop_at) return *lease.stop_at + config_.rules.grace > now;
  const Time start = lease.granted_at ? *lease.granted_at + lease.parked_until(now) : now;  // its pauses left out
  if (lease.owner.kind != core::OwnerKind::token && lease.ttl) return limit(lease).value_or(start + *lease.ttl) > now;
  const core::ConsumerHistory* history = engine_->state().history(lease.whose());
  return history != nullptr && history->median && start + *history->median > now;
}

// The first of those who have waited so long that room is held for them, where it can be nowhere but here; null: there
// is none, or it stands behind the one that is given room.
const Oracle::Lease* Oracle::held_for(const std::string& device, const Lease& given, Time now) const {
  const Lease* first = nullptr;
  for (const auto& [id, lease] : leases_) {
    if (id == given.id || !waits(lease) || now - lease.waits_since() < config_.rules.reserve_after) continue;
    const bool here =
        lease.waits_in_place() ? is_on(lease, device) : lease.wanted_device.empty() || lease.wanted_device == device;
    if (here && (first == nullptr || stands_before(lease, *first, now))) first = &lease;
  }
  if (first == nullptr || !stands_before(*first, given, now)) return nullptr;
  // Stored with this one, and perhaps given its room after it: then it was the first.
  for (const Lease& other : waited_)
    if (other.id != given.id && stands_before(other, *first, now)) return nullptr;
  const bool fixed = first->waits_in_place() || !first->wanted_device.empty() || config_.cards.size() == 1;
  const bool one = first->waits_in_place() ? first->devices.size() == 1 : first->device_count == 1;
  return fixed && one ? first : nullptr;
}

void Oracle::follow_back(const Lease& parked, Time now) {
  for (const std::string& device : parked.devices) {
    const Reading* reading = known(device, now);
    came_back_[{parked.id, device}] = reading ? counted(parked, device, *reading) : parked.reserved_each();
  }
}

// `was`: as it stood when it waited for that.
void Oracle::follow_given(const Lease* was, const Lease& lease, Time now) {
  const bool grows = was != nullptr && was->reserves() && !was->parked();
  const bool for_it = std::ranges::any_of(plans_, [&lease](const auto& of) {  // others yielded for it
    const auto& with = of.second.beneficiaries;
    return of.first == lease.id || std::find(with.begin(), with.end(), lease.id) != with.end();
  });
  const bool cleared =
      std::ranges::any_of(lease.devices, [&](const auto& device) { return cleared_.contains(device); });
  const bool may = lease.pausable != core::Pausable::no || lease.preemption_request;
  for (const std::string& device : lease.devices) {
    auto& given = given_[{lease.id, device}];
    if (!grows) given.clear();
    Bytes had = was != nullptr && was->reserves() ? was->reserved_each() : Bytes{};
    // By what it takes beyond its size already it takes nothing more when it grows.
    if (const Reading* reading = known(device, now); grows && reading != nullptr)
      had = std::clamp(reading->used_by(lease.id), had, std::max(had, lease.reserved_each()));
    given.emplace_back(now, lease.reserved_each() - had);
    if (!for_it && !(cleared && may) && was != nullptr && waits(*was)) check_left_over(*was, lease, device, now);
  }
}

// What it gives back is what it was given last.
void Oracle::follow_shrunk(const Lease& was, const Lease& lease) {
  for (const std::string& device : lease.devices) {
    auto& given = given_[{lease.id, device}];
    for (Bytes less = was.reserved_each() - lease.reserved_each(); less > Bytes{} && !given.empty();) {
      Bytes& newest = given.back().second;
      const Bytes taken = std::min(less, newest);
      less -= taken, newest -= taken;
      if (newest <= Bytes{}) given.pop_back();
    }
  }
}

void Oracle::check_left_over(const Lease& was, const Lease& given, const std::string& device, Time now) {
  if (config_.rules.reserve_after <= Duration{}) return;
  const Lease* waiter = held_for(device, was, now);
  const Reading* reading = known(device, now);
  if (waiter == nullptr || reading == nullptr) return;
  // It comes back with more than it had, and waits for more than its size.
  if (waiter->parked() && reading->used_by(waiter->id) > waiter->parking->residue) return;
  const Time due = waiter->waits_since() + config_.rules.reserve_after;
  Bytes parked, since, residues;
  for (const auto& [id, lease] : leases_) {
    if (!is_on(lease, device) || (!lease.reserves() && !lease.ended())) continue;
    if (id != waiter->id && end_is_known(lease, now)) return;  // so may be its start
    const Bytes bytes = counted(lease, device, *reading);
    if (lease.parked() && id != waiter->id) residues += lease.parking->residue;
    const auto back = came_back_.find({id, device});
    if (back != came_back_.end()) parked += back->second;
    else if (lease.parked() && id != waiter->id) parked += bytes;
    Bytes its;
    if (const auto found = given_.find({id, device}); found != given_.end() && id != waiter->id)
      for (const auto& [at, what] : found->second)
        if (at > due) its += what;
    since += std::min(its, bytes);
  }
  // What those keep who stay parked is in the headroom first.
  const Bytes all = capacity(*reading) + std::min(residues, config_.rules.headroom);
  const Bytes others = claims(device, *reading).others;
  const Bytes here = waiter->waits_in_place() ? counted(*waiter, device, *reading) : Bytes{};
  const Bytes least = waiter->waits_in_place() ? std::max(waiter->wanted_vram() - here, Bytes{}) : waiter->least();
  if (here + least + parked + others > all) return;  // it waits for those first who are parked
  verdict_.expect(here + least + since + others <= all, "head-crowded-out", [&] {
    return fmt::format(
        "{} was given room on {}, and {} stands before it: of {} it has {} and needs {}, {} are others', "
        "and {} were given since room is reserved for it",
        to_string(given.id), device, to_string(waiter->id), format_size(all), format_size(here), format_size(least),
        format_size(others), format_size(since));
  });
}

}  // namespace sublet::sim
