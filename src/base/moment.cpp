// SPDX-License-Identifier: Apache-2.0
#include "base/moment.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <ctime>

namespace sublet {
namespace {

constexpr std::int64_t second = 1'000'000'000;
constexpr int first_year = 1970, last_year = 2200;

// Reads one piece after the other from the front of a text. A piece that is not there makes `ok` false.
struct Pieces {
  std::string_view rest;
  bool ok = true;

  bool skip(std::string_view one_of) {
    if (rest.empty() || one_of.find(rest.front()) == std::string_view::npos) return false;
    rest.remove_prefix(1);
    return true;
  }
  void need(std::string_view one_of) { ok = skip(one_of) && ok; }
  int digits(std::size_t count, int least, int most) {
    const auto number = parse_number<int>(rest.substr(0, count));
    const bool plain = rest.size() >= count && std::isdigit(static_cast<unsigned char>(rest.front())) != 0;
    ok = ok && plain && number && *number >= least && *number <= most;
    rest.remove_prefix(std::min(count, rest.size()));
    return ok ? *number : 0;
  }
};

// Midnight of the day in `parts`, or a time of this day. Nothing for a 31st of April.
std::optional<Time> time_of(std::tm parts, Zone zone) {
  const int day = parts.tm_mday, month = parts.tm_mon;
  parts.tm_isdst = -1;
  const std::time_t seconds = zone == Zone::utc ? ::timegm(&parts) : ::mktime(&parts);
  if (parts.tm_mday != day || parts.tm_mon != month) return std::nullopt;
  return Time{std::int64_t{seconds} * second};
}

std::optional<Time> midnight(Time now, Zone zone, int days_later) {
  const std::time_t seconds = now.ns / second;
  std::tm parts{};
  if ((zone == Zone::utc ? ::gmtime_r(&seconds, &parts) : ::localtime_r(&seconds, &parts)) == nullptr)
    return std::nullopt;
  parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
  parts.tm_mday += days_later;
  parts.tm_isdst = -1;
  return Time{std::int64_t{zone == Zone::utc ? ::timegm(&parts) : ::mktime(&parts)} * second};
}

Duration fraction(Pieces& text) {
  std::int64_t ns = 0, unit = second / 10;
  std::size_t read = 0;
  while (!text.rest.empty() && std::isdigit(static_cast<unsigned char>(text.rest.front())) != 0) {
    ns += (text.rest.front() - '0') * unit;
    unit /= 10;
    text.rest.remove_prefix(1);
    ++read;
  }
  text.ok = text.ok && read > 0 && read <= 9;
  return Duration(ns);
}

// The distance of a zone from UTC; nothing if the text has no zone.
std::optional<Duration> offset(Pieces& text) {
  if (text.skip("Zz")) return Duration{};
  const bool west = text.rest.starts_with('-');
  if (!text.skip("+-")) return std::nullopt;
  Duration distance = std::chrono::hours(text.digits(2, 0, 23));
  text.skip(":");
  distance += std::chrono::minutes(text.digits(2, 0, 59));
  return west ? -distance : distance;
}

// A day, or a day with a time.
std::optional<Time> parse_date(std::string_view text, Zone zone) {
  Pieces pieces{text};
  std::tm parts{};
  parts.tm_year = pieces.digits(4, first_year, last_year) - 1900;
  pieces.need("-");
  parts.tm_mon = pieces.digits(2, 1, 12) - 1;
  pieces.need("-");
  parts.tm_mday = pieces.digits(2, 1, 31);
  if (!pieces.ok) return std::nullopt;
  if (pieces.rest.empty()) return time_of(parts, zone);
  pieces.need("Tt ");
  parts.tm_hour = pieces.digits(2, 0, 23);
  pieces.need(":");
  parts.tm_min = pieces.digits(2, 0, 59);
  if (pieces.skip(":")) parts.tm_sec = pieces.digits(2, 0, 60);
  const Duration part = pieces.skip(".") ? fraction(pieces) : Duration{};
  const auto east = offset(pieces);
  if (!pieces.ok || !pieces.rest.empty()) return std::nullopt;
  const auto time = time_of(parts, east ? Zone::utc : zone);
  return time ? std::optional(*time + part - east.value_or(Duration{})) : std::nullopt;
}

std::optional<Time> parse_word(std::string_view text, Time now, Zone zone) {
  if (text == "now") return now;
  if (text == "today") return midnight(now, zone, 0);
  if (text == "yesterday") return midnight(now, zone, -1);
  if (text == "tomorrow") return midnight(now, zone, 1);
  return std::nullopt;
}

}  // namespace

Result<Moment> parse_moment(std::string_view text, Time now, Tense tense, Zone zone) {
  if (const auto time = parse_word(text, now, zone)) return Moment{*time};
  if (const auto time = parse_date(text, zone)) return Moment{*time};
  if (const auto distance = parse_duration(text))
    return Moment{tense == Tense::past ? now - *distance : after(now, *distance), *distance};
  return bad_request(fmt::format("'{}' is not a time", printable(text)),
                     "write a day (2026-11-28), a time ('2026-11-28 07:50', 2026-11-28T07:50:00Z), today, yesterday, "
                     "or a duration such as 10m, 36h or 2w");
}

std::string to_query(const Moment& moment) {
  if (!moment.distance) return format_rfc3339(moment.at);
  return fmt::format("{}ms", *moment.distance / std::chrono::milliseconds(1));
}

}  // namespace sublet
