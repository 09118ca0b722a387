// SPDX-License-Identifier: Apache-2.0
#include "lease/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// A link and a program as they might be: a fixed part, a rate, and jitter of the whole.
struct Link {
  double fixed_s, gib_per_s, jitter;
  std::mt19937_64 random{20261122};

  Duration takes(Bytes bytes) {
    std::normal_distribution<double> noise(1.0, jitter);
    const double s = fixed_s + static_cast<double>(bytes.count) / static_cast<double>(GiB.count) / gib_per_s;
    return Duration(std::llround(s * std::max(noise(random), 0.3) * 1e9));
  }
};

Bytes some_size(std::mt19937_64& random) { return {(512 + static_cast<std::int64_t>(random() % 3584)) * MiB.count}; }

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

const Consumer train{1000, "train"}, fresh{1000, "new"};

struct Errors {
  std::vector<double> relative;
  int within_p95 = 0, beyond_longest = 0, count = 0;
  double median() {
    std::nth_element(relative.begin(), relative.begin() + count / 2, relative.end());
    return relative[static_cast<std::size_t>(count / 2)];
  }
};

Errors errors_of(CostModel& model, Link& link, int rounds) {
  Errors errors;
  std::mt19937_64 random{7};
  for (int i = 0; i < rounds; ++i) {
    const Bytes bytes = some_size(random);
    const Prediction said = model.predict(train, {"A"}, PauseMethod::driver, Move::pause, bytes);
    const Duration took = link.takes(bytes);
    model.learn({train, PauseMethod::driver, Move::pause, {bytes, took}, Time{i + 1}, "A"});
    if (i < 6) continue;
    ++errors.count;
    errors.relative.push_back(std::abs(seconds(took) / seconds(said.likely) - 1));
    errors.within_p95 += took <= said.at_most;
    errors.beyond_longest += took > said.longest;
  }
  return errors;
}

TEST(Record, CountsUndonePausesAndTheirPrice) {
  const MethodRecord record{0b101, 4};
  EXPECT_EQ(record.failed(), 2);
  EXPECT_EQ(record.reliability(), 0.6);
  EXPECT_EQ(MethodRecord{}.penalty(), Duration{});
  EXPECT_EQ((MethodRecord{0, 1}.penalty()), 10s) << "one further attempt is expected";
}

TEST(Cost, FollowsALinkThatJitters) {
  CostModel model;
  Link link{0.8, 1.9, 0.2};
  Errors errors = errors_of(model, link, 4000);
  EXPECT_LE(errors.median(), 0.15);
  EXPECT_GE(errors.within_p95, errors.count * 90 / 100);
  EXPECT_LE(errors.within_p95, errors.count * 99 / 100);
  EXPECT_LE(errors.beyond_longest, errors.count / 1000);
}

TEST(Cost, FollowsWithinFivePausesWhenTheLinkIsCutToAQuarter) {
  for (const double jitter : {0.0, 0.05, 0.2}) {
    CostModel model;
    Link link{0.5, 8, jitter};
    (void)errors_of(model, link, 30);
    link.gib_per_s = 2;
    std::mt19937_64 random{11};
    for (int i = 0; i < 5; ++i) {
      const Bytes bytes = some_size(random);
      model.learn({train, PauseMethod::driver, Move::pause, {bytes, link.takes(bytes)}, Time{100 + i}, "A"});
    }
    link.jitter = 0;
    for (const Bytes bytes : {GiB, 2 * GiB, 4 * GiB}) {
      const double said = seconds(model.predict(train, {"A"}, PauseMethod::driver, Move::pause, bytes).likely);
      EXPECT_NEAR(said / seconds(link.takes(bytes)), 1, 0.1 + jitter) << bytes.count << " with jitter " << jitter;
    }
  }
}

