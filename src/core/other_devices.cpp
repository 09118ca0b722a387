// SPDX-License-Identifier: Apache-2.0
#include "core/other_devices.h"

#include "core/victims.h"
#include "state/methods.h"

#include <algorithm>

namespace sublet::core {
namespace {

// So many devices that may have a victim are looked at: the decision must be quick.
constexpr std::size_t looked_at = 256;

// True if a lease there can be paused for the waiter now.
bool has_victim(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now,
                Time& again) {
  return std::ranges::any_of(device.leases, [&](LeaseId id) {
    const Lease& lease = *find(state, id);
    if (lease.ended() || is_leaving(state, lease) || !query.reaches(lease)) return false;
    const WayToYield way = way_to_yield(state, rules, lease, query.lease.uid, now);
    const auto left_alone = ineligible(state, rules, query, lease, way, now);
    if (left_alone) again = std::min(again, left_alone->until);
    return !left_alone;
  });
}

}  // namespace

// The freest devices may all be full of leases that stay, while leases of lower tiers run on others.
OtherDevices other_devices_for(const State& state, const Rules& rules, const PreemptionQuery& query,
                               const std::vector<const Device*>& freest, std::size_t most, Time now) {
  OtherDevices others;
  const Lease& waiter = query.lease;
  if (waiter.waits_in_place() || !waiter.wanted_devices.empty() || !query.on.empty()) return others;
  const auto is_new = [&](const Device* device) {
    return std::ranges::find(freest, device) == freest.end() &&
           std::ranges::find(others.devices, device) == others.devices.end() && may_use(waiter, device->reading.uuid);
  };
  const std::size_t below = static_cast<std::size_t>(waiter.tier) + (query.by_quota ? 1 : 0);
  std::size_t looked = 0;
  for (std::size_t tier = 0; tier < (query.preemption_request ? tier_count : below); ++tier) {
    for (const std::string& uuid : state.devices.with_victims[tier]) {
      if (others.devices.size() == most || ++looked > looked_at) return others;
      const Device& device = state.devices.by_uuid.at(uuid);
      const PreemptionPlan* plan = plan_on(state, uuid);
      const bool taken = plan != nullptr && !plan->has(waiter.id);
      if (!taken && is_new(&device) && has_victim(state, rules, query, device, now, others.again))
        others.devices.push_back(&device);
    }
  }
  return others;
}

}  // namespace sublet::core
