// SPDX-License-Identifier: Apache-2.0
// Events during a pause: a request while the pause is undone, a preemptor that leaves, a driver call that does not
// return.
#include "core/testing/attempt.h"
#include "core/testing/ideal_executor.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

// -------------------------------------------------------------------------------- the last request

TEST(Attempt, AResumeBeforeOrAfterItFailedIsTheLastWord) {
  for (const bool before : {false, true}) {
    Attempt w;
    w.cooperate();
    w.pause();
    if (before) w.step(Resume{w.victim});
    w.refused();
    ASSERT_EQ(w.states(w.victim), "resuming");
    EXPECT_TRUE(before || w.accepts(Resume{w.victim}));
    EXPECT_TRUE(w.parking().resume_requested);
    w.runs();
    EXPECT_EQ(w.states(w.victim), "active") << "no other method is tried";
    EXPECT_EQ(w.ordered<Park>(), 1);
  }
}

TEST(Attempt, APauseAfterThatIsTheLastWord) {
  Attempt w;
  w.ask();
  ASSERT_EQ(w.states(w.victim), "pausing");
  EXPECT_TRUE(w.parking().resume_requested);
  EXPECT_TRUE(w.pause().has_value());
  EXPECT_FALSE(w.parking().resume_requested) << "its owner wants it to stay";
  w.yields();
  EXPECT_EQ(w.states(w.victim, w.urgent), "paused active");
  w.step(Release{.lease = w.urgent, .force = true});
  w.measure({});
  EXPECT_EQ(w.states(w.victim), "paused");
}

// -------------------------------------------------------------------------------- its events

TEST(Attempt, RefusesEventsThatDoNotFitIt) {
  const struct {
    const char* name;
    bool paused;    // its owner pauses it
    bool restarts;  // then its pause is undone
    AttemptEvent event;
    bool taken;
  } rows[] = {
      {"no attempt: lock", false, false, {{}, LockIntent{}}, false},
      {"no attempt: measured", false, false, {{}, MeasuredWhileLocked{plenty}}, false},
      {"no attempt: runs", false, false, {{}, Unparked{}}, false},
      {"pausing: lock", true, false, {{}, LockIntent{{process(7)}}}, true},
      {"pausing: measured", true, false, {{}, MeasuredWhileLocked{plenty}}, true},
      {"pausing: parked", true, false, {{}, Parked{true}}, true},
      {"pausing: runs", true, false, {{}, Unparked{}}, false},
      {"pausing: the driver returned", true, false, {{}, DriverReturned{}}, false},
      {"undone: lock", true, true, {{}, LockIntent{{process(7)}}}, false},
      {"undone: measured", true, true, {{}, MeasuredWhileLocked{plenty}}, false},
      {"undone: parked", true, true, {{}, Parked{true}}, false},
      {"undone: runs", true, true, {{}, Unparked{}}, true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Attempt w;
    if (row.paused) w.pause();
    if (row.restarts) w.restart();
    w.measure(9 * GiB);
    AttemptEvent event = row.event;
    event.lease = w.victim;
    EXPECT_EQ(w.accepts(event), row.taken);
  }
}

TEST(Attempt, WhatItTookBeforeItWasLockedIsEnteredIfItFits) {
  const struct {
    const char* name;
    Bytes holds, limit;
    HostMemory host;
    Code refused;  // External: it is not
    Bytes entered;
    bool stored;
  } rows[] = {
      {"it has not grown", 9 * GiB, 64 * GiB, plenty, Code::External, 10 * GiB, false},
      {"it has grown", 11 * GiB, 64 * GiB, plenty, Code::External, 11 * GiB, true},
      {"more than the ledger takes", 12 * GiB, 11 * GiB, plenty, Code::HostMemory, 10 * GiB, false},
      {"more than its group takes", 9 * GiB, 64 * GiB, {64 * GiB, 3 * GiB}, Code::HostMemory, 10 * GiB, false},
      {"it may swap", 9 * GiB, 64 * GiB, {64 * GiB, std::nullopt, true}, Code::PauseUnsafe, 10 * GiB, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Attempt w;
    w.rules.ledger_limit = row.limit;
    ASSERT_TRUE(w.pause().has_value());
    w.measure(row.holds);
    const auto outcome = w.step(AttemptEvent{w.victim, MeasuredWhileLocked{row.host}}).outcome;
    EXPECT_EQ(outcome ? Code::External : outcome.error().code, row.refused);
    EXPECT_EQ(w.state.host.entries, row.entered);
    EXPECT_EQ(w.last.changed.empty(), !row.stored) << "a commit is waited for only if it has grown";
    if (!row.stored) continue;
    EXPECT_EQ(w.reason(w.victim, ReasonKind::pausing_holds_more).bytes("more"), 1 * GiB);
    EXPECT_EQ(to_restore(w.state, w.at(w.victim), uuid_of(0)).all, 11 * GiB) << "noted for its way back";
  }
}

// -------------------------------------------------------------------------------- the beneficiary

TEST(Attempt, TheNextMethodIsTriedOnceForWhoStillWaits) {
  const struct {
    const char* name;
    bool gone, fails;  // the preemptor leaves; the next method fails as well
  } rows[] = {
      {"the next method works", false, false}, {"the preemptor is gone", true, false}, {"both fail", false, true}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Attempt w;
    w.cooperate();
    w.ask();
    ASSERT_EQ(w.parking().method, PauseMethod::cooperative);
    w.refused();
    EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_failed).text("next_if_wanted"), "driver");
    if (row.gone) w.step(Release{.lease = w.urgent});
    w.runs();
    EXPECT_EQ(w.ordered<Park>(), row.gone ? 1 : 2);
    if (row.gone) {
      EXPECT_EQ(w.states(w.victim), "active");
      EXPECT_TRUE(w.reason(w.victim, ReasonKind::resumed).has("after"));
      EXPECT_EQ(w.standing().failures, 1);
      EXPECT_GE(w.standing().ineligible_until, w.now + w.rules.cooldown);
      continue;
    }
    EXPECT_EQ(w.states(w.victim), "pausing") << "at once";
    EXPECT_EQ(w.parking().method, PauseMethod::driver);
    EXPECT_TRUE(w.parking().resume_requested);
    EXPECT_EQ(w.state.host.entries, 10 * GiB);
    if (row.fails) {
      w.refused();
      w.runs();
      w.pass(w.rules.cooldown / 2);
      EXPECT_EQ(w.states(w.victim), "active") << "it is left alone";
      EXPECT_EQ(w.ordered<Park>(), 2);
      continue;
    }
    w.yields();
    EXPECT_EQ(w.states(w.urgent), "active");
    EXPECT_EQ(w.standing().failures, 0);
  }
}

