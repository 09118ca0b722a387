// SPDX-License-Identifier: Apache-2.0
// What a pause may meet: bytes that vanish from the list without going, a word that comes while it is undone, an asker
// who goes, a driver that does not return, a host that takes no more.
#include "core/obedient.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

// One card of 24 GiB, a program that uses 9 of its 10 GiB and yields by itself, and an urgent one that may come.
struct Attempt : World {
  LeaseId victim, urgent;
  Attempt() {
    snapshot({gpu(0, 24 * GiB)});
    victim = run(10 * GiB, 7, "serve");
    measure(9 * GiB);
  }
  void cooperate() {
    Cooperation how;
    how.residue = 32 * MiB;
    how.process = process(7);
    step(Cooperate{victim, 0, how});
  }
  void measure(Bytes used, Bytes unlisted = {}) {
    now = now + 20ms;
    std::vector<ProcessUse> processes{uses(99, 100 * MiB)};  // without any the list itself is not believed
    if (used > Bytes{}) processes.push_back(uses(7, used, victim));
    snapshot({gpu(0, 24 * GiB, std::move(processes), unlisted)});
  }
  void ask() {
    Lease lease = wish(20 * GiB, "infer");
    lease.tier = Tier::interactive;
    urgent = submit(lease, true);
  }
  void weighed(HostMemory host = plenty) { step(HostWeighed{victim, host}); }
  Result<LeaseId> pause() { return step(Pause{victim, 0, "its owner asked", plenty}).outcome; }
  void refused() { step(Parked{victim, false, "it refuses"}); }
  void parked() { step(Parked{victim, true, {}, 9 * GiB}); }
  void runs() { step(Unparked{victim, Unparked::How::runs, {}, plenty}); }
  int parks() const {
    return static_cast<int>(
        std::count_if(actions.begin(), actions.end(), [](const Action& a) { return std::holds_alternative<Park>(a); }));
  }
  const Parking& parking() const { return *at(victim).parking; }
  Standing standing() const { return state.standing(victim); }
};

// -------------------------------------------------------------------------------- not listed is not gone

