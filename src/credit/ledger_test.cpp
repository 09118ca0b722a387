// SPDX-License-Identifier: Apache-2.0
#include "credit/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sublet::credit {
namespace {

constexpr ProcessRef ana{1, 10}, ben{2, 20}, eva{3, 30};
using Charges = std::map<ProcessRef, Bytes>;

TEST(Ledger, StepsShrinkAsLessIsFree) {
  Ledger ledger(1 * GiB);
  const auto first = ledger.ask(ana, 10 * MiB, {});
  EXPECT_TRUE(first.enough);
  EXPECT_EQ(first.credit, 10 * MiB + 252 * MiB) << "a quarter of the rest, in blocks";
  const auto again = ledger.ask(ana, 200 * MiB, {{ana, 10 * MiB}});
  EXPECT_TRUE(again.enough);
  EXPECT_EQ(again.credit, first.credit) << "it has that already";
  const auto second = ledger.ask(ben, 1 * MiB, {});
  EXPECT_EQ(second.credit, 2 * MiB + 190 * MiB);
  EXPECT_EQ(ledger.given(), first.credit + second.credit);
  Ledger large(100 * GiB);
  EXPECT_EQ(large.ask(ana, 1 * GiB, {}).credit, 1 * GiB + largest_step);
}

TEST(Ledger, AllOfTheLimitIsGiven) {
  Ledger ledger(101 * MiB);
  EXPECT_TRUE(ledger.ask(ana, 101 * MiB, {}).enough) << "a limit need not be whole blocks";
  EXPECT_EQ(ledger.given(), 101 * MiB);
  const auto refused = ledger.ask(ben, {1}, {{ana, 101 * MiB}});
  EXPECT_FALSE(refused.enough);
  EXPECT_TRUE(refused.recalls.empty());
  EXPECT_FALSE(ledger.ask(ana, 102 * MiB, {{ana, 101 * MiB}}).enough);
}

TEST(Ledger, UnusedCreditIsRecalledBeforeARefusal) {
  Ledger ledger(100 * MiB);
  ASSERT_TRUE(ledger.ask(ana, 50 * MiB, {}).enough);
  ASSERT_TRUE(ledger.ask(ben, 38 * MiB, {}).enough);
  ASSERT_EQ(ledger.given(), 100 * MiB);
  const Charges charges{{ana, 20 * MiB}, {ben, 30 * MiB}};
  const auto asked = ledger.ask(eva, 40 * MiB, charges);
  EXPECT_FALSE(asked.enough);
  const std::vector<Recall> expected{{ana, 22 * MiB}};
  EXPECT_EQ(asked.recalls, expected) << "the largest unused credit, and only what is needed";
  EXPECT_EQ(ledger.ask(eva, 40 * MiB, charges).recalls, expected) << "not confirmed yet";
  ledger.confirm(expected.front());
  EXPECT_TRUE(ledger.ask(eva, 40 * MiB, charges).enough);
  EXPECT_EQ(ledger.given(), 100 * MiB);
  EXPECT_TRUE(ledger.ask(eva, 60 * MiB, charges).recalls.empty()) << "nothing is recalled in vain";
}

TEST(Ledger, CreditOfAnEndedProcessStaysTakenUntilItsBytesAreGone) {
  Ledger ledger(100 * MiB);
  ASSERT_TRUE(ledger.ask(ana, 100 * MiB, {}).enough);
  ledger.forget(ana);
  EXPECT_EQ(ledger.given(), 100 * MiB) << "it lives";
  ledger.end(ana);
  EXPECT_FALSE(ledger.ask(ana, 1 * MiB, {}).enough) << "it asks no more";
  const auto refused = ledger.ask(ben, 10 * MiB, {});
  EXPECT_FALSE(refused.enough);
  EXPECT_TRUE(refused.recalls.empty());
  ledger.forget(ana);
  EXPECT_TRUE(ledger.ask(ben, 10 * MiB, {}).enough);
}

TEST(Ledger, ASmallerLimitTakesUnusedCreditByRecallsOnly) {
  Ledger ledger(100 * MiB);
  ASSERT_TRUE(ledger.ask(ana, 80 * MiB, {}).enough);
  ledger.resize(60 * MiB);
  EXPECT_EQ(ledger.excess(), ledger.given() - 60 * MiB);
  const Charges charges{{ana, 70 * MiB}};
  EXPECT_FALSE(ledger.ask(ben, 1 * MiB, charges).enough);
  for (const auto& recall : ledger.find_recalls(ledger.excess(), {}, charges)) ledger.confirm(recall);
  EXPECT_EQ(ledger.given(), 70 * MiB) << "used credit stays";
  ledger.resize(100 * MiB);
  EXPECT_TRUE(ledger.ask(ben, 30 * MiB, charges).enough);
}

// Processes that charge at the same time as the daemon recalls: what they have charged is never over the limit.
struct Crowd {
  static constexpr int size = 64;
  Ledger ledger{8 * GiB};
  Charges charges;
  std::mt19937_64 chance{60};

  static ProcessRef process(int number) { return {number + 1, 100}; }
  int draw(int below) { return static_cast<int>(chance() % static_cast<unsigned>(below)); }

  void recall(const Recall& recall) {
    auto& charged = charges[recall.process];
    // The process may charge the rest of its credit first: its page shows that, and the recall does not hold.
    if (draw(4) == 0) charged = ledger.credit_of(recall.process);
    if (charged <= recall.credit) ledger.confirm(recall);
  }

  bool allocate(ProcessRef who, Bytes bytes) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Bytes needed = charges[who] + bytes;
      const auto answer = ledger.ask(who, needed, charges);
      EXPECT_LE(ledger.given(), ledger.limit());
      if (answer.enough) {
        charges[who] = needed;
        return true;
      }
      if (answer.recalls.empty()) return false;
      for (const auto& order : answer.recalls) recall(order);
    }
    return false;
  }

  Bytes charged() const {
    Bytes sum;
    for (const auto& [who, bytes] : charges) sum += bytes;
    return sum;
  }
};

TEST(Ledger, ManyProcessesRaceToTheLimitAndNeverPassIt) {
  Crowd crowd;
  for (int step = 0; step < 100'000; ++step) {
    const auto who = Crowd::process(crowd.draw(Crowd::size));
    auto& charged = crowd.charges[who];
    if (crowd.draw(3) == 0) charged -= std::min(charged, (crowd.draw(100) + 1) * block);
    else crowd.allocate(who, (crowd.draw(60) + 1) * block);
    ASSERT_LE(crowd.charged(), crowd.ledger.limit());
    // A process dies; its bytes go later.
    if (crowd.draw(200) == 0 && crowd.ledger.credit_of(who) > Bytes{}) {
      crowd.ledger.end(who);
      ASSERT_FALSE(crowd.ledger.ask(who, 1 * MiB, {}).enough);
      crowd.ledger.forget(who);
      charged = {};
    }
  }
  for (int left = 0; left < Crowd::size; ++left)
    while (crowd.allocate(Crowd::process(left), block)) {
    }
  EXPECT_GT(crowd.charged(), crowd.ledger.limit() - 128 * MiB) << "a part of the limit was never used";
}

}  // namespace
}  // namespace sublet::credit
