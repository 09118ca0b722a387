// SPDX-License-Identifier: Apache-2.0
#include "placement/cluster.h"

#include <gtest/gtest.h>

namespace sublet::placement {
namespace {

const Mix halves{{{1, 500}, 0.5}, {{1, 1000}, 0.25}, {{2, 1000}, 0.25}};

TEST(Fragmented, IsFreeMemoryThatExpectedRequestsCannotUse) {
  const struct {
    const char* name;
    std::vector<Amount> free;
    double lost;
  } rows[] = {
      {"idle", {1000, 1000}, 0},
      {"too little for anybody", {400, 400}, 800},
      {"a half is lost to whole devices", {500, 1000}, 0.25 * 500 + 0.25 * 1500},
      {"two devices are not there for a pair", {1000, 0}, 0.25 * 1000},
      {"nothing is free", {0, 0}, 0},
  };
  for (const auto& row : rows)
    EXPECT_DOUBLE_EQ(fragmented({.free = row.free, .whole = 1000}, halves), row.lost) << row.name;
  EXPECT_EQ(fragmented({.free = {10}, .whole = 10}, {}), 0) << "nothing is expected";
}

TEST(Choose, EachPolicyHasItsDevice) {
  const struct {
    const char* name;
    Policy policy;
    std::vector<Amount> free;
    Request request;
    std::vector<std::size_t> devices;
  } rows[] = {
      {"best fit leaves least", Policy::best_fit, {1000, 700, 600}, {1, 500}, {2}},
      {"spread leaves most", Policy::spread, {600, 1000, 700}, {1, 500}, {1}},
      {"pack takes one in use", Policy::pack, {1000, 900}, {1, 500}, {1}},
      {"a gradient keeps whole devices whole", Policy::fragmentation, {1000, 500}, {1, 500}, {1}},
      {"a gradient fills the remainder that nobody can use", Policy::fragmentation, {1000, 700, 400}, {1, 300}, {2}},
      {"several take the fullest that are enough", Policy::best_fit, {1000, 400, 700, 800}, {2, 600}, {2, 3}},
      {"equal ones: the first", Policy::best_fit, {700, 700}, {1, 500}, {0}},
      {"no device for none", Policy::pack, {700}, {0, 0}, {}},
  };
  for (const auto& row : rows) {
    const auto choice = choose(row.policy, {.free = row.free, .whole = 1000}, row.request, halves);
    ASSERT_TRUE(choice) << row.name;
    EXPECT_EQ(choice->devices, row.devices) << row.name;
  }
  for (const Policy policy : {Policy::fragmentation, Policy::best_fit, Policy::pack, Policy::spread, Policy::random}) {
    EXPECT_FALSE(choose(policy, {.free = {400, 400}, .whole = 1000}, {1, 500}, halves)) << to_string(policy);
    EXPECT_FALSE(choose(policy, {.free = {500}, .whole = 1000, .cpu = 7}, {1, 500, 8}, halves)) << to_string(policy);
    EXPECT_EQ(parse_policy(to_string(policy)), policy);
  }
  EXPECT_FALSE(parse_policy("best"));
}

// Both machines can hold the usual request before and after, and the first one has less to spare.
TEST(Choose, KeepsTheProcessorsThatFreeMemoryNeeds) {
  const Mix usual{{{1, 1000, 4}, 1}};
  const Request request{0, 0, 4};
  Machine few{.free = {1000, 1000}, .whole = 1000, .cpu = 10, .most = 2000, .most_cpu = 100}, many = few;
  many.cpu = 100;
  EXPECT_GT(choose(Policy::fragmentation, many, request, usual)->score,
            choose(Policy::fragmentation, few, request, usual)->score);
  EXPECT_LT(choose(Policy::fragmentation, many, request, {})->score,
            choose(Policy::fragmentation, few, request, {})->score)
      << "without a mix, processors are not known to be needed";
}

TEST(Cost, IsWhatTheUsualRequestsLose) {
  EXPECT_DOUBLE_EQ(cost(1000, 500, halves), 0.25 * 1000 + 0.25 * 1000 + 0.5 * 500);
  EXPECT_DOUBLE_EQ(cost(400, 400, halves), 0) << "nobody could use it";
  EXPECT_DOUBLE_EQ(cost(1000, 500, {}), 0) << "nothing is expected";
}

TEST(Mix, KeepsAFloorForWhatIsLargeAndRare) {
  std::vector<Request> seen(99, Request{1, 100});
  seen.push_back({8, 1000});
  EXPECT_DOUBLE_EQ(mix_of(seen, 1000).back().weight, 0.01);
  EXPECT_DOUBLE_EQ(mix_of(seen, 1000, 0.25).back().weight, 0.25 / 1.24);
  EXPECT_TRUE(mix_of({}, 1000).empty());
}

TEST(Cluster, TakesAndGivesBackAndRefusesWhatFitsNowhere) {
  Cluster cluster({{.free = {1000, 1000}, .whole = 1000, .cpu = 4}, {.free = {1000}, .whole = 1000, .cpu = 1}},
                  Policy::fragmentation, halves, 1);
  const Request pair{2, 1000, 1}, half{1, 500, 1};
  const auto first = cluster.place(half);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->machine, 1U) << "the pair of devices stays whole";
  EXPECT_FALSE(cluster.place({1, 500, 4096})) << "no machine has the processors";
  const auto both = cluster.place(pair);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->devices, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(cluster.held(), 2500);
  EXPECT_FALSE(cluster.place(half)) << "the processors of the second machine are taken";
  cluster.give_back(*both, pair);
  EXPECT_EQ(cluster.held(), 500);
  EXPECT_TRUE(cluster.place(half));
}

TEST(Cluster, ARandomOneIsTheSameForTheSameSeed) {
  const auto places = [](std::uint64_t seed) {
    Cluster cluster(std::vector<Machine>(50, {.free = {1000}, .whole = 1000}), Policy::random, {}, seed);
    std::vector<std::size_t> all;
    for (int i = 0; i < 40; ++i) all.push_back(cluster.place({1, 1000})->machine);
    return all;
  };
  EXPECT_EQ(places(1), places(1));
  EXPECT_NE(places(1), places(2));
}

}  // namespace
}  // namespace sublet::placement