// How long a driver shows what is gone may grow with it, and has a heavy tail: nobody honest is to be called a liar.
TEST(Cost, WhatSettlesByItsSizeWithAHeavyTailIsFollowed) {
  CostModel model;
  std::mt19937_64 random{11};
  std::lognormal_distribution<double> tail(0, 0.4);
  int beyond = 0;
  for (int i = 0; i < 4000; ++i) {
    const Bytes bytes = some_size(random);
    const double gib = static_cast<double>(bytes.count) / static_cast<double>(GiB.count);
    const Duration took(std::llround((0.06 + 0.35 * gib) * tail(random) * 1e9));
    const Prediction said = model.predict(train, {"A"}, PauseMethod::driver, Move::settle, bytes);
    beyond += took > std::max<Duration>(said.longest, 2s);
    model.learn({train, PauseMethod::driver, Move::settle, {bytes, took}, Time{i + 1}, "A"});
  }
  EXPECT_LE(beyond, 4) << "one in a thousand";
  const auto likely = [&](Bytes bytes) {
    return seconds(model.predict(train, {"A"}, PauseMethod::driver, Move::settle, bytes).likely);
  };
  EXPECT_GT(likely(4 * GiB), 2 * likely(GiB));
}

TEST(Cost, OneThatWasNeverSeenIsExpectedToMoveAsOthersDidHere) {
  CostModel model;
  const Prediction assumed = model.predict(fresh, {"A"}, PauseMethod::driver, Move::pause, 8 * GiB);
  EXPECT_EQ(assumed.samples, 0u);
  EXPECT_NEAR(seconds(assumed.likely), 0.8 + 8 * 1.0737 / 2, 0.1) << "2 GB/s and 0.8 s, until something is measured";
  Link link{0.2, 10, 0.05};
  for (int i = 0; i < 12; ++i) {
    const Bytes bytes = static_cast<std::int64_t>(1 + i % 4) * GiB;
    model.learn({train, PauseMethod::driver, Move::pause, {bytes, link.takes(bytes)}, Time{i + 1}, "A"});
  }
  EXPECT_NEAR(seconds(model.predict(fresh, {"A"}, PauseMethod::driver, Move::pause, 8 * GiB).likely), 1.0, 0.25);
  EXPECT_EQ(model.predict(train, {"A"}, PauseMethod::driver, Move::pause, GiB).samples, 12u);
}

// A pause of "train" by the driver, as often as the curve keeps it.
void learn_on(CostModel& model, const std::string& device, double gib_per_s) {
  Link link{0.2, gib_per_s, 0.02};
  for (int i = 0; i < 16; ++i) {
    const Bytes bytes = static_cast<std::int64_t>(1 + i % 4) * GiB;
    model.learn({train, PauseMethod::driver, Move::pause, {bytes, link.takes(bytes)}, Time{i + 1}, device});
  }
}

double said_of(const CostModel& model, const std::vector<std::string>& devices) {
  return seconds(model.predict(fresh, devices, PauseMethod::driver, Move::pause, 8 * GiB).likely);
}

TEST(Cost, OneThatWasNeverSeenIsExpectedToMoveAsOthersDidOnItsDevice) {
  CostModel model;
  learn_on(model, "fast", 16);
  learn_on(model, "slow", 2);
  EXPECT_NEAR(said_of(model, {"fast"}), 0.7, 0.1);
  EXPECT_NEAR(said_of(model, {"slow"}), 4.2, 0.4);
  EXPECT_EQ(said_of(model, {"fast", "slow"}), said_of(model, {"slow"})) << "all of it on the slowest";
  EXPECT_EQ(said_of(model, {"slow", "fast"}), said_of(model, {"slow"}));
  EXPECT_EQ(said_of(model, {"new"}), said_of(model, {})) << "where nothing was measured the machine counts";
  EXPECT_NEAR(said_of(model, {"new"}), 4.2, 1.0) << "as the newest on any of them";
  EXPECT_EQ(said_of(model, {"fast", "new"}), said_of(model, {"new"}));
  const double before = said_of(model, {"fast"});
  learn_on(model, "", 1);
  EXPECT_GT(said_of(model, {}), 6) << "the machine has seen a move over several devices";
  EXPECT_NEAR(said_of(model, {"fast"}), before, 0.1 * before) << "which says nothing of one of them";
}

