// SPDX-License-Identifier: Apache-2.0
// The devices, and the indices over all of them.
#include "state/devices.h"

#include "base/mutants.h"
#include "state/reconfigured.h"
#include "state/state.h"

#include <algorithm>
#include <cassert>
#include <climits>
#include <functional>
#include <iterator>
#include <ranges>
#include <utility>

namespace sublet::core {

const Device* find_device(const State& state, std::string_view name) {
  if (name.empty()) return nullptr;
  const auto exact = state.devices.by_uuid.find(name);
  if (exact != state.devices.by_uuid.end()) return &exact->second;
  if (name.substr(0, 3) == "gpu") name.remove_prefix(3);
  const Device* lost = nullptr;  // the driver may have given its index to another since
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!device.read_at || device.reading.number() != name) continue;
    if (!device.lost) return &device;
    lost = &device;
  }
  return lost;
}

bool is_known(const State& state, const Device& device, const Rules& rules, Time now) {
  return device.read_at && device.problem.empty() && !device.lost && state.devices.snapshot_problem.empty() &&
         (now - *device.read_at <= rules.max_age || mutant(Mutant::old_readings_count));
}

bool is_in_service(const State& state, std::string_view uuid) { return closed_by(state, uuid) == nullptr; }

bool may_grant_on(const State& state, const Device& device, const Rules& rules, Time now) {
  return is_in_service(state, device.reading.uuid) && is_known(state, device, rules, now);
}

bool is_given_up(const Device& device, const Rules& rules, Time now) {
  constexpr int missing_snapshots = 3;
  return device.missing >= missing_snapshots && now - *device.missing_since >= rules.max_age;
}

const Device* given_up_device(const State& state, const Lease& lease, const Rules& rules, Time now) {
  for (const std::string& uuid : lease.devices)
    if (const auto at = state.devices.by_uuid.find(uuid);
        at != state.devices.by_uuid.end() && is_given_up(at->second, rules, now))
      return &at->second;
  return nullptr;
}

Bytes capacity_of(const Device& device, const Rules& rules) { return device.reading.for_programs() - rules.headroom; }

Bytes free_on(const State& state, const Device& device, const Rules& rules, Time now) {
  return may_grant_on(state, device, rules, now) ? unclaimed_on(device, rules) : Bytes{};
}

Bytes unclaimed_on(const Device& device, const Rules& rules) {
  const Bytes other = mutant(Mutant::others_do_not_count) ? Bytes{} : device.other;
  const Bytes kept = std::min(rules.headroom, device.residues);
  return capacity_of(device, rules) - device.charged - other + kept;
}

// A lease of several devices has no slice.
const Device* capacity_for(const State& state, int count) {
  int left = count;
  for (const auto& [capacity, uuid] : std::views::reverse(state.devices.capacities))
    if ((count == 1 || !is_slice(uuid)) && --left == 0) return &state.devices.by_uuid.at(uuid);
  return nullptr;
}

const std::set<std::string>& devices_with_victims(const State& state, Tier tier) {
  return state.devices.with_victims[static_cast<std::size_t>(tier)];
}

std::size_t count_unread(const State& state) { return state.devices.by_uuid.size() - state.devices.capacities.size(); }

bool may_have_victims(const State& state, Tier tier) {
  return std::any_of(state.devices.with_victims.begin(),
                     state.devices.with_victims.begin() + static_cast<int>(tier) + 1,
                     [](const auto& devices) { return !devices.empty(); });
}

Device& device_entry(State& state, const std::string& uuid) {
  const auto [at, fresh] = state.devices.by_uuid.try_emplace(uuid);
  if (fresh) {
    at->second.number = ++state.devices.last_number;
    at->second.reading.uuid = uuid;
    at->second.problem = "not read yet";
  }
  return at->second;
}

void forget_device(State& state, const std::string& uuid) {
  const auto at = state.devices.by_uuid.find(uuid);
  assert(at != state.devices.by_uuid.end() && at->second.leases.empty());
  const Device::Indexed& indexed = at->second.indexed;
  if (indexed.room) state.devices.by_free.erase(*indexed.room);
  if (indexed.age) state.devices.ages.erase({*indexed.age, uuid});
  if (indexed.capacity) state.devices.capacities.erase({*indexed.capacity, uuid});
  state.devices.with_paused_above.erase(uuid);
  state.devices.unified.erase(uuid);
  state.devices.by_uuid.erase(at);
}

void refresh_other(State& state, Device& device) {
  const Bytes seen = device.leased_used + device.kept_unseen + device.arrived + untold_on(state, device);
  device.other = std::max({device.unleased, device.reading.used - seen, Bytes{}});
  mark_moved(state, device);
}

void mark_moved(State& state, Device& device) {
  if (!device.indexed.moved) state.devices.moved.push_back(device.reading.uuid);
  device.indexed.moved = true;
}

void reindex(State& state, const Rules& rules, Time now) {
  const std::pair under(rules.headroom, rules.max_age);
  if (state.devices.indexed_under && *state.devices.indexed_under != under)
    for (auto& [uuid, device] : state.devices.by_uuid) mark_moved(state, device);
  state.devices.indexed_under = under;
  for (const auto& [read_at, uuid] : state.devices.ages) {
    if (now - read_at <= rules.max_age) break;
    mark_moved(state, state.devices.by_uuid.at(uuid));
  }
  for (const std::string& uuid : state.devices.moved)
    if (const auto device = state.devices.by_uuid.find(uuid); device != state.devices.by_uuid.end())
      reindex(state, device->second, rules, now);
  std::move(state.devices.moved.begin(), state.devices.moved.end(), std::back_inserter(state.preemption.changed));
  state.devices.moved.clear();
}

