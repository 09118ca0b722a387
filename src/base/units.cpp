// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include "base/size_bounds.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <utility>

namespace sublet {
namespace {

__extension__ using Wide = unsigned __int128;  // products of 64-bit numbers, before they are checked

constexpr std::int64_t size_limit = 1LL << 62;
constexpr auto size_hint = "write a size such as 8GiB, 512M or 8GB; a bare number is bytes";

// A decimal number with an optional fraction, as `value / scale`. Integers keep 0.1GiB exact to a byte.
struct Decimal {
  Wide value = 0;
  Wide scale = 1;
  std::size_t length = 0;  // characters read
  bool overflow = false;
};

Decimal read_decimal(std::string_view text) {
  Decimal number;
  bool fraction = false;
  for (const char c : text) {
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      if (number.value > (static_cast<Wide>(1) << 80)) {
        number.overflow = true;
      } else if (!fraction || number.scale < 1'000'000'000) {
        number.value = number.value * 10 + static_cast<unsigned>(c - '0');
        if (fraction) number.scale *= 10;
      }
    } else {
      break;
    }
    ++number.length;
  }
  return number;
}

// Returns number × unit, rounded down, or `limit` + 1 if the product is above `limit`.
Wide times(const Decimal& number, std::int64_t unit, std::int64_t limit) {
  const Wide above = static_cast<Wide>(limit) + 1;
  Wide product = 0;
  if (number.overflow || __builtin_mul_overflow(number.value, static_cast<Wide>(unit), &product)) return above;
  return std::min(product / number.scale, above);
}

std::int64_t size_unit(std::string unit) {
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  static constexpr std::string_view prefixes = "KMGTP";
  if (unit.empty() || unit == "B") return 1;
  const auto power = prefixes.find(unit[0]);
  if (power == std::string_view::npos) return 0;
  const std::string rest = unit.substr(1);
  std::int64_t scale = 1;
  if (rest.empty() || rest == "I" || rest == "IB") {
    for (std::size_t i = 0; i <= power; ++i) scale *= 1024;
  } else if (rest == "B") {
    for (std::size_t i = 0; i <= power; ++i) scale *= 1000;
  } else {
    return 0;
  }
  return scale;
}

enum class Rounding { nearest, down, up };

// Divides. `nearest` rounds halves to the even number. Neither argument may be negative.
std::int64_t divided(std::int64_t number, std::int64_t by, Rounding rounding) {
  const std::int64_t whole = number / by;
  const std::int64_t rest = number % by;
  const bool nearer = 2 * rest > by || (2 * rest == by && whole % 2 == 1);
  return rounding == Rounding::up ? whole + (rest > 0) : whole + (rounding == Rounding::nearest && nearer);
}

// Uses integers: every decision formats sizes several times, and a double with one digit takes long to print.
std::string size_text(Bytes bytes, Rounding rounding) {
  static constexpr std::array<std::pair<std::int64_t, const char*>, 4> units{
      {{1LL << 40, "TiB"}, {1LL << 30, "GiB"}, {1LL << 20, "MiB"}, {1LL << 10, "KiB"}}};
  const bool negative = bytes.count < 0;
  const std::int64_t size = negative ? -bytes.count : bytes.count;
  for (const auto& [unit, name] : units) {
    if (size < unit) continue;
    std::string text = negative ? "-" : "";
    const std::int64_t tenths = size < 100 * unit ? divided(10 * size, unit, rounding) : 1000;
    if (tenths < 1000) text += std::to_string(tenths / 10) + '.' + static_cast<char>('0' + tenths % 10);
    else text += std::to_string(divided(size, unit, rounding));
    return text + ' ' + name;
  }
  return std::to_string(bytes.count) + " B";
}

}  // namespace

Result<Bytes> parse_size(std::string_view text, bool zero_ok) {
  const auto refuse = [&](std::string_view why) {
    return bad_request(fmt::format("size '{}' {}", printable(text), why), size_hint);
  };
  if (text.empty()) return refuse("is empty");
  if (text.front() == ' ' || text.back() == ' ') return refuse("begins or ends with a blank");
  if (text[0] == '-') return refuse("is negative");
  const Decimal number = read_decimal(text);
  if (number.length == 0 || std::isdigit(static_cast<unsigned char>(text[0])) == 0) return refuse("is not a number");
  std::string_view unit_text = text.substr(number.length);
  while (!unit_text.empty() && unit_text[0] == ' ') unit_text.remove_prefix(1);
  if (unit_text.starts_with(',')) return refuse("has a comma: the decimal sign is a point");
  const std::int64_t unit = unit_text.size() > 4 ? 0 : size_unit(std::string(unit_text));
  if (unit == 0) return refuse(fmt::format("has the unknown unit '{}'", printable(unit_text)));
  const Wide total = times(number, unit, size_limit);
  if (total > static_cast<Wide>(size_limit)) return refuse("is more than 2^62 bytes");
  if (total == 0 && !zero_ok) return refuse("is zero bytes");
  return Bytes{static_cast<std::int64_t>(total)};
}

