// SPDX-License-Identifier: Apache-2.0
#include "credit/counts.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <random>

namespace sublet::credit {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

TEST(Counts, APageIsTheSumOfItsShards) {
  sublet_use_page page{};
  page.shard[0] = {.launches = 3, .copied = 100, .allocated = 4096, .reserved = {}};
  page.shard[31] = {.launches = 4, .copied = 1, .allocated = 0, .reserved = {}};
  page.error[0] = {.code = 2, .reserved = 0, .count = 5};
  page.error[1] = {.code = 700, .reserved = 0, .count = 1};
  page.other_errors = 9;
  EXPECT_EQ(read_counts(page), Counts{}) << "the process has not taken its page";
  page.size = sizeof page;
  EXPECT_EQ(read_counts(page), (Counts{7, 101, 4096, {{2, 5}, {700, 1}}, 9}));
}

TEST(Counts, TimesAreThoseOfEachDevice) {
  sublet_use_page page{};
  page.size = sizeof page;
  page.device[0].busy = 100, page.device[0].held = 7;
  page.device[SUBLET_LIMIT_DEVICES - 1].busy = ~std::uint64_t{0};
  const Counts counts = read_counts(page);
  EXPECT_EQ(counts.busy[0], 100);
  EXPECT_EQ(counts.waited[0], 7);
  EXPECT_EQ(counts.all_busy(), largest);
  EXPECT_EQ(counts.all_waited(), 7);
  Counts before;
  before.busy[0] = 40, before.waited[0] = 9;
  EXPECT_EQ(counts.since(before).busy[0], 60);
  EXPECT_EQ(counts.since(before).waited[0], 0);
}

TEST(Counts, GrowthIsNeverLessThanZero) {
  const Counts before{7, 100, 50, {{2, 5}, {3, 1}}, 4};
  const Counts now{9, 90, 50, {{2, 4}, {700, 6}}, 5};
  EXPECT_EQ(now.since(before), (Counts{2, 0, 0, {{700, 6}}, 1}));
  EXPECT_EQ(now.since({}), now);
}

TEST(Counts, SumsStopAtTheLargestNumber) {
  Counts counts{largest - 1, 0, 0, {{2, largest}}, largest};
  counts.add({5, 1, 2, {{2, 1}}, 1});
  EXPECT_EQ(counts, (Counts{largest, 1, 2, {{2, largest}}, largest}));
}

TEST(Counts, CodesThatAProgramMakesUpAreNotToldApart) {
  Counts counts;
  for (std::uint32_t code = 0; code < 100; ++code) counts.add_errors(code, 1);
  counts.add_errors(largest_code + 1, 1);
  EXPECT_EQ(counts.errors.size(), most_codes);
  EXPECT_EQ(counts.other_errors, 101 - static_cast<std::int64_t>(most_codes));
}

TEST(Counts, PagesThatAProgramScribblesInAreBounded) {
  std::mt19937_64 random(60);
  Counts sum;
  for (int round = 0; round < 2000; ++round) {
    std::array<std::uint64_t, sizeof(sublet_use_page) / 8> words{};
    for (auto& word : words) word = random() >> random() % 64;
    sublet_use_page page{};
    std::memcpy(&page, words.data(), sizeof page);
    page.size = sizeof page;
    const Counts read = read_counts(page);
    sum.add(read.since(sum));
    sum.add(read);
    EXPECT_LE(sum.errors.size(), most_codes);
    EXPECT_TRUE(sum.launches >= 0 && sum.copied >= 0 && sum.allocated >= 0 && sum.other_errors >= 0);
    for (const auto& [code, number] : sum.errors) EXPECT_TRUE(code > 0 && code <= largest_code && number > 0);
  }
}

}  // namespace
}  // namespace sublet::credit
