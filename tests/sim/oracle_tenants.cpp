// SPDX-License-Identifier: Apache-2.0
// Checks of tenants: limits at each grant, and guarantees at each pause. The sums are those of the leases themselves.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using core::PauseCauseKind;

const core::Tenant* Oracle::tenant_of(const Lease& lease) const {
  const auto its = std::ranges::find(config_.tenants, lease.tenant, &core::Tenant::name);
  return its == config_.tenants.end() ? nullptr : &*its;
}

// Both tenants are below one organisation.
void Oracle::check_tenant_limit(const Lease& lease) const {
  for (const core::Tenant& tenant : config_.tenants) {
    if (tenant.name != lease.tenant && tenant.name != "org") continue;
    Bytes reserved;
    int live = 0;
    for (const auto& [id, other] : leases_)
      if (tenant.name == "org" || other.tenant == tenant.name) reserved += other.reserved(), live += other.reserves();
    const bool within = (!tenant.limit.bytes || reserved <= *tenant.limit.bytes) &&
                        (!tenant.live_leases || live <= *tenant.live_leases);
    verdict_.expect(within, "tenant-over-limit", [&] {
      return fmt::format("{} was given memory, and the tenant {} now has {} in {} leases", to_string(lease.id),
                         tenant.name, format_size(reserved), live);
    });
  }
}

// Called when the lease is asked. Memory that other leases are giving back counts for no tenant any more.
void Oracle::check_guarantee(const Lease& lease) const {
  const core::PauseCause& cause = lease.parking->cause;
  const core::State& state = engine_->state();
  const auto preemptor = leases_.find(cause.preemptor);
  const core::Tenant* lender = preemptor == leases_.end() ? nullptr : tenant_of(preemptor->second);
  const bool has_quota = lender != nullptr && lender->quota.stated();
  verdict_.expect(cause.kind != PauseCauseKind::quota || has_quota || preemptor == leases_.end(), "quota-unfounded",
                  [&] { return to_string(lease.id) + " is paused for a quota that nobody has"; });
  const core::Tenant* tenant = tenant_of(lease);
  const bool by_rule =
      cause.kind == PauseCauseKind::tier || cause.kind == PauseCauseKind::slice || cause.kind == PauseCauseKind::quota;
  if (!by_rule || has_quota || tenant == nullptr || !tenant->quota.bytes || requested_.contains(cause.preemptor))
    return;
  Bytes held;
  for (const auto& [id, other] : state.leases.by_id)
    for (const std::string& device : other.devices)
      if (other.tenant == tenant->name)
        held += other.state == LeaseState::pausing && id != lease.id ? other.parking->residue
                                                                     : core::charged_on(state, other, device);
  verdict_.expect(held > *tenant->quota.bytes, "guarantee-taken", [&] {
    return fmt::format("{} is paused ({}) for {}, although its tenant {} has {} and is guaranteed {}",
                       to_string(lease.id), core::to_string(cause.kind), to_string(cause.preemptor), tenant->name,
                       format_size(held), format_size(*tenant->quota.bytes));
  });
}

}  // namespace sublet::sim
