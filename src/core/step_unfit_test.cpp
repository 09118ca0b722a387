// SPDX-License-Identifier: Apache-2.0
// Programs that the driver cannot park, and what has changed of one by the time it is locked.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

// It was asked of the driver, and came back so.
void refuse(TwoLeases& w, ObstacleCode unfit, std::string why) {
  ASSERT_TRUE(w.pause().has_value());
  w.step(AttemptEvent{w.victim, Parked{false, std::move(why), {}, true, unfit}});
  w.unparked();
  ASSERT_EQ(w.states(w.victim), "active");
}

TEST(Unfit, WhatTheDriverCannotParkIsNotAskedAgain) {
  TwoLeases w;
  refuse(w, ObstacleCode::not_parkable, "pid 7 uses managed memory");
  EXPECT_LT(w.trust("train"), 1);
  EXPECT_EQ(w.pause().error().code, Code::PauseUnsafe);
  EXPECT_SAYS(w.pause().error().detail, "pid 7 uses managed memory");
  EXPECT_EQ(w.ordered<Park>(), 1);
  w.step(Grant{w.at(w.victim).uid, "train", true});
  EXPECT_FALSE(w.pause().has_value()) << "no word changes what it uses";
  w.pass(30min);
  EXPECT_FALSE(w.pause().has_value());
  Cooperation how;
  how.process = process(7);
  ASSERT_TRUE(w.accepts(Cooperate{w.victim, 0, how}));
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.at(w.victim).parking->method, PauseMethod::cooperative) << "yielding by itself is left";
}

TEST(Unfit, TheWordOfItsOwnerLiftsWhatOnlyHeCanAnswerFor) {
  TwoLeases w;
  refuse(w, ObstacleCode::owner_must_vouch, "nobody can see whether process 7 uses managed memory");
  EXPECT_EQ(w.trust("train"), 1) << "nothing was tried";
  EXPECT_SAYS(w.pause().error().hint, "sublet pause --grant train");
  w.step(Grant{w.at(w.victim).uid + 1, "train", true});
  w.step(Grant{w.at(w.victim).uid, "other", true});
  EXPECT_FALSE(w.pause().has_value());
  w.step(Grant{w.at(w.victim).uid, "train", true});
  EXPECT_TRUE(w.pause().has_value());
}

TEST(Unfit, ARestartOfTheDaemonForgetsNothingOfIt) {
  for (const ObstacleCode unfit : {ObstacleCode::not_parkable, ObstacleCode::owner_must_vouch}) {
    TwoLeases w;
    refuse(w, unfit, "it may use managed memory");
    w.restart();
    w.measure(10 * GiB);
    const auto again = w.pause();
    ASSERT_FALSE(again.has_value());
    EXPECT_SAYS(again.error().detail, "it may use managed memory");
    EXPECT_EQ(w.ordered<Park>(), 1);
    w.step(Grant{w.at(w.victim).uid, "train", true});
    EXPECT_EQ(w.last.changed.size(), unfit == ObstacleCode::owner_must_vouch ? 1U : 0U);
    w.state = State::load(w.stored(), {}, w.state.leases.last_id, w.rules, w.now, {}, w.state.learned.grants);
    w.step(Tick{});
    w.measure(10 * GiB);
    EXPECT_EQ(w.pause().has_value(), unfit == ObstacleCode::owner_must_vouch) << "nor that its owner answers for it";
  }
}

TEST(Unfit, AnotherProgramIsAskedAnew) {
  TwoLeases w;
  refuse(w, ObstacleCode::not_parkable, "pid 7 uses managed memory");
  Attach attach{w.victim, 0, w.at(w.victim).owner, true, {}};
  attach.owner.keeper = process(70);
  ASSERT_TRUE(w.accepts(attach));
  EXPECT_FALSE(w.pause().has_value()) << "another keeper, the same program";
  attach.owner.process = process(71);
  ASSERT_TRUE(w.accepts(attach));
  EXPECT_TRUE(w.pause().has_value());
}

}  // namespace
}  // namespace sublet::core::testing