std::string format_size(Bytes bytes) { return size_text(bytes, Rounding::nearest); }
std::string format_size_down(Bytes bytes) { return size_text(bytes, Rounding::down); }
std::string format_size_up(Bytes bytes) { return size_text(bytes, Rounding::up); }

std::pair<std::string, std::string> format_sizes_apart(Bytes larger, Bytes smaller) {
  const std::string more = format_size(larger), less = format_size(smaller);
  return more == less ? std::pair(format_size_up(larger), format_size_down(smaller)) : std::pair(more, less);
}

std::pair<std::string, std::string> format_sizes_finely(Bytes larger, Bytes smaller) {
  std::pair<std::string, std::string> texts(format_size(larger), format_size_down(smaller));
  static constexpr std::array<std::pair<std::int64_t, const char*>, 3> finer{
      {{1LL << 20, "MiB"}, {1LL << 10, "KiB"}, {1, "B"}}};
  for (const auto& [unit, name] : finer) {
    if (texts.first != texts.second || larger == smaller) break;
    texts = {fmt::format("{} {}", divided(larger.count, unit, Rounding::nearest), name),
             fmt::format("{} {}", smaller.count / unit, name)};
  }
  return texts;
}

Result<Duration> parse_duration(std::string_view text) {
  constexpr auto hint = "write a duration such as 90s, 5m, 1h30m, 2d or 2w; a bare number is seconds";
  const auto refuse = [&](std::string_view why) {
    return bad_request(fmt::format("duration '{}' {}", printable(text), why), hint);
  };
  constexpr std::int64_t limit = 100LL * 366 * 86400 * 1'000'000'000LL;
  if (text.empty()) return refuse("is empty");
  if (text.front() == ' ' || text.back() == ' ') return refuse("begins or ends with a blank");
  if (text[0] == '-') return refuse("is negative");
  std::string_view rest = text;
  Wide total = 0;
  while (!rest.empty()) {
    const Decimal number = read_decimal(rest);
    if (number.length == 0 || std::isdigit(static_cast<unsigned char>(rest[0])) == 0) return refuse("is not a number");
    rest.remove_prefix(number.length);
    std::size_t letters = 0;
    while (letters < rest.size() && std::isalpha(static_cast<unsigned char>(rest[letters])) != 0) ++letters;
    const std::string_view unit = rest.substr(0, letters);
    rest.remove_prefix(letters);
    std::int64_t scale = 0;
    if (unit == "s" || (unit.empty() && number.length == text.size())) scale = 1'000'000'000;
    else if (unit == "ms") scale = 1'000'000;
    else if (unit == "us") scale = 1'000;
    else if (unit == "ns") scale = 1;
    else if (unit == "m" || unit == "min") scale = 60'000'000'000;
    else if (unit == "h") scale = 3'600'000'000'000;
    else if (unit == "d") scale = 86'400'000'000'000;
    else if (unit == "w") scale = 7 * 86'400'000'000'000;
    else return refuse(fmt::format("has the unknown unit '{}'", printable(unit)));
    total += times(number, scale, limit);
    if (total > static_cast<Wide>(limit)) return refuse("is more than 100 years");
  }
  return Duration(static_cast<std::int64_t>(total));
}

std::string format_duration(Duration duration) {
  const std::int64_t ms = duration.count() / 1'000'000;
  if (ms < 0) return fmt::format("-{}", format_duration(-duration));  // "-" + text makes g++ 12 warn wrongly
  if (ms < 1000) return fmt::format("{} ms", ms);
  const std::int64_t seconds = (ms + 500) / 1000;
  const auto pair = [](std::int64_t a, const char* unit_a, std::int64_t b, const char* unit_b) {
    return b == 0 ? fmt::format("{} {}", a, unit_a) : fmt::format("{} {} {} {}", a, unit_a, b, unit_b);
  };
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return pair(seconds / 60, "min", seconds % 60, "s");
  if (seconds < 86400) return pair(seconds / 3600, "h", seconds % 3600 / 60, "min");
  return pair(seconds / 86400, "d", seconds % 86400 / 3600, "h");
}

// Written by hand for speed: each lease in an answer has several of these times.
std::string format_rfc3339(Time time) {
  using namespace std::chrono;
  const sys_time<milliseconds> moment(floor<milliseconds>(Duration(time.ns)));
  const auto day = floor<days>(moment);
  const year_month_day date(day);
  const hh_mm_ss clock(moment - day);
  std::string text = "0000-00-00T00:00:00.000Z";
  const auto put = [&text](std::size_t end, std::int64_t number) {
    for (; number > 0; number /= 10) text[--end] = static_cast<char>('0' + number % 10);
  };
  put(4, int(date.year()));
  put(7, unsigned(date.month()));
  put(10, unsigned(date.day()));
  put(13, clock.hours().count());
  put(16, clock.minutes().count());
  put(19, clock.seconds().count());
  put(23, clock.subseconds().count());
  return text;
}

}  // namespace sublet
