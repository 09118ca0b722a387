// SPDX-License-Identifier: Apache-2.0
// Events during a pause: a request while the pause is undone, a preemptor that leaves, a driver call that does not
// return.
#include "core/testing/attempt.h"
#include "core/testing/ideal_executor.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

// -------------------------------------------------------------------------------- whose word is the last

TEST(Attempt, AResumeWhileItIsUndoneIsTheLastWord) {
  Attempt w;
  w.cooperate();
  w.pause();
  w.refused();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_TRUE(w.step(Resume{w.victim}).outcome.has_value());
  EXPECT_TRUE(w.parking().resume_requested);
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active) << "no other method is tried";
  EXPECT_EQ(w.parks(), 1);
}

TEST(Attempt, AResumeBeforeItFailedIsTheLastWordToo) {
  Attempt w;
  w.cooperate();
  w.pause();
  w.step(Resume{w.victim});
  w.refused();
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
}

TEST(Attempt, APauseAfterThatIsTheLastWord) {
  Attempt w;
  w.ask();
  w.weighed();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::pausing);
  EXPECT_TRUE(w.parking().resume_requested);
  EXPECT_TRUE(w.pause().has_value());
  EXPECT_FALSE(w.parking().resume_requested) << "its owner wants it to stay";
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(w.state_of(w.urgent), LeaseState::active);
  w.step(Release{.lease = w.urgent, .force = true});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
}

// -------------------------------------------------------------------------------- whose room it is for

TEST(Attempt, TheNextMethodIsTriedForWhoStillWaits) {
  Attempt w;
  w.cooperate();
  w.ask();
  w.weighed();
  ASSERT_EQ(w.parking().method, PauseMethod::cooperative);
  w.refused();
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_failed).text("next_if_wanted"), "driver");
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "at once";
  EXPECT_EQ(w.parking().method, PauseMethod::driver);
  EXPECT_TRUE(w.parking().resume_requested);
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB);
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.urgent), LeaseState::active);
  EXPECT_EQ(w.standing().failures, 0);
}

TEST(Attempt, NothingMoreIsTriedForOneWhoHasGone) {
  Attempt w;
  w.cooperate();
  w.ask();
  w.weighed();
  w.refused();
  w.step(Release{.lease = w.urgent});
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.parks(), 1);
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::resumed).has("after"));
  EXPECT_EQ(w.standing().failures, 1);
  EXPECT_GE(w.standing().ineligible_until, w.now + w.rules.cooldown);
}

TEST(Attempt, EachMethodIsTriedOnce) {
  Attempt w;
  w.cooperate();
  w.ask();
  w.weighed();
  w.refused();
  w.runs();
  w.refused();
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.parks(), 2);
  w.pass(w.rules.cooldown / 2);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active) << "it is left alone";
}

// -------------------------------------------------------------------------------- a driver that does not return

// Two of them on the card, and the cheaper one hangs.
struct Hanging : Card {
  LeaseId first, second, urgent;
  Hanging() {
    first = start(10 * GiB, Tier::batch, "first");
    second = start(12 * GiB, Tier::batch, "second");
    urgent = start(8 * GiB, Tier::interactive, "infer");
    step(HostWeighed{first, plenty});
    obeyed = actions.size();
    EXPECT_EQ(state_of(first), LeaseState::pausing);
  }
  Park order() const {
    Park newest;
    for (const Action& action : actions)
      if (const auto* park = std::get_if<Park>(&action)) newest = *park;
    return newest;
  }
  Duration allowed() const { return order().at_most; }
  void hang() {
    const Time until = now + allowed();
    while (now < until) now = now + 1s, step(Tick{}), measure();
  }
};

TEST(Stuck, TheNextIsAskedAndNothingIsCountedTwice) {
  Hanging w;
  const Prediction takes =
      w.state.costs().predict(anas("first"), {"GPU-0"}, PauseMethod::driver, Move::pause, 10 * GiB);
  EXPECT_EQ(w.allowed(), takes.longest + 10s) << "from what such a pause takes";
  w.now = w.now + w.allowed() - 1s;
  w.step(Tick{});
  w.measure();
  EXPECT_FALSE(w.state.stuck(w.first));
  EXPECT_EQ(w.state.plan_for(w.urgent)->victims.size(), 0U) << "it is counted on";
  w.hang();
  EXPECT_TRUE(w.state.stuck(w.first));
  EXPECT_EQ(w.state_of(w.first), LeaseState::pausing);
  EXPECT_EQ(w.times_told(w.first, ReasonKind::pausing_stuck), 1);
  EXPECT_EQ(w.at(w.first).reserved(), 10 * GiB) << "it keeps its room …";
  EXPECT_EQ(w.state.ledger_of(1000), 10 * GiB) << "… and its entry";
  w.obey();
  EXPECT_EQ(w.state_of(w.second), LeaseState::paused);
  EXPECT_EQ(w.state_of(w.urgent), LeaseState::active);
}

TEST(Stuck, WhatTheDriverDidCountsWhenItReturns) {
  Hanging w;
  w.hang();
  ASSERT_TRUE(w.state.stuck(w.first));
  w.yielded.insert(w.first);
  w.step(Parked{w.first, true, {}, 10 * GiB});
  EXPECT_FALSE(w.state.stuck(w.first));
  w.measure();
  w.measure();
  EXPECT_EQ(w.state_of(w.first), LeaseState::paused);

  Hanging undone;
  undone.hang();
  undone.obey();
  undone.step(Parked{undone.first, false, "it timed out"});
  EXPECT_EQ(undone.state_of(undone.first), LeaseState::resuming);
  undone.obey();
  EXPECT_EQ(undone.state_of(undone.first), LeaseState::active);
}

