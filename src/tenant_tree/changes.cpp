// SPDX-License-Identifier: Apache-2.0
#include "tenant_tree/tree.h"

#include "base/spelled.h"
#include "state/tenant_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace sublet::tenants {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string text_in(const Fields& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Fields::value_type::first);
  return found == fields.end() ? std::string() : found->second;
}

Change compare(const std::string& name, const Tenant* before, const Tenant* after) {
  Change change{before == nullptr  ? Change::Kind::added
                : after == nullptr ? Change::Kind::removed
                                   : Change::Kind::changed,
                name,
                {}};
  const Fields old = before == nullptr ? Fields() : field_texts(*before);
  const Fields now = after == nullptr ? Fields() : field_texts(*after);
  for (const auto& [field, text] : now)
    if (text_in(old, field) != text) change.fields.push_back({field, text_in(old, field), text});
  for (const auto& [field, text] : old)
    if (text_in(now, field).empty()) change.fields.push_back({field, text, ""});
  return change;
}

// ------------------------------------------------------------------------------------ leases

struct Sum {
  Bytes bytes;
  std::int64_t thousandths = 0;
  int live = 0;
};

// The memory of each tenant and of all tenants below it, under a tree.
class Held {
 public:
  Held(const Tree& tree, const std::vector<Charge>& charges) : tree_(tree), quotas_(tree.has_quotas()) {
    for (const Charge& charge : charges)
      for (const std::string& name : tree.path(charge.tenant)) {
        Sum& sum = sums_[name];
        sum.bytes += charge.bytes;
        sum.thousandths += charge.thousandths;
        ++sum.live;
      }
  }

  // Why a lease of the tenant holds borrowed memory; "": it does not.
  std::string borrowed(const std::string& tenant) const {
    if (!quotas_) return {};
    for (const std::string& name : tree_.path(tenant)) {
      const Tenant* entry = tree_.find(name);
      if (entry == nullptr || !entry->quota.stated()) continue;
      return exceeds(name, entry->quota, "quota");
    }
    return fmt::format("tenant {} has no quota: a guarantee may take all of its memory back", tenant);
  }

  // The limit above a lease of the tenant that is exceeded; "": none.
  std::string over(const std::string& tenant) const {
    for (const std::string& name : tree_.path(tenant)) {
      const Tenant* entry = tree_.find(name);
      if (entry == nullptr) continue;
      if (std::string text = exceeds(name, entry->limit, "limit"); !text.empty()) return text;
      if (const int live = sums_.at(name).live; entry->live_leases && live > *entry->live_leases)
        return fmt::format("tenant {} has {} leases with memory, and may have {}", name, live, *entry->live_leases);
    }
    return {};
  }

 private:
  std::string exceeds(const std::string& name, const TenantAmount& most, const char* what) const {
    const Sum& sum = sums_.at(name);
    if (most.bytes && sum.bytes > *most.bytes)
      return fmt::format("tenant {} holds {}, {} above its {} of {}", name, format_size(sum.bytes),
                         format_size(sum.bytes - *most.bytes), what, format_size(*most.bytes));
    if (most.thousandths && sum.thousandths > *most.thousandths)
      return fmt::format("tenant {} holds {}, {} above its {} of {}", name, core::format_devices(sum.thousandths),
                         core::format_devices(sum.thousandths - *most.thousandths), what,
                         core::format_devices(*most.thousandths));
    return {};
  }

  const Tree& tree_;
  bool quotas_;
  std::map<std::string, Sum> sums_;
};

}  // namespace

std::string_view to_string(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::added: return "added";
    case Change::Kind::changed: return "changed";
    case Change::Kind::removed: return "removed";
  }
  return "";
}

std::string_view to_string(Effect::Kind kind) {
  switch (kind) {
    case Effect::Kind::borrowed: return "borrowed";
    case Effect::Kind::over_limit: return "over_limit";
    case Effect::Kind::without_tenant: return "without_tenant";
  }
  return "";
}

