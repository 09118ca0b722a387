// SPDX-License-Identifier: Apache-2.0
#include "tenants/rows.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace sublet::tenants {
namespace {

using core::Integral;
using core::Tenant;
using core::TenantUse;
using nlohmann::json;

// Reads the fields of a row. A field of a wrong type makes the row unreadable.
class Fields {
 public:
  explicit Fields(const json& data) : data_(data), good_(data.is_object()) {}

  std::optional<std::int64_t> number(const char* name) {
    const json* value = find(name);
    if (value == nullptr) return std::nullopt;
    good_ = good_ && value->is_number_integer();
    return good_ ? std::optional(value->get<std::int64_t>()) : std::nullopt;
  }
  std::optional<int> small(const char* name) {
    const auto value = number(name);
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  std::string text(const char* name) {
    const json* value = find(name);
    good_ = good_ && (value == nullptr || value->is_string());
    return good_ && value != nullptr ? value->get<std::string>() : std::string();
  }
  std::vector<json> list(const char* name) {
    const json* value = find(name);
    good_ = good_ && (value == nullptr || value->is_array());
    return good_ && value != nullptr ? value->get<std::vector<json>>() : std::vector<json>();
  }
  void fail() { good_ = false; }
  bool good() const { return good_; }

 private:
  const json* find(const char* name) const {
    if (!good_) return nullptr;
    const auto found = data_.find(name);
    return found == data_.end() ? nullptr : &*found;
  }

  const json& data_;
  bool good_;
};

Error unreadable(const store::CapabilityRow& row, const char* what) {
  return bad_request(
      fmt::format("the {} of tenant {} cannot be read: {}", what, printable(row.key), printable(row.data)));
}

// As decimal digits: more than 64 bits.
std::optional<Integral> parse_integral(std::string_view text) {
  constexpr std::size_t most_digits = 37;
  if (text.empty() || text.size() > most_digits) return std::nullopt;
  Integral number = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + (digit - '0');
  }
  return number;
}

using Slots = std::vector<std::pair<std::int64_t, Integral>>;

json slots_json(const Slots& slots) {
  json all = json::array();
  for (const auto& [slot, use] : slots) all.push_back({slot, fmt::format("{}", use)});
  return all;
}

Slots slots_from(Fields& fields, const char* name) {
  Slots slots;
  for (const json& entry : fields.list(name)) {
    const bool shaped = entry.is_array() && entry.size() == 2 && entry[0].is_number_integer() && entry[1].is_string();
    const auto use = shaped ? parse_integral(entry[1].get_ref<const std::string&>()) : std::nullopt;
    if (use) slots.emplace_back(entry[0].get<std::int64_t>(), *use);
    else fields.fail();
  }
  return slots;
}

}  // namespace

store::CapabilityRow to_row(const Tenant& tenant) {
  json data = json::object();
  const auto put = [&data](const char* name, const auto& value) {
    if (value) data[name] = *value;
  };
  const auto bytes = [&data](const char* name, const std::optional<Bytes>& value) {
    if (value) data[name] = value->count;
  };
  if (!tenant.parent.empty()) data["parent"] = tenant.parent;
  bytes("quota_bytes", tenant.quota.bytes);
  put("quota_thousandths", tenant.quota.thousandths);
  bytes("limit_bytes", tenant.limit.bytes);
  put("limit_thousandths", tenant.limit.thousandths);
  put("live_leases", tenant.live_leases);
  put("queued_leases", tenant.queued_leases);
  if (tenant.longest_lease) data["longest_lease"] = tenant.longest_lease->count();
  if (tenant.on_limit == core::OnLimit::refuse) data["on_limit"] = "refuse";
  if (tenant.weight != core::usual_weight) data["weight"] = tenant.weight;
  for (const core::Tier tier : tenant.tiers) data["tiers"].push_back(core::to_string(tier));
  put("highest_priority", tenant.highest_priority);
  put("park_share", tenant.park_share);
  return {std::string(row_kind), tenant.name, data.dump()};
}

