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
  for (int i = 0; i < 5; ++i) w.measure({}, 9 * GiB);
  for (Duration passed{}; passed < w.rules.verify_timeout; passed += 1s) {
    EXPECT_EQ(w.states(w.victim), "pausing") << "as much is used as before, and nobody can tell whether it lied";
    w.pass(1s);
    w.measure({}, 9 * GiB);
  }
  w.pass(1s);
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_SAYS(w.reason(w.victim, ReasonKind::pause_unmeasured).text("problem"), "9.0 GiB");
  w.runs();
  EXPECT_EQ(w.standing().failures, 0);
  EXPECT_EQ(w.state.record(anas("serve"), PauseMethod::driver), nullptr);
}

TEST(Unlisted, WhatNobodyIsListedWithBeforeIsNotHeldAgainstIt) {
  Attempt w;
  w.measure(9 * GiB, 3 * GiB);
  w.pause();
  w.parked();
  w.measure(Bytes{}, 3 * GiB + 64 * MiB), w.measure(Bytes{}, 3 * GiB + 64 * MiB);
  EXPECT_EQ(w.states(w.victim), "paused");

  Attempt more;
  more.measure(9 * GiB, 3 * GiB);
  more.pause();
  more.parked();
  for (int i = 0; i < 3; ++i) more.measure(Bytes{}, 3 * GiB + 65 * MiB);
  EXPECT_EQ(more.states(more.victim), "pausing");
}

// -------------------------------------------------------------------------------- who is to blame

TEST(Blame, WhatTheHostRefusesIsNobodysFailure) {
  Attempt w;
  w.ask();
  for (int i = 0; i < 4; ++i) {
    w.weighed(HostMemory{4 * GiB, std::nullopt});
    EXPECT_EQ(w.states(w.victim), "active");
    EXPECT_EQ(w.standing().ineligible_until, w.now + w.rules.cooldown) << "no longer each time";
    EXPECT_EQ(w.standing().failures, 0);
    const auto spares = ineligible(w.state, w.rules, PreemptionQuery{w.at(w.urgent)}, w.at(w.victim),
                                   way_to_yield(w.state, w.rules, w.at(w.victim), 1000, w.now), w.now);
    ASSERT_TRUE(spares);
    EXPECT_EQ(spares->code, IneligibleCode::backoff);
    EXPECT_EQ(w.state.left_alone(w.victim).ground, LeftAlone::Ground::refused);
    EXPECT_TRUE(w.state.plans().empty()) << "a set that cannot be had holds nothing";
    w.pass(w.rules.cooldown - 20ms);
    w.measure(9 * GiB);
  }
  w.weighed();
  EXPECT_EQ(w.states(w.victim), "pausing");
}

TEST(Blame, WhatMayHaveBeenBySlownessMakesNobodyUnfitUntilItIsSaidTwice) {
  Attempt w;
  const auto fail = [&w] {
    w.pause();
    w.step(Parked{.lease = w.victim, .detail = "it is not spoken of", .unfit = Unfit::never, .may_be_by_chance = true});
    w.runs();
    w.pass(10min);
    return w.at(w.victim).unfit.has_value();
  };
  EXPECT_FALSE(fail());
  w.pause();
  w.yields();
  w.step(Resume{w.victim});
  w.runs();
  w.measure(9 * GiB);
  EXPECT_FALSE(fail()) << "it was paused in between";
  w.pause();
  w.step(Parked{.lease = w.victim, .detail = "its work was not done in time"});
  w.runs();
  w.pass(10min);
  EXPECT_FALSE(fail()) << "it failed for another reason in between";
  w.step(Attach{w.victim, 0, kept_process(70), true, {}});
  w.pass(10min);
  EXPECT_FALSE(fail()) << "another program";
  EXPECT_TRUE(fail());
}

TEST(Unverified, IsToldOnceWithWhatIsWrongWithTheCardAndEndsWithTheProof) {
  Attempt w;
  const auto told = [&w] { return unverified_text(w.state, w.rules, w.at(w.victim), w.now); };
  w.pause();
  w.parked();
  w.pass(900ms);
  EXPECT_EQ(told(), "") << "the next reading may come in time";
  w.pass(200ms);
  EXPECT_SAYS(w.reason(w.victim, ReasonKind::unverified).text("problem"), "gpu0");
  DeviceReading reading = gpu(0, 24 * GiB);
  reading.problem = "the driver answers: Unknown Error";
  w.now = w.now + 1s;
  w.snapshot({reading});
  w.pass(1s);
  EXPECT_SAYS(told(), "gpu0: the driver answers: Unknown Error");
  w.ask();
  EXPECT_EQ(w.states(w.urgent), "queued") << "nothing is granted of it meanwhile";
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::unverified), 1);
  w.measure({}), w.measure({});
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(told(), "");
}

TEST(Unverified, IsToldToWhoWaitsForIt) {
  Attempt w;
  w.ask();
  w.weighed();
  w.parked();
  w.pass(2s);
  EXPECT_SAYS(w.helps(w.urgent), "no reading can confirm that: gpu0 was last read 2 s ago");
  w.step(ProgramEnded{w.victim, 0, false});
  ASSERT_EQ(w.states(w.victim), "ended");
  EXPECT_FALSE(w.state.verifying().contains(w.victim));
  EXPECT_FALSE(contains(w.helps(w.urgent), "no reading can confirm"));
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
    ASSERT_EQ(w.states(w.victim), "pausing");
  }
  w.pass(20ms);
  ASSERT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_disproved).bytes("holds"), 9 * GiB);
  w.runs();
  EXPECT_EQ(w.standing().failures, 1);
}

TEST(Blame, HowPausesWentBeforeIsInThePriceOfANewLeaseToo) {
  Attempt w;
  const auto cost = [&w] {
    return as_victim(w.state, w.rules, w.at(w.victim), 1000, w.state.devices().begin()->second, w.now).cost;
  };
  const Duration trusted = cost();
  w.pause();
  w.refused();
  ASSERT_EQ(w.last.records.size(), 1U);
  const LearnedRecord learned = w.last.records[0];
  EXPECT_EQ(learned, (LearnedRecord{anas("serve"), PauseMethod::driver, {0, 1}}));
  w.runs();
  const Duration once = cost();
  EXPECT_EQ(once - trusted, 10s) << "one of one came to nothing";
  w.state = State::load(w.stored(), {}, w.state.last_id(), w.rules, w.now, {}, {}, {learned});
  w.step(Tick{});
  w.measure(9 * GiB);
  EXPECT_EQ(cost(), once);
}

}  // namespace
}  // namespace sublet::core::testing