// The driver returns to one that was passed over while host memory is weighed for the next: one at a time.
TEST(Stuck, TheNextIsNotAskedWhenTheDriverHasJustReturned) {
  Card w;
  const LeaseId first = w.start(4 * GiB, Tier::batch, "first"), second = w.start(12 * GiB, Tier::batch, "second");
  w.step(Pause{first, 0, {}, plenty});
  for (int s = 0; s < 60 && !w.state.stuck(first); ++s) w.now = w.now + 1s, w.step(Tick{}), w.measure();
  ASSERT_TRUE(w.state.stuck(first));
  const LeaseId urgent = w.start(14 * GiB, Tier::interactive, "infer");
  w.obeyed = w.actions.size();
  w.yielded.insert(first);
  w.step(Parked{first, true, {}, 4 * GiB});
  w.step(HostWeighed{second, plenty});
  EXPECT_EQ(w.state_of(second), LeaseState::active);
  for (int proof = 0; proof < 2; ++proof) w.measure();
  EXPECT_EQ(w.state_of(first), LeaseState::paused);
  w.obey();
  EXPECT_EQ(w.state_of(second), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

TEST(Stuck, WhatIsGivenUpLongAfterIsStuckUntilItReturns) {
  Hanging w;
  EXPECT_EQ(w.order().give_up, 3 * w.allowed()) << "by then it was passed over for long";
  w.hang();
  Parked given_up{w.first, false, "the driver has not returned"};
  given_up.stuck = true;
  w.step(given_up);
  EXPECT_EQ(w.state_of(w.first), LeaseState::resuming);
  EXPECT_TRUE(w.state.stuck(w.first)) << "nobody counts on it meanwhile";
  w.step(Unparked{.lease = w.first, .how = Unparked::How::not_yet, .detail = "it has not returned", .code = "stuck"});
  EXPECT_TRUE(w.state.stuck(w.first));
  w.obey();
  w.step(Unparked{w.first});
  EXPECT_EQ(w.state_of(w.first), LeaseState::active);
  EXPECT_FALSE(w.state.stuck(w.first));
}

TEST(Stuck, HowLongACallHasIsPredictedWithinLimits) {
  const auto allowed = [](Duration took, Bytes used) {
    Attempt w;
    for (int i = 0; i < 16 && took > Duration{}; ++i) {
      w.pause();
      w.now = w.now + took;
      w.step(Parked{w.victim, true, {}, used});
      w.measure(Bytes{});
      w.measure(Bytes{});
      w.step(Resume{w.victim});
      w.runs();
      w.measure(used);
    }
    w.measure(used);
    w.pause();
    return std::get<Park>(*std::find_if(w.actions.rbegin(), w.actions.rend(),
                                        [](const Action& action) { return std::holds_alternative<Park>(action); }));
  };
  const Park never_seen = allowed({}, 9 * GiB);
  EXPECT_GT(never_seen.at_most, 15s) << "at the rate of a slow link";
  EXPECT_LT(never_seen.at_most, 1min);
  const Park quick = allowed(1ms, 9 * GiB), slow = allowed(10min, 9 * GiB), endless = allowed(100h, 9 * GiB);
  EXPECT_GE(quick.give_up, 30s) << "it may just be busy";
  EXPECT_GT(slow.at_most, 10min);
  EXPECT_EQ(endless.at_most, 1h + 10s);
  for (const Park& park : {never_seen, quick, slow, endless}) EXPECT_EQ(park.give_up, 3 * park.at_most);
}

TEST(Stuck, ARestoreThatHangsIsToldAndDoneWhenItReturns) {
  Card w;
  const LeaseId it = w.start(10 * GiB, Tier::batch);
  w.step(Pause{it, 0, {}, plenty});
  w.obey();
  ASSERT_EQ(w.state_of(it), LeaseState::paused);
  w.step(Resume{it});
  ASSERT_EQ(w.state_of(it), LeaseState::resuming);
  for (int i = 0; i < 60; ++i) w.now = w.now + 1s, w.step(Tick{}), w.measure();
  EXPECT_TRUE(w.state.stuck(it));
  EXPECT_EQ(w.times_told(it, ReasonKind::resuming_stuck), 1);
  w.obey();
  EXPECT_EQ(w.state_of(it), LeaseState::active);
  EXPECT_FALSE(w.state.stuck(it));
}

TEST(Stuck, ItCanBeEndedAsItIs) {
  Hanging w;
  w.step(Release{.lease = w.first, .stop = true});
  EXPECT_EQ(w.signals(w.first, false), 0) << "it is to run first, so that it can save its work";
  w.hang();
  EXPECT_EQ(w.signals(w.first, false), 1) << "nobody knows whether it ever will";
  w.live(w.rules.grace);
  EXPECT_EQ(w.signals(w.first, true), 1);
}

TEST(Stuck, NorIsItLearnedFromWhatReturnsLate) {
  Attempt w;
  w.pause();
  w.pass(60s);
  Parked given_up{w.victim, false, "stuck"};
  given_up.stuck = true;
  w.step(given_up);
  w.step(Unparked{.lease = w.victim, .how = Unparked::How::not_yet, .detail = "stuck", .code = "stuck"});
  w.now = w.now + 3h;
  w.step(ClockGap{.asleep = 3h});
  w.now = w.now + 5s;
  w.step(DriverReturned{w.victim});
  ASSERT_EQ(w.last.learned.size(), 1U);
  EXPECT_LE(w.last.learned[0].sample.took, 2min);
}

TEST(Stuck, SleepIsNoTimeThatTheDriverTook) {
  Hanging w;
  w.now = w.now + 3h;
  w.step(ClockGap{.asleep = 3h});
  w.measure();
  EXPECT_FALSE(w.state.stuck(w.first));
}

}  // namespace
}  // namespace sublet::core::testing
