// SPDX-License-Identifier: Apache-2.0
// The text of a request as values. What is said twice is refused: no reader could know which of the two was meant.
// Pure; any thread.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>

namespace sublet::http {

// Where a request goes: "/v1/leases?all=true", or "http://127.0.0.1:4711/v1/leases?all=true" as for a proxy.
struct Target {
  std::string_view host;  // "" in the first form
  std::string_view path;
  std::string_view query;
};
Target parse_target(std::string_view text);

// Names and values, decoded.
Result<std::map<std::string, std::string>> parse_query(std::string_view text);

// Leaves `body` as it is where there is no text.
Status parse_body(const std::string& text, int depth_limit, nlohmann::json& body);

}  // namespace sublet::http
