// SPDX-License-Identifier: Apache-2.0
// Bytes, durations and points in time as types, with their text forms. All values are integers: no rounding, no NaN.
#pragma once

#include "base/error.h"

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace sublet {

// A count of bytes. Signed, so that a difference may be negative. Input is checked to lie in 0 … 2^62 before it becomes
// Bytes, so that sums do not overflow.
struct Bytes {
  std::int64_t count = 0;

  constexpr auto operator<=>(const Bytes&) const = default;
  constexpr Bytes& operator+=(Bytes other) {
    count += other.count;
    return *this;
  }
  constexpr Bytes& operator-=(Bytes other) {
    count -= other.count;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return {a.count + b.count}; }
  friend constexpr Bytes operator-(Bytes a, Bytes b) { return {a.count - b.count}; }
};

inline constexpr Bytes KiB{1LL << 10}, MiB{1LL << 20}, GiB{1LL << 30};
constexpr Bytes operator*(std::int64_t n, Bytes unit) { return {n * unit.count}; }

// Parses "8G" = "8GiB" = 8·2^30, "8GB" = 8·10^9, "512M", "0.5GiB". A bare number is bytes. Refuses signs, unknown
// units, zero unless `zero_ok`, and sizes above 2^62.
Result<Bytes> parse_size(std::string_view text, bool zero_ok = false);
std::string format_size(Bytes bytes);  // "6.0 GiB", "512 MiB", "17 B": three digits, for people

using Duration = std::chrono::nanoseconds;

// A point on the daemon's own clock (base/clock.h), in nanoseconds since 1970. The clock starts at the wall clock's
// time when the daemon starts, and the monotonic clock moves it. It never jumps, and it stops while the host sleeps. It
// never goes back, restarts included. Used for order and waiting and, rounded, for display.
struct Time {
  std::int64_t ns = 0;
  constexpr auto operator<=>(const Time&) const = default;
  friend constexpr Time operator+(Time t, Duration d) { return {t.ns + d.count()}; }
  friend constexpr Time operator-(Time t, Duration d) { return {t.ns - d.count()}; }
  friend constexpr Duration operator-(Time a, Time b) { return Duration(a.ns - b.ns); }
  static constexpr Time never() { return {INT64_MAX}; }
};

// Returns t + d, or never() if the sum is too large.
constexpr Time after(Time t, Duration d) {
  return d.count() > 0 && t.ns > INT64_MAX - d.count() ? Time::never() : t + d;
}

// Parses "90s", "5m", "1h30m", "2d", "250ms". A bare number is seconds. Refuses signs and more than 100 years.
Result<Duration> parse_duration(std::string_view text);
std::string format_duration(Duration duration);  // "3 s", "2 min 5 s", "1 h 3 min": for people
std::string format_rfc3339(Time time);           // "2026-11-21T16:00:05.123Z"

}  // namespace sublet
