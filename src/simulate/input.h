// SPDX-License-Identifier: Apache-2.0
// The input of a run, by the order of `sublet simulate`: a trace, the past of a daemon or a scenario, with the changes
// that the order names.
#pragma once

#include "simulate/scenario.h"
#include "simulate/trace.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace sublet::simulate {

struct Input {
  std::vector<Job> jobs;  // those that ask for a whole device ask for all of the largest
  std::vector<Bytes> devices;
  std::vector<core::Tenant> tenants;  // a valid tree
  std::optional<Duration> until = {};
  PointInTime compared = {.grace = std::chrono::seconds(30)};  // lease.grace
  std::vector<std::string> notes = {};                         // what is not known of the past, a sentence each
  nlohmann::json about = {};                                   // of the past, for the answer; null: no past
};

Result<std::vector<Job>> read_trace(const nlohmann::json& order, Bytes device);
Result<Input> read_input(const nlohmann::json& order, const std::optional<Scenario>& scenario);

}  // namespace sublet::simulate
