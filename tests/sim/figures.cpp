// SPDX-License-Identifier: Apache-2.0
#include "figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace sublet::sim {
namespace {

constexpr double per_doubling = 8;
constexpr Duration first = std::chrono::milliseconds(1);

std::string median_and_tail(const Figures::Times& times) {
  return fmt::format("median {}, p95 {}", format_duration(times.at(0.5)), format_duration(times.at(0.95)));
}

}  // namespace

void Figures::Times::add(Duration time) {
  const double doublings = time <= first ? 0 : std::log2(static_cast<double>(time.count()) / first.count());
  ++counts[std::min(static_cast<std::size_t>(doublings * per_doubling), steps - 1)];
}

Duration Figures::Times::at(double part) const {
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
  double sum = 0;
  for (std::size_t step = 0; step < steps && all > 0; ++step) {
    sum += static_cast<double>(counts[step]);
    if (sum < part * all) continue;
    const double factor = std::exp2(static_cast<double>(step + 1) / per_doubling);
    return Duration(static_cast<Duration::rep>(static_cast<double>(first.count()) * factor));
  }
  return {};
}

void Figures::add(const Figures& other) {
  for (std::size_t step = 0; step < steps; ++step) {
    waits.counts[step] += other.waits.counts[step];
    pauses.counts[step] += other.pauses.counts[step];
  }
  never_granted += other.never_granted;
  moved += other.moved;
}

std::string Figures::text() const {
  return fmt::format("waits: {}, {} leases ended without a grant; pauses: {}; parked: {}", median_and_tail(waits),
                     never_granted, median_and_tail(pauses), format_size(Bytes{static_cast<std::int64_t>(moved)}));
}

}  // namespace sublet::sim
