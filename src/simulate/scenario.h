// SPDX-License-Identifier: Apache-2.0
// Scenarios: streams of jobs, tenants, devices and configuration in one TOML file. docs/placement.md describes it.
#pragma once

#include "config/config.h"
#include "lease/tenant.h"
#include "simulate/point_in_time.h"
#include "simulate/trace.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sublet::simulate {

struct Scenario {
  std::vector<Job> jobs;  // without bytes: those that ask for all of a device
  std::vector<Bytes> devices;
  std::vector<core::Tenant> tenants;
  Duration length{};     // the figures count up to then
  PointInTime compared;  // with this scheduler
  Config config;         // as a daemon would have it
  std::size_t keys = 0;  // of the daemon, which the file states
};

// `name`: "burst", which ships, or a TOML file. `seed`: in place of its own. Errors name file and line.
Result<Scenario> read_scenario(const std::string& name, std::optional<std::uint64_t> seed = {});

// The entries of a file for `sublet tenant apply`.
Result<std::vector<core::Tenant>> read_tenants(const std::string& file);

extern const char* const burst_scenario;  // the text of docs/placement-burst.toml

}  // namespace sublet::simulate
