// SPDX-License-Identifier: Apache-2.0
#include "http/tenant_fields.h"

#include "base/text.h"
#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>

namespace sublet::http {
namespace {

using core::Tenant;

constexpr std::int64_t most_bytes = std::int64_t{1} << 50;
constexpr std::int64_t longest_lease = 100LL * 366 * 86400;  // seconds
constexpr int most_devices = 1'000'000;                      // thousandths
constexpr int most_weight = 1'000'000'000;                   // thousandths
constexpr int most_leases = 1'000'000;

json decimal(const std::optional<int>& thousandths) {
  return thousandths ? json(*thousandths / 1000.0) : json(nullptr);
}

json bytes_of(const std::optional<Bytes>& bytes) { return bytes ? json(bytes->count) : json(nullptr); }

template <typename T>
json maybe(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

std::vector<core::Tier> read_tiers(Body& body) {
  std::vector<core::Tier> tiers;
  const json* list = body.list("tiers");
  if (list == nullptr) return tiers;
  for (const json& each : *list) {
    const auto tier = each.is_string() ? core::parse_tier(each.get_ref<const std::string&>()) : std::nullopt;
    if (!tier) {
      body.refuse("tiers", "a list of critical, interactive, standard, batch and spot", *list);
      return {};
    }
    if (std::ranges::find(tiers, *tier) == tiers.end()) tiers.push_back(*tier);
  }
  std::ranges::sort(tiers);
  return tiers;
}

// Reads all fields but the name into the entry. A field that is null is stated no more.
void read_fields(Body& body, const json& given, Tenant& into) {
  const auto has = [&given](const char* name) { return given.is_object() && given.contains(name); };
  const auto bytes = [&](const char* name, std::optional<Bytes>& member) {
    const auto value = body.integer(name, 0, most_bytes);
    if (has(name)) member = value ? std::optional(Bytes{*value}) : std::nullopt;
  };
  const auto number = [&](const char* name, std::optional<int>& member, int least, int most) {
    const auto value = body.integer(name, least, most);
    if (has(name)) member = value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  const auto thousandths = [&](const char* name, std::optional<int>& member, int least, int most) {
    const auto value = body.thousandths(name, least, most);
    if (has(name)) member = value;
  };
  const auto parent = body.text("parent", 64);
  if (has("parent")) into.parent = parent.value_or("");
  bytes("quota_bytes", into.quota.bytes);
  thousandths("quota_devices", into.quota.thousandths, 0, most_devices);
  bytes("limit_bytes", into.limit.bytes);
  thousandths("limit_devices", into.limit.thousandths, 0, most_devices);
  number("live_leases", into.live_leases, 0, most_leases);
  number("queued_leases", into.queued_leases, 0, most_leases);
  const auto longest = body.integer("longest_lease_seconds", 1, longest_lease);
  if (has("longest_lease_seconds"))
    into.longest_lease = longest ? std::optional<Duration>(std::chrono::seconds(*longest)) : std::nullopt;
  const auto on_limit = body.text("on_limit");
  if (on_limit && *on_limit != "refuse" && *on_limit != "queue")
    body.refuse("on_limit", "refuse or queue", given["on_limit"]);
  if (has("on_limit")) into.on_limit = on_limit == "refuse" ? core::OnLimit::refuse : core::OnLimit::queue;
  const auto weight = body.thousandths("weight", 1, most_weight);
  if (has("weight")) into.weight = weight.value_or(core::usual_weight);
  std::vector<core::Tier> tiers = read_tiers(body);
  if (has("tiers")) into.tiers = std::move(tiers);
  number("highest_priority", into.highest_priority, INT_MIN / 2, INT_MAX / 2);
  thousandths("park_share", into.park_share, 0, 1000);
}

}  // namespace

json render_tenant(const Tenant& tenant) {
  json tiers = json::array();
  for (const core::Tier tier : tenant.tiers) tiers.push_back(core::to_string(tier));
  return {{"name", tenant.name},
          {"parent", tenant.parent.empty() ? json(nullptr) : json(tenant.parent)},
          {"quota_bytes", bytes_of(tenant.quota.bytes)},
          {"quota_devices", decimal(tenant.quota.thousandths)},
          {"limit_bytes", bytes_of(tenant.limit.bytes)},
          {"limit_devices", decimal(tenant.limit.thousandths)},
          {"live_leases", maybe(tenant.live_leases)},
          {"queued_leases", maybe(tenant.queued_leases)},
          {"longest_lease_seconds",
           tenant.longest_lease ? json(*tenant.longest_lease / std::chrono::seconds(1)) : json(nullptr)},
          {"on_limit", tenant.on_limit == core::OnLimit::refuse ? "refuse" : "queue"},
          {"weight", tenant.weight / 1000.0},
          {"tiers", std::move(tiers)},
          {"highest_priority", maybe(tenant.highest_priority)},
          {"park_share", decimal(tenant.park_share)}};
}

Result<Tenant> read_tenant(const json& given, const std::string& prefix) {
  Body body(given, prefix);
  Tenant tenant;
  const auto name = body.name("name");
  read_fields(body, given, tenant);
  if (const Status finished = body.finish(); !finished) return finished.error();
  if (!name) return bad_request(fmt::format("{}name is missing", prefix), "give each tenant a name");
  tenant.name = *name;
  return tenant;
}

Result<TenantChange> change_tenant(const json& given, Tenant tenant) {
  if (!plain_name(tenant.name))
    return bad_request(fmt::format("'{}' is not the name of a tenant", printable(tenant.name)),
                       "a name has 1 to 64 of the letters a-z and A-Z, digits and . _ - / : +");
  Body body(given);
  TenantChange change{std::move(tenant)};
  change.dry_run = body.boolean("dry_run").value_or(false);
  read_fields(body, given, change.tenant);
  if (const Status finished = body.finish(); !finished) return finished.error();
  return change;
}

}  // namespace sublet::http
