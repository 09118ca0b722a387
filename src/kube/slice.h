// SPDX-License-Identifier: Apache-2.0
// The ResourceSlice of this node: its cards with two capacities, of which the scheduler gives parts away.
#pragma once

#include "kube/api_server.h"
#include "kube/units.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::kube {

// The spec of the slice without its generation. Cards that are not healthy are left out. Pure.
nlohmann::json slice_spec(const std::string& node, const std::vector<Card>& cards, const UnitRules& rules);

std::string slice_name(const std::string& node);

// Makes the slice, or changes it if it differs: its generation grows then. Blocks.
Status publish_slice(const ApiServer& api, const std::string& node, const nlohmann::json& spec);

}  // namespace sublet::kube
