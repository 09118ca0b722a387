// SPDX-License-Identifier: Apache-2.0
#include "http/query.h"

#include "base/number.h"

#include <ctime>

namespace sublet::http {

std::optional<Time> parse_time(std::string_view text) {
  constexpr std::string_view form = "0000-00-00T00:00:00";
  if (text.size() <= form.size() || text.back() != 'Z') return {};
  const std::string moment(text.substr(0, form.size()));
  const std::string_view fraction = text.substr(form.size(), text.size() - form.size() - 1);
  std::tm parts{};
  const char* end = ::strptime(moment.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != '\0' || parts.tm_year < 70 || parts.tm_year > 200) return {};
  Time time{std::int64_t{::timegm(&parts)} * 1'000'000'000};
  // Other forms of a moment, such as a 31st of April, are formatted differently.
  if (format_rfc3339(time).substr(0, form.size()) != moment) return {};
  if (fraction.empty()) return time;
  if (fraction[0] != '.' || fraction.size() < 2 || fraction.size() > 10) return {};
  std::string digits(fraction.substr(1));
  digits.resize(9, '0');
  const auto ns = parse_number<std::int32_t>(digits);
  return ns && *ns >= 0 ? std::optional(time + Duration(*ns)) : std::nullopt;
}

}  // namespace sublet::http
