// SPDX-License-Identifier: Apache-2.0
// Whether who says so has yielded: bytes that vanish from the list without going, cards that cannot be read, and who is
// to blame when nothing comes of a pause.
#include "core/testing/attempt.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

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
  EXPECT_SAYS(w.reason(w.victim, ReasonKind::pause_unmeasured).text("problem"), "9.0 GiB");
  w.runs();
  EXPECT_EQ(w.standing().failures, 0);
  EXPECT_TRUE(w.reason(w.victim, ReasonKind::pause_unmeasured).has("problem"));
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

// -------------------------------------------------------------------------------- who is to blame

TEST(Blame, WhatTheHostRefusesIsNobodysFailure) {
  Attempt w;
  w.ask();
  for (int i = 0; i < 3; ++i) {
    w.weighed(HostMemory{4 * GiB, std::nullopt});
    EXPECT_EQ(w.state_of(w.victim), LeaseState::active);
    EXPECT_EQ(w.standing().ineligible_until, w.now + w.rules.cooldown) << "no longer each time";
    w.pass(w.rules.cooldown - 20ms);
    w.measure(9 * GiB);
  }
  EXPECT_EQ(w.standing().failures, 0);
  w.weighed(HostMemory{4 * GiB, std::nullopt});
  const auto spares = ineligible(w.state, w.rules, PreemptionQuery{w.at(w.urgent)}, w.at(w.victim),
                                 way_to_yield(w.state, w.rules, w.at(w.victim), 1000, w.now), w.now);
  ASSERT_TRUE(spares);
  EXPECT_EQ(spares->code, IneligibleCode::backoff);
  EXPECT_EQ(w.state.left_alone(w.victim).ground, LeftAlone::Ground::refused);
  w.pass(w.rules.cooldown);
  w.measure(9 * GiB);
  w.weighed();
  EXPECT_EQ(w.state_of(w.victim), LeaseState::pausing);
}

TEST(Blame, WhatMayHaveBeenBySlownessMakesNobodyUnfitUntilItIsSaidTwice) {
  Attempt w;
  const auto fail = [&w] {
    w.pause();
    w.step(Parked{.lease = w.victim, .detail = "it is not spoken of", .unfit = Unfit::never, .may_be_by_chance = true});
    w.runs();
    w.pass(10min);
  };
  fail();
  EXPECT_FALSE(w.at(w.victim).unfit);
  w.pause();
  w.parked();
  w.measure(Bytes{});
  w.measure(Bytes{});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::paused);
  w.step(Resume{w.victim});
  w.runs();
  w.measure(9 * GiB);
  fail();
  EXPECT_FALSE(w.at(w.victim).unfit) << "it was paused in between";
  w.pause();
  w.step(Parked{.lease = w.victim, .detail = "its work was not done in time"});
  w.runs();
  w.pass(10min);
  fail();
  EXPECT_FALSE(w.at(w.victim).unfit) << "it failed for another reason in between";
  w.step(Attach{w.victim, 0, kept_process(70), true, {}});
  w.pass(10min);
  fail();
  EXPECT_FALSE(w.at(w.victim).unfit) << "another program";
  fail();
  EXPECT_TRUE(w.at(w.victim).unfit);
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
  EXPECT_EQ(w.standing().ineligible_until, w.now + w.rules.cooldown);
}

TEST(Unverified, IsToldOnceWithWhatIsWrongWithTheCardAndEndsWithTheProof) {
  Attempt w;
  w.pause();
  w.parked();
  w.pass(900ms);
  EXPECT_EQ(unverified_text(w.state, w.rules, w.at(w.victim), w.now), "") << "the next reading may come in time";
  w.pass(200ms);
  EXPECT_SAYS(w.reason(w.victim, ReasonKind::unverified).text("problem"), "gpu0");
  DeviceReading reading = gpu(0, 24 * GiB);
  reading.problem = "the driver answers: Unknown Error";
  w.now = w.now + 1s;
  w.snapshot({reading});
  w.pass(1s);
  EXPECT_SAYS(unverified_text(w.state, w.rules, w.at(w.victim), w.now), "gpu0: the driver answers: Unknown Error");
  w.ask();
  EXPECT_EQ(w.state_of(w.urgent), LeaseState::queued) << "nothing is granted of it meanwhile";
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::unverified), 1);
  w.measure(Bytes{});
  w.measure(Bytes{});
  EXPECT_EQ(w.state_of(w.victim), LeaseState::paused);
  EXPECT_EQ(unverified_text(w.state, w.rules, w.at(w.victim), w.now), "");
}

TEST(Unverified, IsToldToWhoWaitsForIt) {
  Attempt w;
  w.ask();
  w.weighed();
  w.parked();
  w.pass(2s);
  const auto helps = [&w] {
    std::string all;
    for (const std::string& one : what_would_help(w.state, w.rules, w.at(w.urgent), w.now)) all += one + "\n";
    return all;
  };
  EXPECT_SAYS(helps(), "reports that it freed its memory, but no reading can confirm that: gpu0 was last read 2 s ago");
  w.step(ProgramEnded{w.victim, 0, false});
  ASSERT_EQ(w.state_of(w.victim), LeaseState::ended);
  EXPECT_FALSE(w.state.verifying().contains(w.victim));
  EXPECT_EQ(helps().find("says that it has yielded"), std::string::npos);
}

TEST(Unverified, IsNotSaidOfOneThatIsSeenToHoldOn) {
  Attempt w;
  w.pause();
  w.parked();
  for (int i = 0; i < 15; ++i) {
    w.pass(100ms);
    w.measure(9 * GiB);
  }
  ASSERT_EQ(w.state_of(w.victim), LeaseState::pausing);
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::unverified), 0);
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
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_disproved).bytes("holds"), 9 * GiB);
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