TEST(Cost, NothingIsExpectedToMoveFasterThanTheLinkUntilSomethingHas) {
  CostModel model;
  const auto takes = [&](const char* device, PauseMethod method, Move move) {
    return seconds(model.predict(train, {device}, method, move, 8 * GiB).likely);
  };
  const double assumed = takes("A", PauseMethod::driver, Move::pause);
  model.know_link("A", 32 * GiB);
  EXPECT_EQ(takes("A", PauseMethod::driver, Move::pause), assumed) << "it is no slower than was assumed anyway";
  model.know_link("A", 256 * MiB);
  EXPECT_GT(takes("A", PauseMethod::driver, Move::pause), 32);
  EXPECT_GT(takes("A", PauseMethod::cooperative, Move::resume), 32);
  EXPECT_LT(takes("A", PauseMethod::driver, Move::settle), 1) << "no bytes move";
  EXPECT_EQ(takes("B", PauseMethod::driver, Move::pause), assumed);
  learn_on(model, "A", 16);
  EXPECT_LT(takes("A", PauseMethod::driver, Move::pause), 2) << "what was measured counts, whatever the driver told";
}

TEST(Cost, WhatAnotherUsersProgramsOfTheNameTookIsAnyOthers) {
  CostModel model;
  learn_on(model, "A", 16);
  const Consumer theirs{1001, "train"};
  EXPECT_EQ(model.predict(theirs, {"A"}, PauseMethod::driver, Move::pause, GiB).samples, 0U);
  for (int i = 0; i < 16; ++i) model.learn({theirs, PauseMethod::driver, Move::pause, {GiB, 30s}, Time{100 + i}, "B"});
  EXPECT_NEAR(seconds(model.predict(train, {"A"}, PauseMethod::driver, Move::pause, 8 * GiB).likely), 0.7, 0.1);
  EXPECT_GT(seconds(model.predict(theirs, {"B"}, PauseMethod::driver, Move::pause, GiB).likely), 15);
}

TEST(Cost, OneSampleThatIsFarOffIsNotBelieved) {
  CostModel model;
  Link link{0.5, 4, 0.02};
  (void)errors_of(model, link, 16);
  const double before = seconds(model.predict(train, {"A"}, PauseMethod::driver, Move::pause, 2 * GiB).likely);
  model.learn({train, PauseMethod::driver, Move::pause, {2 * GiB, 30s}, Time{99}, "A"});
  EXPECT_LT(seconds(model.predict(train, {"A"}, PauseMethod::driver, Move::pause, 2 * GiB).likely), before * 1.3);
}

TEST(Cost, SaysTheSameAfterARestart) {
  CostModel model, reloaded;
  Link link{0.5, 4, 0.2};
  std::vector<LearnedMove> stored;
  std::mt19937_64 random{3};
  for (int i = 0; i < 50; ++i) {
    const Bytes bytes = some_size(random);
    if (i == 40) link.gib_per_s = 1;
    const Consumer consumer = i % 3 == 0 ? Consumer{1000, "infer"} : train;
    const char* device = i % 2 == 0 ? "A" : "B";
    stored.push_back({consumer, PauseMethod::driver, Move::pause, {bytes, link.takes(bytes)}, Time{i + 1}, device});
    model.learn(stored.back());
  }
  for (const LearnedMove& move : stored) reloaded.learn(move);
  for (const Consumer& consumer : {train, Consumer{1000, "infer"}, fresh})
    for (const char* device : {"A", "B"})
      EXPECT_EQ(model.predict(consumer, {device}, PauseMethod::driver, Move::pause, 3 * GiB).at_most,
                reloaded.predict(consumer, {device}, PauseMethod::driver, Move::pause, 3 * GiB).at_most);
}

TEST(Cost, NamesOfMovesAreThoseOfTheStore) {
  for (const Move move : {Move::pause, Move::settle, Move::resume}) EXPECT_EQ(parse_move(to_string(move)), move);
  EXPECT_EQ(parse_move("jump"), std::nullopt);
}

}  // namespace
}  // namespace sublet::core