bool has_paused_above(const State& state, const Device& device) {
  if (device.parked == 0) return false;
  bool any = false;
  Tier paused = Tier::spot, others = Tier::critical;
  for (const LeaseId id : device.leases) {
    const Lease& lease = *find(state, id);
    if (lease.state == LeaseState::paused) paused = std::max(paused, lease.tier);
    else if (lease.reserves() && !lease.parked()) any = true, others = std::min(others, lease.tier);
  }
  return any && (others <= paused || device.pausing > 0);
}

void reindex(State& state, Device& device, const Rules& rules, Time now) {
  const std::string& uuid = device.reading.uuid;
  Device::Indexed& indexed = device.indexed;
  indexed.moved = false;
  if (has_paused_above(state, device)) state.devices.with_paused_above.insert(uuid);
  else state.devices.with_paused_above.erase(uuid);
  std::optional<DeviceFree> room;
  std::optional<Time> age;
  if (is_known(state, device, rules, now)) {
    if (is_in_service(state, uuid))
      room = DeviceFree{free_on(state, device, rules, now), device.reading.order(), uuid, device.number};
    age = device.read_at;
  }
  if (room && (!indexed.room || room->free > indexed.room->free)) state.devices.opened.push_back(uuid);
  if (room != indexed.room) {
    auto node = indexed.room ? state.devices.by_free.extract(*indexed.room) : std::set<DeviceFree>::node_type();
    if (room && node) node.value() = *room, state.devices.by_free.insert(std::move(node));
    else if (room) state.devices.by_free.insert(*room);
    indexed.room = std::move(room);
  }
  if (age != indexed.age) {
    if (indexed.age) state.devices.ages.erase({*indexed.age, uuid});
    if (age) state.devices.ages.insert({*age, uuid});
    indexed.age = age;
  }
  if (!device.read_at) return;
  const Bytes capacity = device.reading.for_programs();
  if (capacity == indexed.capacity) return;
  if (indexed.capacity) state.devices.capacities.erase({*indexed.capacity, uuid});
  state.devices.capacities.insert({capacity, uuid});
  state.tenants.replaced = true;  // waiters count by another part of a device
  indexed.capacity = capacity;
}

Bytes in_headroom(const State& state, Bytes residues) {
  return state.devices.indexed_under ? std::min(state.devices.indexed_under->first, residues) : Bytes{};
}

Bytes leaves_headroom(const State& state, const Lease& lease, std::string_view device) {
  const auto at = state.devices.by_uuid.find(device);
  const bool here = std::find(lease.devices.begin(), lease.devices.end(), device) != lease.devices.end();
  if (!lease.parked() || !here || at == state.devices.by_uuid.end()) return {};
  const Bytes all = at->second.residues;
  return in_headroom(state, all) - in_headroom(state, all - lease.parking->residue);
}

// A lease that waits for more than this waits for the leases parked there, and they may wait for it.
Bytes most_beside_others(const State& state, const Lease& lease, const Device& device) {
  const Bytes residues = device.residues - (lease.parked() ? lease.parking->residue : Bytes{});
  Bytes most = device.reading.for_programs() - device.other + in_headroom(state, residues);
  if (state.devices.indexed_under) most -= state.devices.indexed_under->first;
  for (const LeaseId id : device.leases) {
    const Lease& other = state.leases.by_id.at(id);
    if (id != lease.id && other.parked()) most -= charged_on(state, other, device.reading.uuid);
  }
  return most;
}

std::vector<std::string> uuids_of(const State& state, const std::vector<std::string>& names) {
  std::vector<std::string> uuids;
  for (const std::string& name : names) {
    const Device* device = find_device(state, name);
    uuids.push_back(device == nullptr ? name : device->reading.uuid);
  }
  std::ranges::sort(uuids);
  uuids.erase(std::unique(uuids.begin(), uuids.end()), uuids.end());
  return uuids;
}

std::vector<std::string> sort_by_index(const State& state, std::vector<std::string> uuids) {
  std::ranges::stable_sort(uuids, {}, [&state](const std::string& uuid) {
    const auto device = state.devices.by_uuid.find(uuid);
    return device == state.devices.by_uuid.end() || !device->second.read_at ? INT_MAX : device->second.reading.order();
  });
  return uuids;
}

const Device* capacity_for(const State& state, int count, const std::vector<std::string>& uuids) {
  std::vector<const Device*> devices;
  for (const std::string& uuid : uuids) {
    if (count > 1 && is_slice(uuid)) continue;
    if (const auto at = state.devices.by_uuid.find(uuid); at != state.devices.by_uuid.end() && at->second.read_at)
      devices.push_back(&at->second);
  }
  if (count < 1 || std::ssize(devices) < count) return nullptr;
  std::ranges::stable_sort(devices, std::greater<>(),
                           [](const Device* device) { return device->reading.for_programs(); });
  return devices[static_cast<std::size_t>(count - 1)];
}

}  // namespace sublet::core
