// SPDX-License-Identifier: Apache-2.0
// Obstacles to a pause that are not the consumer's doing: the machine, its driver, a process beside it.
#include "core/testing/ideal_executor.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

// Programs of a card that are not parked as they are asked to be.
struct Hindered : Card {
  LeaseId holds, urgent;
  LeaseId beside;
  explicit Hindered(Tier tier = Tier::batch, Tier of_beside = Tier::standard) {
    rules.spot_unused_after = 30s;
    holds = start(16 * GiB, tier, "train");
    beside = start(4 * GiB, of_beside, "beside");
    urgent = start(10 * GiB, Tier::standard, "serve");
  }
  void refused(ObstacleCode by) {
    Parked fact{false, "process 102 is in the way", {}, true};
    fact.code = by;
    step(AttemptEvent{holds, fact});
    step(AttemptEvent{holds, Unparked{Unparked::How::runs, {}, plenty}});
    obeyed = actions.size();
  }
  // As it lives, without anything that is ordered being done.
  void wait(Duration d) {
    const Time until = now + d;
    while (now < until) {
      now = std::max(now, std::min({until, now + 1s, std::max(last.wake_at, now + 1ms)}));
      step(Tick{});
      measure();
    }
  }
  void asked_and_refused(ObstacleCode by) {
    ASSERT_EQ(states(holds), "pausing");
    refused(by);
  }
  explain::QueueInfo told() const { return info(urgent); }
  bool parks(LeaseId id) const { return way_to_yield(state, rules, at(id), 1000, now).parks(); }
  std::string ineligible_for() {
    const PreemptionQuery asking{at(urgent), std::nullopt};
    const auto plan = plan_victims(state, rules, asking, now);
    return plan.ineligible.empty() ? std::string()
                                   : ineligible_text(state, rules, asking, plan.ineligible.front(), now);
  }
};

constexpr ObstacleCode lasting[] = {ObstacleCode::no_right, ObstacleCode::unsupported_driver, ObstacleCode::swap};

TEST(Barred, WhatLastsPromisesNobodyItsRoomAndCountsAgainstNobody) {
  for (const ObstacleCode by : lasting) {
    Hindered w;
    ASSERT_TRUE(w.told().eta.has_value());
    w.asked_and_refused(by);
    EXPECT_EQ(standing_of(w.state, w.holds).failures, 0);
    EXPECT_EQ(w.trust("train"), 1.0);
    EXPECT_FALSE(w.told().eta.has_value()) << w.told().basis;
    EXPECT_SAYS(w.ineligible_for(), "process 102 is in the way");
    const int before = w.ordered<Park>();
    w.wait(1min);
    EXPECT_EQ(w.ordered<Park>(), before) << "nor is it asked to again and again";
    EXPECT_EQ(w.states(w.holds), "active") << "only of the tier spot somebody is ended for that";
    w.wait(2min);
    EXPECT_GT(w.ordered<Park>(), before) << "somebody may have changed it";
  }
}

TEST(Barred, WhatPassesIsTriedAgainSoonEachTime) {
  Hindered w;
  for (int times = 0; times < 4; ++times) {
    w.asked_and_refused(ObstacleCode::traced);
    EXPECT_SAYS(w.told().basis, "the next pause is possible in 10 s: process 102 is in the way");
    EXPECT_EQ(standing_of(w.state, w.holds).failures, 0);
    EXPECT_EQ(w.trust("train"), 1.0);
    w.wait(w.rules.cooldown + 1s);
  }
}

TEST(Barred, ADriverThatParksNobodyIsAskedForNobodyElseUnlessItsOwnerWants) {
  Hindered w;
  w.asked_and_refused(ObstacleCode::unsupported_driver);
  const auto way = way_to_yield(w.state, w.rules, w.at(w.beside), 1000, w.now);
  EXPECT_EQ(way.obstacle, ObstacleCode::unsupported_driver);
  EXPECT_TRUE(w.accepts(Pause{w.holds, 0, {}, plenty}));
  EXPECT_EQ(w.states(w.holds), "pausing");

  // A spot lease would be ended for that, so that it is asked itself before.
  Hindered spot(Tier::batch, Tier::spot);
  spot.asked_and_refused(ObstacleCode::unsupported_driver);
  spot.wait(1min);
  EXPECT_TRUE(spot.parks(spot.beside));

  Hindered one;
  one.asked_and_refused(ObstacleCode::no_right);
  EXPECT_TRUE(one.parks(one.beside));
}

TEST(Barred, ByTheDriverItYieldsByItself) {
  Hindered w;
  w.asked_and_refused(ObstacleCode::no_right);
  Cooperation how;
  how.process = w.at(w.holds).owner.process;
  w.step(Cooperate{w.holds, 0, how});
  w.wait(w.rules.cooldown + 1s);
  ASSERT_EQ(w.states(w.holds), "pausing");
  EXPECT_EQ(w.at(w.holds).parking->method, PauseMethod::cooperative);
}

TEST(Barred, OneOfTheTierSpotIsEndedForWhatLastsOnly) {
  for (const ObstacleCode by : lasting) {
    Hindered w(Tier::spot);
    w.asked_and_refused(by);
    w.wait(w.rules.cooldown + 1s);
    w.asked_and_refused(by);
    EXPECT_EQ(w.states(w.holds), "active") << "it may still register as cooperative";
    w.wait(w.rules.spot_unused_after);
    EXPECT_EQ(w.at(w.holds).end_reason, EndReason::revoked) << "after the second refusal";
    EXPECT_SAYS(w.reason(w.holds, ReasonKind::spot_obstructed).text("obstacle"), "process 102");
  }
  Hindered w(Tier::spot);
  w.asked_and_refused(ObstacleCode::traced);
  w.wait(1min);
  EXPECT_NE(w.state_of(w.holds), LeaseState::ended);
}

// A driver that is being installed is back soon; one that many tries over minutes did not find is missing.
TEST(Barred, ADriverIsMissingOnceManyTriesOverMinutesDidNotFindIt) {
  const struct {
    const char* name;
    Duration between;
    ObstacleCode other;  // one of the tries fails for another reason
    bool missing;
  } rows[] = {
      {"tried again and again", 11s, ObstacleCode::no_driver, true},
      {"too few tries", 5min, ObstacleCode::no_driver, false},
      {"the driver was there", 11s, ObstacleCode::timeout, false},
      {"the driver was not asked", 11s, ObstacleCode::traced, true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Hindered w;
    w.step(Release{.lease = w.urgent, .force = true});
    if (w.states(w.holds) == "pausing") w.refused(ObstacleCode::no_driver);
    for (int tries = 0; tries < 14; ++tries) {
      w.wait(row.between);
      ASSERT_TRUE(w.accepts(Pause{w.holds, 0, {}, plenty}));
      w.refused(tries == 8 ? row.other : ObstacleCode::no_driver);
    }
    EXPECT_EQ(bar_of(w.state, w.holds, PauseMethod::driver, w.now) != nullptr, row.missing);
  }
}

}  // namespace
}  // namespace sublet::core::testing