TEST(Unlisted, WhoVanishesFromTheListHasNotYielded) {
  Attempt w;
  w.pause();
  w.parked();
  for (int i = 0; i < 5; ++i) w.measure(Bytes{}, 9 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "the card has as much used as before";
  for (Duration passed{}; passed < w.rules.verify_timeout; passed += 1s) {
    EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "nobody can tell whether it lied";
    w.pass(1s);
    w.measure(Bytes{}, 9 * GiB);
  }
  w.pass(1s);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_SAYS(w.why(w.victim, "resuming"), "9.0 GiB more than before it was asked are used there by no listed process");
  w.runs();
  EXPECT_EQ(w.standing().failures, 0);
  EXPECT_EQ(w.state.record(anas("serve"), PauseMethod::driver), nullptr);
}

TEST(Unlisted, WhoIsAskedBeforeACardWasReadIsComparedWithItsFirstReading) {
  Attempt w;
  w.restart();
  w.pause();
  w.measure(9 * GiB, 2 * GiB);
  w.parked();
  w.measure(Bytes{}, 11 * GiB);
  w.measure(Bytes{}, 11 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  w.measure(Bytes{}, 2 * GiB);
  w.measure(Bytes{}, 2 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused) << "those 2 GiB were there before it yielded";
}

TEST(Unlisted, WhoYieldsBeforeACardWasReadMayHaveAllThatNobodyListedHolds) {
  Attempt w;
  w.restart();
  w.pause();
  w.parked();
  for (int i = 0; i < 5; ++i) w.measure(Bytes{}, 9 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
}

TEST(Unlisted, ItMayHaveVanishedBeforeItWasAsked) {
  Attempt w;
  w.measure(Bytes{}, 9 * GiB);
  w.pause();
  w.parked();
  for (int i = 0; i < 5; ++i) w.measure(Bytes{}, 9 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
}

TEST(Unlisted, WhatNobodyIsListedWithBeforeIsNotHeldAgainstIt) {
  Attempt w;
  w.measure(9 * GiB, 3 * GiB);
  w.pause();
  w.parked();
  w.measure(Bytes{}, 3 * GiB + 64 * MiB);
  w.measure(Bytes{}, 3 * GiB + 64 * MiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);

  Attempt more;
  more.measure(9 * GiB, 3 * GiB);
  more.pause();
  more.parked();
  for (int i = 0; i < 3; ++i) more.measure(Bytes{}, 3 * GiB + 65 * MiB);
  EXPECT_EQ(more.state_of(more.victim), LeaseState::pausing);
}

TEST(Unlisted, AProcessThatEndedBeforeIsForgottenWhenItsBytesAreGone) {
  Attempt w;
  w.measure(4 * GiB, 5 * GiB);  // off the list before its bytes are gone
  w.measure(4 * GiB);
  w.measure(4 * GiB, 2 * GiB);  // of somebody who is not listed
  w.pause();
  w.parked();
  w.measure(Bytes{}, 2 * GiB);
  w.measure(Bytes{}, 2 * GiB);
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
}

// -------------------------------------------------------------------------------- whose word is the last

TEST(Attempt, AResumeWhileItIsUndoneIsTheLastWord) {
  Attempt w;
  w.cooperate();
  w.pause();
  w.refused();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_TRUE(w.step(Resume{w.victim}).outcome.has_value());
  EXPECT_TRUE(w.parking().returns);
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
  EXPECT_TRUE(w.parking().returns);
  EXPECT_TRUE(w.pause().has_value());
  EXPECT_FALSE(w.parking().returns) << "its owner wants it to stay";
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
  EXPECT_SAYS(w.why(w.victim, "resuming"), "then the driver is tried, if its room is still wanted");
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing) << "at once";
  EXPECT_EQ(w.parking().method, PauseMethod::driver);
  EXPECT_TRUE(w.parking().returns);
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
  EXPECT_SAYS(w.why(w.victim, "resumed"), "its program runs again");
  EXPECT_EQ(w.standing().failures, 1);
  EXPECT_GE(w.standing().spared_until, w.now + w.rules.cooldown);
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
  EXPECT_EQ(w.state.making_for(w.urgent)->victims.size(), 0U) << "it is counted on";
  w.hang();
  EXPECT_TRUE(w.state.stuck(w.first));
  EXPECT_EQ(w.state_of(w.first), LeaseState::pausing);
  EXPECT_SAYS(w.why(w.first, "pausing"), "stuck: the driver should have parked its program within");
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
  w.step(Pause{first, 0, "its owner asked", plenty});
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
  w.step(Pause{it, 0, "its owner asked", plenty});
  w.obey();
  ASSERT_EQ(w.state_of(it), LeaseState::paused);
  w.step(Resume{it});
  ASSERT_EQ(w.state_of(it), LeaseState::resuming);
  for (int i = 0; i < 60; ++i) w.now = w.now + 1s, w.step(Tick{}), w.measure();
  EXPECT_TRUE(w.state.stuck(it));
  EXPECT_SAYS(w.why(it, "resuming"), "stuck: the driver should have brought back its program within");
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

TEST(Stuck, SleepIsNoTimeThatTheDriverTook) {
  Hanging w;
  w.now = w.now + 3h;
  w.step(Woke{.asleep = 3h});
  w.measure();
  EXPECT_FALSE(w.state.stuck(w.first));
}

// -------------------------------------------------------------------------------- who is to blame

TEST(Blame, WhatTheHostRefusesIsNobodysFailure) {
  Attempt w;
  w.ask();
  for (int i = 0; i < 3; ++i) {
    w.weighed(HostMemory{4 * GiB, std::nullopt});
    EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
    EXPECT_EQ(w.standing().spared_until, w.now + w.rules.cooldown) << "no longer each time";
    w.pass(w.rules.cooldown - 20ms);
    w.measure(9 * GiB);
  }
  EXPECT_EQ(w.standing().failures, 0);
  w.weighed(HostMemory{4 * GiB, std::nullopt});
  const auto spares = spared(w.state, w.rules, Asking{w.at(w.urgent)}, w.at(w.victim),
                             way_to_yield(w.state, w.rules, w.at(w.victim), 1000, w.now), w.now);
  ASSERT_TRUE(spares);
  EXPECT_SAYS(spares->why, "it could not be asked");
  EXPECT_SAYS(spares->why, "host memory takes 2.0 GiB more of parked bytes");
  w.pass(w.rules.cooldown);
  w.measure(9 * GiB);
  w.weighed();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
}

TEST(Blame, WhatCouldNotBeMeasuredIsNobodysFailure) {
  Attempt w;
  w.pause();
  w.parked();
  w.pass(w.rules.verify_timeout);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  w.runs();
  EXPECT_EQ(w.standing().failures, 0);
  EXPECT_EQ(w.state.left_alone(w.victim).ground, LeftAlone::Ground::undone);
  EXPECT_EQ(w.standing().spared_until, w.now + w.rules.cooldown);
}

// As long as whoever lies is given at the least, and no snapshot begins at the very end of it.
TEST(Blame, WhoIsSeenToHoldOnToTheEndOfItsTimeHasFailed) {
  Attempt w;
  w.rules.verify_timeout = 1s;
  w.pause();
  w.parked();
  for (int i = 0; i < 9; ++i) {
    w.pass(90ms);
    w.measure(9 * GiB);
    ASSERT_EQ(w.state_of(w.victim), LeaseState::pausing);
  }
  w.pass(20ms);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  EXPECT_SAYS(w.why(w.victim, "resuming"), "it said that it has yielded, and 1 s later it still held 9.0 GiB");
  w.runs();
  EXPECT_EQ(w.standing().failures, 1);
}

TEST(Blame, WhoWasSeenToHoldOnLongBeforeTheEndOfItsTimeMayHaveYielded) {
  Attempt w;
  w.rules.verify_timeout = 2s;
  w.pause();
  w.parked();
  w.pass(100ms);
  w.measure(9 * GiB);
  w.pass(1900ms);
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  w.runs();
  EXPECT_EQ(w.standing().failures, 0) << "nothing was measured since";
}

TEST(Blame, ARestartIsNobodysFailure) {
  Attempt w;
  w.pause();
  w.restart();
  ASSERT_EQ(w.state_of(w.victim), LeaseState::resuming);
  w.runs();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
  EXPECT_EQ(w.standing().failures, 0);
}

TEST(Blame, HowPausesWentBeforeIsInThePriceOfANewLeaseToo) {
  Attempt w;
  const Duration trusted =
      as_victim(w.state, w.rules, w.at(w.victim), 1000, w.state.devices().begin()->second, w.now).cost;
  w.pause();
  w.refused();
  w.runs();
  const Duration once =
      as_victim(w.state, w.rules, w.at(w.victim), 1000, w.state.devices().begin()->second, w.now).cost;
  EXPECT_EQ(once - trusted, 10s) << "one of one came to nothing";
  const LearnedRecord learned{anas("serve"), PauseMethod::driver, *w.state.record(anas("serve"), PauseMethod::driver)};
  w.state = State::load(w.stored(), {}, w.state.last_id(), w.rules, w.now, {}, {}, {learned});
  w.step(Tick{});
  w.measure(9 * GiB);
  EXPECT_EQ(as_victim(w.state, w.rules, w.at(w.victim), 1000, w.state.devices().begin()->second, w.now).cost, once);
}

}  // namespace
}  // namespace sublet::core::testing
