// SPDX-License-Identifier: Apache-2.0
#include "core/cover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

Duration cost_of(const std::vector<Giver>& givers, const std::vector<std::size_t>& chosen) {
  Duration cost{};
  for (const std::size_t i : chosen) cost += givers[i].cost;
  return cost;
}

Bytes gain_of(const std::vector<Giver>& givers, const std::vector<std::size_t>& chosen) {
  Bytes gain;
  for (const std::size_t i : chosen) gain += givers[i].gain;
  return gain;
}

std::vector<Giver> some_givers(std::mt19937_64& random, std::size_t count) {
  std::vector<Giver> givers;
  for (std::size_t i = 0; i < count; ++i)
    givers.push_back({static_cast<std::int64_t>(random() % 12) * GiB, Duration(1 + random() % 50) * 100'000'000});
  return givers;
}

Duration cheapest_by_force(const std::vector<Giver>& givers, Bytes need) {
  Duration best = Duration::max();
  for (std::size_t set = 0; set < (std::size_t{1} << givers.size()); ++set) {
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < givers.size(); ++i)
      if (set >> i & 1) chosen.push_back(i);
    if (gain_of(givers, chosen) >= need) best = std::min(best, cost_of(givers, chosen));
  }
  return best;
}

void expect_minimal(const std::vector<Giver>& givers, const std::vector<std::size_t>& chosen, Bytes need) {
  EXPECT_GE(gain_of(givers, chosen), need);
  for (const std::size_t i : chosen)
    EXPECT_LT(gain_of(givers, chosen) - givers[i].gain, need) << "one of them gives for nothing";
}

TEST(Cover, IsTheCheapestOfAll) {
  std::mt19937_64 random{20261122};
  for (int round = 0; round < 400; ++round) {
    const std::vector<Giver> givers = some_givers(random, 1 + random() % 12);
    const Bytes need = static_cast<std::int64_t>(1 + random() % 50) * GiB;
    const auto chosen = cheapest_cover(givers, need);
    const Duration best = cheapest_by_force(givers, need);
    ASSERT_EQ(chosen.has_value(), best != Duration::max()) << "round " << round;
    if (!chosen) continue;
    EXPECT_EQ(cost_of(givers, *chosen), best) << "round " << round;
    expect_minimal(givers, *chosen, need);
  }
}

// One after the other, the cheapest first, each with what those before it have left there.
bool have_place(const std::vector<Giver>& givers, std::vector<std::size_t> chosen, Bytes place) {
  std::ranges::stable_sort(chosen, {}, [&](std::size_t i) { return givers[i].cost; });
  Bytes all;
  std::map<std::uint32_t, Bytes> of;
  for (const std::size_t i : chosen) {
    const Giver& giver = givers[i];
    if (all + giver.enters > place || of[giver.user] + giver.enters > giver.for_user) return false;
    all += giver.stays;
    of[giver.user] += giver.stays;
  }
  return true;
}

TEST(Cover, IsTheCheapestOfThoseThatHavePlace) {
  std::mt19937_64 random{20261124};
  int tight = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Giver> givers = some_givers(random, 1 + random() % 10);
    for (Giver& giver : givers) {
      giver.enters = giver.gain + GiB;
      giver.stays = random() % 2 == 0 ? giver.enters : Bytes{giver.enters.count / 2};
      giver.user = static_cast<std::uint32_t>(random() % 2);
      giver.for_user = 20 * GiB;
    }
    const Bytes need = static_cast<std::int64_t>(1 + random() % 30) * GiB, place = 30 * GiB;
    std::optional<Duration> best;
    for (std::size_t set = 0; set < (std::size_t{1} << givers.size()); ++set) {
      std::vector<std::size_t> chosen;
      for (std::size_t i = 0; i < givers.size(); ++i)
        if (set >> i & 1) chosen.push_back(i);
      if (gain_of(givers, chosen) < need || !have_place(givers, chosen, place)) continue;
      best = std::min(best.value_or(Duration::max()), cost_of(givers, chosen));
    }
    const auto chosen = cheapest_cover(givers, need, place);
    ASSERT_EQ(chosen.has_value(), best.has_value()) << "round " << round;
    if (!chosen) continue;
    tight += cost_of(givers, *chosen) > cheapest_by_force(givers, need);
    EXPECT_EQ(cost_of(givers, *chosen), *best) << "round " << round;
    EXPECT_TRUE(have_place(givers, *chosen, place)) << "round " << round;
    expect_minimal(givers, *chosen, need);
  }
  EXPECT_GT(tight, 10) << "or it never mattered";
}

TEST(Cover, NamesTheCheapestFirst) {
  const std::vector<Giver> givers{{4 * GiB, 3s}, {4 * GiB, 1s}, {4 * GiB, 2s}, {4 * GiB, 9s}};
  EXPECT_EQ(cheapest_cover(givers, 12 * GiB), (std::vector<std::size_t>{1, 2, 0}));
}

TEST(Cover, NeedsNobodyForNothingAndFindsNobodyForTooMuch) {
  const std::vector<Giver> givers{{4 * GiB, 3s}, {Bytes{}, 0s}, {Bytes{-5}, 0s}};
  EXPECT_EQ(cheapest_cover(givers, Bytes{}), std::vector<std::size_t>{});
  EXPECT_EQ(cheapest_cover(givers, Bytes{-1}), std::vector<std::size_t>{});
  EXPECT_EQ(cheapest_cover(givers, 4 * GiB), std::vector<std::size_t>{0}) << "who gives nothing is left alone";
  EXPECT_EQ(cheapest_cover(givers, 4 * GiB + Bytes{1}), std::nullopt);
  EXPECT_EQ(cheapest_cover({}, GiB), std::nullopt);
}

TEST(Cover, OfManyItIsSmallAndNotDearerThanTakingThemByTheirPrice) {
  std::mt19937_64 random{5};
  for (int round = 0; round < 100; ++round) {
    const std::vector<Giver> givers = some_givers(random, 21 + random() % 300);
    const Bytes need = static_cast<std::int64_t>(1 + random() % 100) * GiB;
    const auto chosen = cheapest_cover(givers, need);
    ASSERT_EQ(chosen.has_value(), [&] {
      Bytes all;
      for (const Giver& giver : givers) all += giver.gain;
      return all >= need;
    }());
    if (!chosen) continue;
    expect_minimal(givers, *chosen, need);
    for (const Giver& giver : givers) {
      const bool enough_alone = giver.gain >= need;
      EXPECT_FALSE(enough_alone && giver.cost < cost_of(givers, *chosen)) << "one alone was cheaper";
    }
  }
}

}  // namespace
}  // namespace sublet::core
