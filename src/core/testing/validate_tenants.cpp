// SPDX-License-Identifier: Apache-2.0
// The sums of the tenants, recomputed from the leases, and the places of their waiters.
#include "core/testing/validate.h"

#include "state/tenant_rights.h"

#include <map>

namespace sublet::core::testing {

std::vector<std::string> validate_tenants(const State& state) {
  std::vector<std::string> wrong;
  std::map<AccountId, TenantAccount> sums;
  for (const auto& [id, lease] : state.leases.by_id) {
    TenantMemory held, leaving;
    for (const std::string& uuid : lease.devices) {
      const auto known = state.devices.by_uuid.find(uuid);
      if (known == state.devices.by_uuid.end() || !known->second.leases.contains(id)) continue;
      const Device& device = known->second;
      const Bytes charged = charged_on(state, lease, uuid);
      held += as_memory(device, charged);
      if (lease.state == LeaseState::pausing)
        leaving += as_memory(device, charged - std::min(charged, lease.parking->residue));
    }
    const AccountId own = account_of(state, id);
    for (AccountId at = own; at != 0; at = account(state, at).parent) {
      TenantAccount& sum = sums[at];
      sum.held += held;
      sum.present += !lease.ended();
      sum.live += lease.reserves();
      if (lease.parking) sum.parked += lease.parking->host_bytes;
    }
    sums[account(state, own).guarantor].covered += held;
    sums[account(state, own).guarantor].leaving += leaving;
    if (const QueueKey* key = state.queue.key(id)) {
      const TenantPlace place = place_by_tenant(state, lease);
      if (key->limited != place.limited || key->guaranteed != place.guaranteed || key->share != place.share)
        wrong.push_back(to_string(id) + ": its place in the queue is not that of its tenant");
    }
  }
  for (AccountId id = 1; id < state.tenants.accounts.size(); ++id) {
    const TenantAccount &kept = account(state, id), &sum = sums[id];
    const std::string name = "tenant " + kept.name;
    if (!(kept.held == sum.held)) wrong.push_back(name + ": the charged memory is not the sum of its leases");
    if (!(kept.covered == sum.covered)) wrong.push_back(name + ": the covered memory is not the sum of its leases");
    if (!(kept.leaving == sum.leaving)) wrong.push_back(name + ": the leaving memory is not the sum of its leases");
    if (kept.present != sum.present || kept.live != sum.live) wrong.push_back(name + ": the number of leases differs");
    if (kept.parked != sum.parked) wrong.push_back(name + ": the parked memory is not the sum of its leases");
  }
  return wrong;
}

}  // namespace sublet::core::testing