std::vector<std::pair<std::string, std::string>> field_texts(const Tenant& tenant) {
  Fields all;
  const auto add = [&](const char* name, std::string text) { all.emplace_back(name, std::move(text)); };
  const auto number = [&](const char* name, const std::optional<int>& value) {
    if (value) add(name, fmt::format("{}", *value));
  };
  if (!tenant.parent.empty()) add("parent", tenant.parent);
  if (tenant.quota.bytes) add("quota", spelled(*tenant.quota.bytes));
  if (tenant.quota.thousandths) add("quota_devices", spelled_thousandths(*tenant.quota.thousandths));
  if (tenant.limit.bytes) add("limit", spelled(*tenant.limit.bytes));
  if (tenant.limit.thousandths) add("limit_devices", spelled_thousandths(*tenant.limit.thousandths));
  number("live_leases", tenant.live_leases);
  number("queued_leases", tenant.queued_leases);
  if (tenant.longest_lease) add("longest_lease", spelled(*tenant.longest_lease));
  if (tenant.on_limit == core::OnLimit::refuse) add("on_limit", "refuse");
  if (tenant.weight != core::usual_weight) add("weight", spelled_thousandths(tenant.weight));
  if (!tenant.tiers.empty()) {
    std::vector<std::string_view> tiers;
    for (const core::Tier tier : tenant.tiers) tiers.push_back(core::to_string(tier));
    add("tiers", fmt::format("{}", fmt::join(tiers, ", ")));
  }
  number("highest_priority", tenant.highest_priority);
  if (tenant.park_share) add("park_share", spelled_thousandths(*tenant.park_share));
  return all;
}

std::vector<Change> changes(const Tree& before, const Tree& after) {
  std::vector<Change> all;
  for (const auto& [name, entry] : after.entries())
    if (const Tenant* old = before.find(name); old == nullptr || *old != entry)
      all.push_back(compare(name, old, &entry));
  for (const auto& [name, entry] : before.entries())
    if (after.find(name) == nullptr) all.push_back(compare(name, &entry, nullptr));
  std::ranges::sort(all, {}, &Change::tenant);
  return all;
}

std::vector<Charge> charges(const core::State& state) {
  std::vector<Charge> all;
  for (const auto& [id, lease] : state.leases.by_id) {
    Charge charge{id, lease.tenant, {}, 0};
    for (const std::string& uuid : lease.devices) {
      const auto device = state.devices.by_uuid.find(uuid);
      if (device == state.devices.by_uuid.end()) continue;
      const auto memory = core::as_memory(device->second, core::charged_on(state, lease, uuid));
      charge.bytes += memory.bytes;
      charge.thousandths += memory.thousandths;
    }
    if (charge.bytes > Bytes{}) all.push_back(std::move(charge));
  }
  std::ranges::sort(all, {}, &Charge::lease);
  return all;
}

std::vector<Effect> effects(const Tree& before, const Tree& after, const std::vector<Charge>& charges) {
  const Held old(before, charges), now(after, charges);
  std::vector<Effect> all;
  for (const Charge& charge : charges) {
    const auto add = [&](Effect::Kind kind, std::string text) {
      all.push_back({kind, charge.lease, charge.tenant, std::move(text)});
    };
    if (std::string text = now.borrowed(charge.tenant); !text.empty() && old.borrowed(charge.tenant).empty())
      add(Effect::Kind::borrowed, std::move(text));
    if (std::string text = now.over(charge.tenant); !text.empty() && old.over(charge.tenant).empty())
      add(Effect::Kind::over_limit, std::move(text));
    if (before.find(charge.tenant) != nullptr && after.find(charge.tenant) == nullptr)
      add(Effect::Kind::without_tenant,
          fmt::format("tenant {} has no entry any more: the lease goes on without guarantee and limits",
                      charge.tenant));
  }
  return all;
}

}  // namespace sublet::tenants
