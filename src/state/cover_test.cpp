// SPDX-License-Identifier: Apache-2.0
#include "state/cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

Duration cost_of(const std::vector<Candidate>& candidates, const std::vector<std::size_t>& chosen) {
  Duration cost{};
  for (const std::size_t i : chosen) cost += candidates[i].cost;
  return cost;
}

Bytes gain_of(const std::vector<Candidate>& candidates, const std::vector<std::size_t>& chosen) {
  Bytes gain;
  for (const std::size_t i : chosen) gain += candidates[i].frees;
  return gain;
}

std::vector<Candidate> some_candidates(std::mt19937_64& random, std::size_t count) {
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < count; ++i)
    candidates.push_back({static_cast<std::int64_t>(random() % 12) * GiB, Duration(1 + random() % 50) * 100'000'000});
  return candidates;
}

void expect_minimal(const std::vector<Candidate>& candidates, const std::vector<std::size_t>& chosen, Bytes need) {
  EXPECT_GE(gain_of(candidates, chosen), need);
  for (const std::size_t i : chosen)
    EXPECT_LT(gain_of(candidates, chosen) - candidates[i].frees, need) << "one of them gives for nothing";
}

std::optional<Duration> cheapest_by_force(const std::vector<Candidate>& candidates, Bytes need) {
  std::optional<Duration> best;
  for (std::size_t set = 0; set < (std::size_t{1} << candidates.size()); ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (set >> i & 1) chosen.push_back(i);
    if (gain_of(candidates, chosen) < need) continue;
    best = std::min(best.value_or(Duration::max()), cost_of(candidates, chosen));
  }
  return best;
}

TEST(Cover, IsTheCheapestOfAll) {
  std::mt19937_64 random{20261122};
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const std::vector<Candidate> candidates = some_candidates(random, 1 + random() % 11);
    const Bytes need = static_cast<std::int64_t>(1 + random() % 40) * GiB;
    const std::optional<Duration> best = cheapest_by_force(candidates, need);
    const auto chosen = cheapest_cover(candidates, need);
    ASSERT_EQ(chosen.has_value(), best.has_value());
    if (!chosen) continue;
    EXPECT_EQ(cost_of(candidates, *chosen), *best);
    expect_minimal(candidates, *chosen, need);
  }
}

TEST(Cover, NamesTheCheapestFirst) {
  const std::vector<Candidate> candidates{{4 * GiB, 3s}, {4 * GiB, 1s}, {4 * GiB, 2s}, {4 * GiB, 9s}};
  EXPECT_EQ(cheapest_cover(candidates, 12 * GiB), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(Cover, NeedsNobodyForNothingAndFindsNobodyForTooMuch) {
  const std::vector<Candidate> candidates{{4 * GiB, 3s}, {Bytes{}, 0s}, {Bytes{-5}, 0s}};
  EXPECT_EQ(cheapest_cover(candidates, Bytes{}), std::vector<std::size_t>{});
  EXPECT_EQ(cheapest_cover(candidates, Bytes{-1}), std::vector<std::size_t>{});
  EXPECT_EQ(cheapest_cover(candidates, 4 * GiB), std::vector<std::size_t>{0}) << "who gives nothing is left alone";
  EXPECT_EQ(cheapest_cover(candidates, 4 * GiB + Bytes{1}), std::nullopt);
  EXPECT_EQ(cheapest_cover({}, GiB), std::nullopt);
}

TEST(Cover, OfManyItIsSmallAndNotDearerThanTakingThemByTheirPrice) {
  std::mt19937_64 random{5};
  for (int round = 0; round < 100; ++round) {
    const std::vector<Candidate> candidates = some_candidates(random, 21 + random() % 300);
    const Bytes need = static_cast<std::int64_t>(1 + random() % 100) * GiB;
    const auto chosen = cheapest_cover(candidates, need);
    ASSERT_EQ(chosen.has_value(), [&] {
      Bytes all;
      for (const Candidate& candidate : candidates) all += candidate.frees;
      return all >= need;
    }());
    if (!chosen) continue;
    expect_minimal(candidates, *chosen, need);
    for (const Candidate& candidate : candidates) {
      const bool enough_alone = candidate.frees >= need;
      EXPECT_FALSE(enough_alone && candidate.cost < cost_of(candidates, *chosen)) << "one alone was cheaper";
    }
  }
}

}  // namespace
}  // namespace sublet::core