TEST(Attempt, TheTimeOfALeaseStandsStillBetweenTwoMethods) {
  Attempt w;
  w.cooperate();
  ASSERT_TRUE(w.accepts(Renew{w.victim, 0, 30s}));
  w.ask();
  for (const PauseMethod method : {PauseMethod::cooperative, PauseMethod::driver}) {
    ASSERT_EQ(w.states(w.victim), "pausing");
    EXPECT_EQ(w.parking().method, method);
    w.now = w.now + 1min;
    w.measure(9 * GiB);
    w.refused();
    w.runs();
  }
  ASSERT_EQ(w.states(w.victim), "active");
  EXPECT_EQ(w.at(w.victim).time_left(w.now), 30s);
}

// -------------------------------------------------------------------------------- a driver that does not return

// Two of them on the card, and the cheaper one hangs.
struct Hanging : Card {
  LeaseId first, second, urgent;
  Hanging() {
    first = start(10 * GiB, Tier::batch, "first");
    second = start(12 * GiB, Tier::batch, "second");
    urgent = start(8 * GiB, Tier::interactive, "infer");
    obeyed = actions.size();
    EXPECT_EQ(state_of(first), LeaseState::pausing);
  }
  Duration allowed() const { return newest<Park>()->at_most; }
  // The driver's call is given up, and has not returned.
  void give_up() {
    Parked given_up{false, "the driver has not returned"};
    given_up.code = ObstacleCode::stuck;
    step(AttemptEvent{first, given_up});
    EXPECT_EQ(states(first), "resuming");
    EXPECT_TRUE(is_stuck(state, first)) << "nobody counts on it meanwhile";
    step(AttemptEvent{
        first, Unparked{.how = Unparked::How::not_yet, .detail = "it has not returned", .code = ObstacleCode::stuck}});
    EXPECT_TRUE(is_stuck(state, first));
  }
  void hang() {
    const Time until = now + allowed();
    while (now < until) now = now + 1s, step(Tick{}), measure();
  }
};

