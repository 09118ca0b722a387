// SPDX-License-Identifier: Apache-2.0
#include "core/tenants.h"

#include "core/state.h"

namespace sublet::core {

TenantStanding tenant_standing(const State& state, std::string_view name) {
  TenantStanding standing;
  for (const auto& [id, lease] : state.leases.by_id) {
    if (lease.tenant != name) continue;
    for (const std::string& device : lease.devices) standing.bytes += charged_on(state, lease, device);
    standing.live += lease.ended() ? 0 : 1;
    standing.queued += lease.queues() ? 1 : 0;
  }
  return standing;
}

TenantUse tenant_use(const State&, std::string_view name, Time now) { return {std::string(name), now, {}, {}}; }

}  // namespace sublet::core
