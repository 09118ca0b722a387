// SPDX-License-Identifier: Apache-2.0
// Reading the query of a request. Any thread.
#pragma once

#include "base/text.h"
#include "http/message.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace sublet::http {

inline std::string query_value(const Request& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

// Parses "2026-11-21T16:00:05Z", with up to nine digits of a second's fraction.
std::optional<Time> parse_time(std::string_view text);

// Reads "true" or "false"; unset if the parameter is missing; other values are refused.
inline Result<std::optional<bool>> query_flag(const Request& request, const char* name) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return std::optional<bool>();
  if (found->second == "true") return std::optional(true);
  if (found->second == "false") return std::optional(false);
  return bad_request(fmt::format("{}={} is neither true nor false", name, printable(found->second)),
                     "give true or false, or leave the parameter out");
}

}  // namespace sublet::http
