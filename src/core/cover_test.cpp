// SPDX-License-Identifier: Apache-2.0
#include "core/cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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

// One after the other, the cheapest first, each with what those before it have left there.
bool have_place(const std::vector<Candidate>& candidates, std::vector<std::size_t> chosen, Bytes place) {
  std::ranges::stable_sort(chosen, {}, [&](std::size_t i) { return candidates[i].cost; });
  Bytes all;
  std::map<std::uint32_t, Bytes> of;
  for (const std::size_t i : chosen) {
    const Candidate& candidate = candidates[i];
    if (all + candidate.budget_now > place || of[candidate.user] + candidate.budget_now > candidate.for_user)
      return false;
    all += candidate.budget_later;
    of[candidate.user] += candidate.budget_later;
  }
  return true;
}

std::optional<Duration> cheapest_by_force(const std::vector<Candidate>& candidates, Bytes need,
                                          std::optional<Bytes> place = {}) {
  std::optional<Duration> best;
  for (std::size_t set = 0; set < (std::size_t{1} << candidates.size()); ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < candidates.size(); ++i)
      if (set >> i & 1) chosen.push_back(i);
    if (gain_of(candidates, chosen) < need || (place && !have_place(candidates, chosen, *place))) continue;
    best = std::min(best.value_or(Duration::max()), cost_of(candidates, chosen));
  }
  return best;
}

TEST(Cover, IsTheCheapestOfAllAndOfThoseThatHavePlace) {
  std::mt19937_64 random{20261122};
  int tight = 0;
  for (int round = 0; round < 800; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Candidate> candidates = some_candidates(random, 1 + random() % 11);
    const std::optional<Bytes> place = round % 2 == 0 ? std::nullopt : std::optional(30 * GiB);
    for (Candidate& candidate : candidates) {
      if (!place) break;
      candidate.budget_now = candidate.frees + GiB;
      candidate.budget_later = random() % 2 == 0 ? candidate.budget_now : Bytes{candidate.budget_now.count / 2};
      candidate.user = static_cast<std::uint32_t>(random() % 2);
      candidate.for_user = 20 * GiB;
    }
    const Bytes need = static_cast<std::int64_t>(1 + random() % 40) * GiB;
    const std::optional<Duration> best = cheapest_by_force(candidates, need, place);
    const auto chosen = cheapest_cover(candidates, need, place);
    ASSERT_EQ(chosen.has_value(), best.has_value());
    if (!chosen) continue;
    EXPECT_EQ(cost_of(candidates, *chosen), *best);
    EXPECT_TRUE(!place || have_place(candidates, *chosen, *place));
    tight += cost_of(candidates, *chosen) > *cheapest_by_force(candidates, need);
    expect_minimal(candidates, *chosen, need);
  }
  EXPECT_GT(tight, 10) << "or it never mattered";
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
