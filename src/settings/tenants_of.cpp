// SPDX-License-Identifier: Apache-2.0
#include "settings/tenants_of.h"

#include <fmt/format.h>

#include <cmath>

namespace sublet::settings {
namespace {

int thousandths(double value) { return static_cast<int>(std::lround(value * 1000)); }

}  // namespace

std::vector<core::Tenant> tenants_of(const config::Loaded& loaded) {
  std::vector<core::Tenant> all;
  const auto& entries = loaded.config.tenants.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Config::TenantEntry& entry = entries[i];
    const auto states = [&](const char* key) {
      return loaded.row_lines.contains(fmt::format("tenant[{}].{}", i, key));
    };
    core::Tenant& tenant = all.emplace_back();
    tenant.name = entry.name.text;
    tenant.parent = entry.parent.text;
    if (states("quota")) tenant.quota.bytes = entry.quota;
    if (states("quota_devices")) tenant.quota.thousandths = thousandths(entry.quota_devices);
    if (states("limit")) tenant.limit.bytes = entry.limit;
    if (states("limit_devices")) tenant.limit.thousandths = thousandths(entry.limit_devices);
    if (states("live_leases")) tenant.live_leases = static_cast<int>(entry.live_leases);
    if (states("queued_leases")) tenant.queued_leases = static_cast<int>(entry.queued_leases);
    if (states("longest_lease")) tenant.longest_lease = entry.longest_lease;
    if (entry.on_limit.word == "refuse") tenant.on_limit = core::OnLimit::refuse;
    tenant.weight = thousandths(entry.weight);
    for (const std::string& word : entry.tiers.words)
      if (const auto tier = core::parse_tier(word)) tenant.tiers.push_back(*tier);
    if (states("highest_priority")) tenant.highest_priority = static_cast<int>(entry.highest_priority);
    if (states("park_share")) tenant.park_share = thousandths(entry.park_share);
  }
  return all;
}

}  // namespace sublet::settings
