// SPDX-License-Identifier: Apache-2.0
#include "state/reconfigured.h"

#include "state/state.h"

#include <algorithm>

namespace sublet::core {

const std::string* closed_by(const State& state, std::string_view uuid) {
  const auto& closed = state.devices.out_of_service;
  if (closed.empty()) return nullptr;
  if (const auto itself = closed.find(uuid); itself != closed.end()) return &itself->first;
  const auto device = state.devices.by_uuid.find(uuid);
  if (device == state.devices.by_uuid.end() || device->second.reading.parent.empty()) return nullptr;
  const auto card = closed.find(device->second.reading.parent);
  return card == closed.end() ? nullptr : &card->first;
}

std::string reading_conflict(const State& state, const DeviceReading& reading, const Rules& rules, Time now) {
  if (reading.unified)
    for (const auto& [uuid, other] : state.devices.by_uuid)
      if (other.reading.unified && uuid != reading.uuid && !other.lost)
        return "it uses the memory of the machine, which is already that of " + other.reading.id();
  if (reading.slice >= 0) return {};
  const auto& all = state.devices.by_uuid;
  for (auto at = all.lower_bound(slice_prefix); at != all.end() && is_slice(at->first); ++at) {
    const Device& slice = at->second;
    const std::string& card = slice.reading.parent;
    const bool its = card.empty() ? !slice.leases.empty() : card == reading.uuid;
    if (its && !is_given_up(slice, rules, now))
      return "the driver tells it as a whole card, and its slices are not known to be gone";
  }
  return {};
}

const DeviceReading* unread_card(const Device& slice, const std::vector<DeviceReading>& readings) {
  if (!is_slice(slice.reading.uuid)) return nullptr;
  const std::string& card = slice.reading.parent;
  const auto found = std::ranges::find_if(readings, [&card](const DeviceReading& reading) {
    const bool is_unread = reading.slice < 0 && !reading.lost && !reading.problem.empty();
    return is_unread && (card.empty() || card == reading.uuid);
  });
  return found == readings.end() ? nullptr : &*found;
}

bool is_reconfigured(const Device& device) {
  return device.lost && (is_slice(device.reading.uuid) ? device.problem == not_listed : device.problem == in_mig_mode);
}

Bytes usable_of(const Device& device, const Rules& rules) {
  const Bytes capacity = capacity_of(device, rules);
  return device.reading.unified ? capacity - device.other - unified_margin : capacity - device.unleased;
}

std::int64_t count_whole(const State& state) {
  return std::ranges::count_if(state.devices.capacities, [](const auto& entry) { return !is_slice(entry.second); });
}

Bytes untold_on(const State& state, const Device& device) {
  Bytes all;
  if (!device.reading.unified) return all;
  for (const LeaseId id : device.leases)
    if (const Charge& charge = charge_on(state, id, device.reading.uuid); charge.untold)
      all += std::max(charged_on(state, state.leases.by_id.at(id), device.reading.uuid) - charge.used, Bytes{});
  return all;
}

Bytes promised_of_machine(const State& state) {
  Bytes all;
  for (const std::string& uuid : state.devices.unified) {
    const Device& device = state.devices.by_uuid.at(uuid);
    all += std::max(device.charged - device.leased_used - untold_on(state, device), Bytes{});
  }
  return all;
}

}  // namespace sublet::core
