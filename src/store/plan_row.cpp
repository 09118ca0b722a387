// SPDX-License-Identifier: Apache-2.0
#include "store/plan_row.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>

namespace sublet::store {
namespace {

using core::Cause;
using core::PlanRecord;

constexpr std::array<std::string_view, 5> causes{"tier", "slice", "request", "reclaim", "quota"};

std::vector<std::uint64_t> numbers_of(const std::vector<LeaseId>& leases) {
  std::vector<std::uint64_t> numbers;
  for (const LeaseId lease : leases) numbers.push_back(lease.number);
  return numbers;
}

std::vector<LeaseId> leases_of(const nlohmann::json& numbers) {
  std::vector<LeaseId> leases;
  for (const nlohmann::json& number : numbers) leases.push_back(LeaseId{number.get<std::uint64_t>()});
  return leases;
}

std::optional<PlanRecord> parse(const std::string& data) try {
  const auto json = nlohmann::json::parse(data);
  const auto cause = std::ranges::find(causes, json.at("cause").get_ref<const std::string&>());
  const auto tier = core::parse_tier(json.at("tier").get_ref<const std::string&>());
  PlanRecord record{.id = json.at("id"),
                    .beneficiaries = leases_of(json.at("beneficiaries")),
                    .devices = json.at("devices"),
                    .victims = leases_of(json.at("victims")),
                    .asked = leases_of(json.at("asked"))};
  if (cause == causes.end() || !tier || record.beneficiaries.empty()) return std::nullopt;
  record.cause = static_cast<Cause>(cause - causes.begin());
  record.tier = *tier;
  return record;
} catch (const nlohmann::json::exception&) {
  return std::nullopt;
}

}  // namespace

CapabilityRow row_of(const core::PlanChange& change) {
  const PlanRecord& record = change.record;
  CapabilityRow row{std::string(plan_kind), fmt::format("{:020}", record.id), {}};
  if (change.over) return row;
  row.data = nlohmann::json{{"id", record.id},
                            {"cause", causes.at(static_cast<std::size_t>(record.cause))},
                            {"tier", core::to_string(record.tier)},
                            {"beneficiaries", numbers_of(record.beneficiaries)},
                            {"devices", record.devices},
                            {"victims", numbers_of(record.victims)},
                            {"asked", numbers_of(record.asked)}}
                 .dump();
  return row;
}

std::vector<PlanRecord> plans_in(const std::vector<CapabilityRow>& rows) {
  std::vector<PlanRecord> records;
  for (const CapabilityRow& row : rows)
    if (row.kind == plan_kind)
      if (auto record = parse(row.data)) records.push_back(std::move(*record));
  return records;
}

}  // namespace sublet::store
