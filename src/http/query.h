// SPDX-License-Identifier: Apache-2.0
// Reading the query of a request. Any thread.
#pragma once

#include "base/text.h"
#include "http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>

namespace sublet::http {

inline std::string query_value(const Request& request, const char* name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? std::string() : found->second;
}

// Parses "2026-11-21T16:00:05Z", with up to nine digits of a second's fraction.
std::optional<Time> parse_time(std::string_view text);

// Reads the parameter "wait", a duration of at most an hour; zero if it is missing.
inline Result<Duration> query_wait(const Request& request) {
  const std::string text = query_value(request, "wait");
  if (text.empty()) return Duration{};
  const auto parsed = parse_duration(text);
  if (!parsed) return parsed.error();
  return std::min<Duration>(*parsed, std::chrono::hours(1));
}

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