Result<Tenant> tenant_from(const store::CapabilityRow& row) {
  const json data = json::parse(row.data, nullptr, false);
  Fields fields(data);
  Tenant tenant;
  tenant.name = row.key;
  tenant.parent = fields.text("parent");
  if (const auto bytes = fields.number("quota_bytes")) tenant.quota.bytes = Bytes{*bytes};
  tenant.quota.thousandths = fields.small("quota_thousandths");
  if (const auto bytes = fields.number("limit_bytes")) tenant.limit.bytes = Bytes{*bytes};
  tenant.limit.thousandths = fields.small("limit_thousandths");
  tenant.live_leases = fields.small("live_leases");
  tenant.queued_leases = fields.small("queued_leases");
  if (const auto longest = fields.number("longest_lease")) tenant.longest_lease = Duration(*longest);
  if (fields.text("on_limit") == "refuse") tenant.on_limit = core::OnLimit::refuse;
  tenant.weight = std::max(fields.small("weight").value_or(core::usual_weight), 1);
  for (const json& word : fields.list("tiers")) {
    const auto tier = word.is_string() ? core::parse_tier(word.get_ref<const std::string&>()) : std::nullopt;
    if (tier) tenant.tiers.push_back(*tier);
    else fields.fail();
  }
  tenant.highest_priority = fields.small("highest_priority");
  tenant.park_share = fields.small("park_share");
  if (!fields.good()) return unreadable(row, "entry");
  return tenant;
}

store::CapabilityRow to_row(const StoredUse& stored) {
  const auto& [use, held, slot] = stored;
  if (use.bytes.empty() && use.devices.empty() && held == core::TenantMemory())
    return {std::string(use_row_kind), use.tenant, {}};
  const json data{{"at", use.at.ns},
                  {"bytes", slots_json(use.bytes)},
                  {"devices", slots_json(use.devices)},
                  {"held_bytes", held.bytes.count},
                  {"held_thousandths", held.thousandths},
                  {"slot", slot.count()}};
  return {std::string(use_row_kind), use.tenant, data.dump()};
}

// Use in slots of another length counts in the new slot in which its own began, and use without slots in the last one.
static Slots in_slots_of(const core::Window& window, const StoredUse& stored, const Slots& slots) {
  if (window.slot == stored.slot) return slots;
  std::map<std::int64_t, core::Integral> sums;
  for (const auto& [slot, use] : slots) {
    const Time began = stored.slot > Duration{} ? Time{slot * stored.slot.count()} : stored.use.at;
    sums[window.slot_of(std::min(began, stored.use.at))] += use;
  }
  return {sums.begin(), sums.end()};
}

TenantUse up_to(Time now, const StoredUse& stored, const core::Window& window) {
  const auto extended = [&](const Slots& slots, std::int64_t amount) {
    core::Held held = core::Held::restored(stored.use.at, in_slots_of(window, stored, slots));
    held.hold(amount, stored.use.at, window);
    return held.by_slot(now, window);
  };
  return {stored.use.tenant, now, extended(stored.use.bytes, stored.held.bytes.count),
          extended(stored.use.devices, stored.held.thousandths)};
}

Result<StoredUse> use_from(const store::CapabilityRow& row) {
  const json data = json::parse(row.data, nullptr, false);
  Fields fields(data);
  StoredUse stored{.use = {.tenant = row.key, .at = {}, .bytes = {}, .devices = {}}, .held = {}};
  TenantUse& use = stored.use;
  use.at = Time{fields.number("at").value_or(0)};
  stored.slot = Duration(fields.number("slot").value_or(0));
  use.bytes = slots_from(fields, "bytes");
  use.devices = slots_from(fields, "devices");
  stored.held = {Bytes{fields.number("held_bytes").value_or(0)}, fields.number("held_thousandths").value_or(0)};
  if (!fields.good()) return unreadable(row, "use");
  return stored;
}

}  // namespace sublet::tenants
