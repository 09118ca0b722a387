// SPDX-License-Identifier: Apache-2.0
#include "explain/over_limit.h"

#include <algorithm>
#include <tuple>

namespace sublet::explain {

using namespace core;

Bytes over_size(const State& state, const Lease& lease, std::string_view device) {
  if (lease.state != LeaseState::active) return {};
  const Bytes over = charge_on(state, lease.id, device).used - lease.vram;
  return over > over_slack ? over : Bytes{};
}

Bytes over_size(const State& state, const Lease& lease) {
  Bytes all;
  for (const std::string& device : lease.devices) all += over_size(state, lease, device);
  return all;
}

StrayUse stray_use(const Device& device, LeaseId lease) {
  const auto found = device.strays.find(lease);
  return found == device.strays.end() || device.leases.contains(lease) ? StrayUse{} : found->second;
}

std::vector<Stray> stray_uses(const State& state) {
  std::vector<Stray> all;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    for (const auto& [lease, stray] : device.strays)
      if (stray.used > over_slack && !device.leases.contains(lease)) all.push_back({lease, uuid, stray.used});
  std::ranges::sort(all, {}, [](const Stray& stray) { return std::tie(stray.lease, stray.device); });
  return all;
}

}  // namespace sublet::explain
