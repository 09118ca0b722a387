// SPDX-License-Identifier: Apache-2.0
// Figures of the entries of the tree of tenants: what each is guaranteed, may have, and has.
#include "http/metrics_page.h"
#include "tenants/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

namespace sublet::http {
namespace {

using core::Tenant;

// The tenants with the first names, so that the number of series is bounded.
std::vector<std::pair<const Tenant*, core::TenantStanding>> shown(const engine::Engine& engine,
                                                                  const tenants::Tenants& all) {
  std::vector<std::pair<const Tenant*, core::TenantStanding>> rows;
  for (const auto& [name, entry] : all.in_force().entries()) {
    if (rows.size() == engine::Counters::who_limit) break;
    rows.emplace_back(&entry, core::tenant_standing(engine.state(), name));
  }
  return rows;
}

}  // namespace

void tenant_metrics(Page& page, const engine::Engine& engine, const tenants::Tenants& all) {
  const auto rows = shown(engine, all);
  using Row = std::pair<const Tenant*, core::TenantStanding>;
  const auto gauge = [&](std::string_view name, std::string_view help,
                         const std::function<std::optional<double>(const Row&)>& value) {
    page.metric(name, "gauge", help);
    for (const Row& row : rows)
      if (const auto number = value(row)) page.sample(fmt::format("tenant=\"{}\"", escaped(row.first->name)), *number);
  };
  const auto bytes = [](const std::optional<Bytes>& value) {
    return value ? std::optional(count(*value)) : std::nullopt;
  };
  gauge("sublet_tenant_quota_bytes", "Memory that is guaranteed to a tenant now",
        [&](const Row& row) { return bytes(row.first->quota.bytes); });
  gauge("sublet_tenant_limit_bytes", "Most memory of a tenant",
        [&](const Row& row) { return bytes(row.first->limit.bytes); });
  gauge("sublet_tenant_held_bytes", "Memory that leases of a tenant, and of all tenants below it, are charged for",
        [](const Row& row) { return std::optional(count(row.second.bytes)); });
  gauge("sublet_tenant_borrowed_bytes", "The part of it beyond the quota",
        [](const Row& row) { return std::optional(count(row.second.borrowed)); });
  gauge("sublet_tenant_weight", "Weight of a tenant against its siblings",
        [](const Row& row) { return std::optional(row.first->weight / 1000.0); });
  std::map<std::string, double, std::less<>> waits;  // by the tenant whose quota holds
  for (const auto& [id, since] : all.unserved()) {
    const core::Lease* lease = core::find(engine.state(), id);
    if (lease == nullptr) continue;
    const core::AccountId guarantor = core::account(engine.state(), core::account_of(engine.state(), id)).guarantor;
    double& longest = waits[core::account(engine.state(), guarantor).name];
    longest = std::max(longest, std::chrono::duration<double>(engine.now() - since).count());
  }
  gauge("sublet_tenant_guarantee_wait_seconds", "Longest present wait for memory within the guarantee of a tenant",
        [&](const Row& row) {
          const auto found = waits.find(row.first->name);
          const double longest = found == waits.end() ? 0 : found->second;
          return row.first->quota.stated() ? std::optional(longest) : std::nullopt;
        });
}

}  // namespace sublet::http
