// SPDX-License-Identifier: Apache-2.0
// Parses the text of a request. Duplicate names are refused, since their meaning is ambiguous. Pure; any thread.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>

namespace sublet::http {

// The target of a request: "/v1/leases?all=true", or "http://127.0.0.1:4711/v1/leases?all=true" as sent to a proxy.
struct Target {
  std::string_view host;  // "" in the first form
  std::string_view path;
  std::string_view query;
};
Target parse_target(std::string_view text);

// Names and values, decoded.
Result<std::map<std::string, std::string>> parse_query(std::string_view text);

// Leaves `body` unchanged if `text` is empty.
Status parse_body(const std::string& text, int depth_limit, nlohmann::json& body);

}  // namespace sublet::http
