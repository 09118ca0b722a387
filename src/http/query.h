// SPDX-License-Identifier: Apache-2.0
// Reading the query of a request.
#pragma once

#include "base/moment.h"
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

// Reads a time (base/moment.h): times without a zone are UTC, and a duration is so long ago. Unset if it is missing.
inline Result<std::optional<Moment>> query_moment(const Request& request, const char* name, Time now) {
  const std::string text = query_value(request, name);
  if (text.empty()) return std::optional<Moment>();
  auto moment = parse_moment(text, now, Tense::past, Zone::utc);
  if (!moment) return bad_request(fmt::format("{}: {}", name, moment.error().detail), moment.error().hint);
  return std::optional(*moment);
}

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