TEST(Stuck, TheNextIsAskedAndNothingIsCountedTwice) {
  Hanging w;
  const Prediction takes =
      w.state.learned.costs.predict(anas("first"), {"GPU-0"}, PauseMethod::driver, Move::pause, 10 * GiB);
  EXPECT_EQ(w.allowed(), takes.longest + 10s) << "from what such a pause takes";
  w.now = w.now + w.allowed() - 1s;
  w.step(Tick{});
  w.measure();
  EXPECT_FALSE(is_stuck(w.state, w.first));
  EXPECT_EQ(plan_for(w.state, w.urgent)->victims.size(), 0U) << "it is counted on";
  w.hang();
  EXPECT_TRUE(is_stuck(w.state, w.first));
  EXPECT_EQ(w.states(w.first), "pausing");
  EXPECT_EQ(w.times_told(w.first, ReasonKind::pausing_stuck), 1);
  EXPECT_EQ(w.at(w.first).reserved(), 10 * GiB) << "it keeps its room …";
  EXPECT_EQ(ledger_of(w.state, 1000), 22 * GiB) << "… and its entry, beside that of the next victim";
  EXPECT_EQ(w.states(w.second), "pausing");
  w.obey();
  EXPECT_EQ(w.states(w.second, w.urgent), "paused active");
}

TEST(Stuck, WhatTheDriverDidCountsWhenItReturns) {
  Hanging w;
  w.hang();
  ASSERT_TRUE(is_stuck(w.state, w.first));
  w.yielded.insert(w.first);
  w.step(AttemptEvent{w.first, Parked{true, {}, 10 * GiB}});
  EXPECT_FALSE(is_stuck(w.state, w.first));
  w.measure(), w.measure();
  EXPECT_EQ(w.states(w.first), "paused");

  Hanging undone;
  undone.hang();
  undone.obey();
  undone.step(AttemptEvent{undone.first, Parked{false, "it timed out"}});
  EXPECT_EQ(undone.states(undone.first), "resuming");
  undone.obey();
  EXPECT_EQ(undone.states(undone.first), "active");
}

TEST(Stuck, WhatIsGivenUpLongAfterIsStuckUntilItReturns) {
  Hanging w;
  EXPECT_EQ(w.newest<Park>()->give_up, 3 * w.allowed()) << "by then it was passed over for long";
  w.hang();
  w.give_up();
  w.obey();
  w.step(AttemptEvent{w.first, Unparked{}});
  EXPECT_EQ(w.states(w.first), "active");
  EXPECT_FALSE(is_stuck(w.state, w.first));
}

TEST(Stuck, HowLongACallHasIsPredictedWithinLimits) {
  const auto allowed = [](Duration took, Bytes used) {
    Attempt w;
    for (int i = 0; i < 16 && took > Duration{}; ++i) {
      w.pause();
      w.now = w.now + took;
      w.step(AttemptEvent{w.victim, Parked{true, {}, used}});
      w.measure({}), w.measure({});
      w.step(Resume{w.victim});
      w.runs();
      w.measure(used);
    }
    w.measure(used);
    w.pause();
    return *w.newest<Park>();
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
  ASSERT_EQ(w.states(it), "paused");
  w.step(Resume{it});
  ASSERT_EQ(w.states(it), "resuming");
  for (int i = 0; i < 60; ++i) w.now = w.now + 1s, w.step(Tick{}), w.measure();
  EXPECT_TRUE(is_stuck(w.state, it));
  EXPECT_EQ(w.times_told(it, ReasonKind::resuming_stuck), 1);
  w.obey();
  EXPECT_EQ(w.states(it), "active");
  EXPECT_FALSE(is_stuck(w.state, it));
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

TEST(Stuck, SleepIsNoTimeThatTheDriverTook) {
  Hanging w;
  w.now = w.now + 3h;
  w.step(ClockGap{.asleep = 3h});
  w.measure();
  EXPECT_FALSE(is_stuck(w.state, w.first));
}

}  // namespace
}  // namespace sublet::core::testing
