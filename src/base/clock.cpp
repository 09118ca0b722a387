// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <algorithm>
#include <ctime>

namespace sublet {
namespace {

std::int64_t read_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

Time wall_time() { return {read_ns(CLOCK_REALTIME)}; }

std::int64_t monotonic_ns() { return read_ns(CLOCK_MONOTONIC); }

std::int64_t slept_ns() {
  // The thread may lose its processor between the two readings. Readings that are too far apart are not compared.
  constexpr std::int64_t close_together = 10'000'000;
  for (;;) {
    const std::int64_t awake = monotonic_ns();
    const std::int64_t all = read_ns(CLOCK_BOOTTIME);
    if (monotonic_ns() - awake < close_together) return all - awake;
  }
}

SystemClock::SystemClock(Time not_before)
    : offset_ns_(std::max(read_ns(CLOCK_REALTIME), not_before.ns) - monotonic_ns()), slept_ns_(sublet::slept_ns()) {}

Duration SystemClock::take_sleep() {
  constexpr std::int64_t shortest = 1'000'000'000;
  const std::int64_t slept = sublet::slept_ns();
  const std::int64_t since = slept - slept_ns_;
  if (since < shortest) return {};
  slept_ns_ = slept;
  offset_ns_ += since;
  return Duration(since);
}

Time SystemClock::now() const { return {monotonic_ns() + offset_ns_}; }

void SystemClock::go_on_from(Time time) {
  const std::int64_t monotonic = monotonic_ns();
  if (time.ns > monotonic + offset_ns_) offset_ns_ = time.ns - monotonic;
}

}  // namespace sublet
