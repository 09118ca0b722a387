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

std::int64_t monotonic_ns() { return read_ns(CLOCK_MONOTONIC); }

SystemClock::SystemClock(Time not_before)
    : offset_ns_(std::max(read_ns(CLOCK_REALTIME), not_before.ns) - monotonic_ns()) {}

Time SystemClock::now() const { return {monotonic_ns() + offset_ns_}; }

}  // namespace sublet
