// SPDX-License-Identifier: Apache-2.0
#include "guard/shortage.h"

#include "explain/over_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::guard {
namespace {

// A program that ran out of memory ends this soon.
constexpr Duration fails_within = std::chrono::seconds(10);

Bytes free_on(const core::Device& device) {
  return device.reading.total - device.reading.driver_reserved - device.reading.used;
}

// The lease with the most bytes above its size, or the processes without a lease if they hold more than that.
std::optional<Shortage> largest_taker(const core::State& state, const core::Device& device, LeaseId sufferer) {
  Shortage found;
  Bytes most = explain::over_slack;
  for (const LeaseId id : device.leases) {
    const core::Lease* lease = core::find(state, id);
    const Bytes used = core::charge_on(state, id, device.reading.uuid).used;
    if (lease == nullptr || id == sufferer || used - lease->vram <= most) continue;
    most = used - lease->vram;
    found.taker = fmt::format("{} ({}, {})", to_string(id), lease->consumer, lease->user);
    found.taken = used;
    found.size = lease->vram;
  }
  // `other` has the processes too that the driver does not list.
  if (device.other > most) {
    found.taker = "processes without a lease";
    found.taken = device.other;
    found.size = {};
  }
  return found.taker.empty() ? std::nullopt : std::optional(std::move(found));
}

bool has_failed(const core::Lease& lease) {
  using core::EndReason;
  const bool by_itself = lease.end_reason == EndReason::released || lease.end_reason == EndReason::owner_gone;
  return by_itself && !lease.stop_requested && lease.exit_status.value_or(0) != 0;
}

}  // namespace

std::optional<Shortage> shortage_of(const core::State& state, const core::Lease& lease) {
  if (lease.state != core::LeaseState::active) return std::nullopt;
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end() || !device->second.read_at) continue;
    const Bytes left = lease.vram - core::charge_on(state, lease.id, uuid).used, free = free_on(device->second);
    if (left <= Bytes{} || free >= left) continue;
    auto found = largest_taker(state, device->second, lease.id);
    if (!found) continue;
    found->at = *device->second.read_at;
    found->device = device->second.reading.id();
    found->free = free;
    found->left = left;
    return found;
  }
  return std::nullopt;
}

void Shortages::measured(const core::State& state) {
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!device.read_at || device.charged <= device.leased_used) continue;  // nobody has anything left
    for (const LeaseId id : device.leases)
      if (auto found = shortage_of(state, *core::find(state, id))) last_[id] = std::move(*found);
  }
}

std::vector<core::Remark> Shortages::explain(const core::Plan& plan, Time now) {
  std::vector<core::Remark> remarks;
  if (last_.empty()) return remarks;
  for (const core::Lease& lease : plan.changed) {
    if (!lease.ended()) continue;
    const auto found = last_.find(lease.id);
    if (found == last_.end()) continue;
    const Shortage shortage = std::move(found->second);
    last_.erase(found);
    if (!has_failed(lease) || now - shortage.at > fails_within) continue;
    const auto size = shortage.size > Bytes{} ? std::optional(shortage.size) : std::nullopt;
    remarks.push_back({lease.id, core::ReasonKind::short_of_memory,
                       core::args("device", shortage.device, "free", shortage.free, "left", shortage.left, "taker",
                                  shortage.taker, "taken", shortage.taken, "size", size, "before", now - shortage.at)});
  }
  return remarks;
}

}  // namespace sublet::guard
