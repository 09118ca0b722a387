// SPDX-License-Identifier: Apache-2.0
#include "gpu/condition.h"

#include "gpu/json_line.h"

namespace sublet::gpu {

const std::array<FactField, 20> fact_fields{{
    {"temperature_celsius", &Facts::celsius, 0, 150},
    {"power_milliwatts", &Facts::milliwatts, 0, 10'000'000},
    {"power_limit_milliwatts", &Facts::limit_milliwatts, 0, 10'000'000},
    {"energy_millijoules", &Facts::millijoules, 0, INT64_MAX},
    {"sm_clock_mhz", &Facts::sm_mhz, 0, 100'000},
    {"memory_clock_mhz", &Facts::memory_mhz, 0, 100'000},
    {"pcie_generation", &Facts::link_generation, 1, 16},
    {"pcie_lanes", &Facts::link_lanes, 1, 64},
    {"pcie_max_generation", &Facts::max_link_generation, 1, 16},
    {"pcie_max_lanes", &Facts::max_link_lanes, 1, 64},
    {"pcie_replays", &Facts::link_replays, 0, UINT32_MAX - 1},
    {"nvlinks", &Facts::nvlinks, 0, 64},
    {"compute_capability", &Facts::capability, 10, 999},
    {"ecc_corrected", &Facts::corrected_errors, 0, INT64_MAX},
    {"ecc_uncorrected", &Facts::uncorrected_errors, 0, INT64_MAX},
    {"retirement_pending", &Facts::retirement_pending, 0, 1},
    {"remapping_pending", &Facts::remapping_pending, 0, 1},
    {"remapping_failed", &Facts::remapping_failed, 0, 1},
    {"last_xid", &Facts::last_xid, 0, INT64_MAX},
    {"falls", &Facts::falls, 0, INT64_MAX},
}};

Json to_json(const Facts& facts) {
  Json json = Json::object();
  for (const FactField& field : fact_fields)
    if (const auto& figure = facts.*field.figure) json[field.name] = *figure;
  return json;
}

std::string read_facts(const Json& json, Facts& facts) {
  Reader reader(json, "a condition");
  for (const FactField& field : fact_fields)
    if (reader.ok() && json.contains(field.name))
      facts.*field.figure = reader.integer(field.name, field.least, field.most);
  return reader.problem();
}

}  // namespace sublet::gpu
