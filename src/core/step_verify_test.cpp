// SPDX-License-Identifier: Apache-2.0
// Whether who says so has yielded: bytes that vanish from the list without going, cards that cannot be read, and who is
// to blame when nothing comes of a pause.
#include "core/testing/attempt.h"
#include "core/victims.h"
#include "state/format.h"

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
  EXPECT_EQ(record_of(w.state, anas("serve"), PauseMethod::driver), nullptr);
}

// The readings before the program yields, and the bytes that no listed process may then use.
TEST(Unlisted, WhatNobodyIsListedWithBeforeIsNotHeldAgainstIt) {
  struct Reading {
    Bytes used, unlisted;
  };
  const struct {
    const char* name;
    bool restart;
    std::vector<Reading> before, between;  // the order to yield; the answer
    Bytes too_much, enough;                // unlisted
  } rows[] = {
      {"it is compared with the first reading after the order", true, {}, {{9 * GiB, 2 * GiB}}, 11 * GiB, 2 * GiB},
      {"without a reading it may hold all of it", true, {}, {}, 9 * GiB, {}},
      {"it vanished before it was asked", false, {{{}, 9 * GiB}}, {}, 9 * GiB, {}},
      {"they were there before", false, {{9 * GiB, 3 * GiB}}, {}, 3 * GiB + 65 * MiB, 3 * GiB + 64 * MiB},
      {"those of a process that ended were gone before",
       false,
       {{4 * GiB, 5 * GiB}, {4 * GiB, {}}, {4 * GiB, 2 * GiB}},
       {},
       7 * GiB,
       2 * GiB},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Attempt w;
    if (row.restart) w.restart();
    for (const Reading& reading : row.before) w.measure(reading.used, reading.unlisted);
    w.pause();
    for (const Reading& reading : row.between) w.measure(reading.used, reading.unlisted);
    w.parked();
    for (int i = 0; i < 5; ++i) w.measure({}, row.too_much);
    EXPECT_EQ(w.states(w.victim), "pausing");
    w.measure({}, row.enough), w.measure({}, row.enough);
    EXPECT_EQ(w.states(w.victim), "paused");
  }
}

// -------------------------------------------------------------------------------- who is to blame

TEST(Blame, WhatTheHostRefusesIsNobodysFailure) {
  Attempt w;
  w.ram = {4 * GiB, std::nullopt};
  w.measure(9 * GiB);
  w.ask();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(w.states(w.victim), "active");
    EXPECT_EQ(w.standing().ineligible_until, w.now + w.rules.cooldown) << "no longer each time";
    EXPECT_EQ(w.standing().failures, 0);
    const auto spares = ineligible(w.state, w.rules, PreemptionQuery{w.at(w.urgent)}, w.at(w.victim),
                                   way_to_yield(w.state, w.rules, w.at(w.victim), 1000, w.now), w.now);
    ASSERT_TRUE(spares);
    EXPECT_EQ(spares->code, IneligibleCode::cooldown);
    EXPECT_EQ(last_obstacle(w.state, w.victim)->code, ObstacleCode::not_begun);
    EXPECT_SAYS(last_obstacle(w.state, w.victim)->detail, "only 2.0 GiB more may be parked");
    EXPECT_TRUE(w.state.preemption.plans.empty()) << "a set that cannot be had holds nothing";
    w.pass(w.rules.cooldown - 20ms);
    w.measure(9 * GiB);
  }
  w.ram = plenty;
  w.measure(9 * GiB);
  w.pass(w.rules.cooldown);
  w.measure(9 * GiB);
  EXPECT_EQ(w.states(w.victim), "pausing");
}

TEST(Blame, WhatMayHaveBeenBySlownessMakesNobodyUnfitUntilItIsSaidTwice) {
  Attempt w;
  const auto fail = [&w] {
    w.pause();
    w.step(AttemptEvent{w.victim, Parked{.detail = "it is not spoken of", .code = ObstacleCode::shared_memory}});
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
  w.step(AttemptEvent{w.victim, Parked{.detail = "its work was not done in time"}});
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
  w.parked();
  w.pass(2s);
  EXPECT_SAYS(w.helps(w.urgent), "no reading can confirm that: gpu0 was last read 2 s ago");
  w.step(ProgramEnded{w.victim, 0, false});
  ASSERT_EQ(w.states(w.victim), "ended");
  EXPECT_FALSE(w.state.pauses.verifying.contains(w.victim));
  EXPECT_FALSE(contains(w.helps(w.urgent), "no reading can confirm"));
}

// As long as whoever lies is given at the least, and no snapshot begins at the very end of it.
TEST(Blame, WhoIsSeenToHoldOnToTheEndOfItsTimeHasFailed) {
  const struct {
    const char* name;
    Duration timeout, step;
    int readings, failures;
  } rows[] = {
      {"to the end", 1s, 90ms, 9, 1},
      {"long before the end", 2s, 100ms, 1, 0},
      {"never measured", 30s, {}, 0, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Attempt w;
    w.rules.verify_timeout = row.timeout;
    w.pause();
    w.parked();
    const Time until = w.now + row.timeout;
    for (int i = 0; i < row.readings; ++i) {
      w.pass(row.step);
      w.measure(9 * GiB);
      ASSERT_EQ(w.states(w.victim), "pausing");
    }
    w.pass(until - w.now + 10ms);
    ASSERT_EQ(w.states(w.victim), "resuming");
    EXPECT_EQ(w.times_told(w.victim, ReasonKind::pause_disproved), row.failures);
    if (row.failures == 1) {
      EXPECT_EQ(w.times_told(w.victim, ReasonKind::unverified), 0) << "it is seen to hold on";
      EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_disproved).bytes("holds"), 9 * GiB);
    }
    w.runs();
    EXPECT_EQ(w.standing().failures, row.failures);
    if (row.failures == 1) continue;
    EXPECT_FALSE(last_obstacle(w.state, w.victim)->kind().blames);
    EXPECT_EQ(w.standing().ineligible_until, w.now + w.rules.cooldown);
  }
}

TEST(Blame, HowPausesWentBeforeIsInThePriceOfANewLeaseToo) {
  Attempt w;
  const auto cost = [&w] {
    return as_victim(w.state, w.rules, w.at(w.victim), 1000, w.state.devices.by_uuid.begin()->second, w.now).cost;
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
  w.state = State::load(w.stored(), {}, w.state.leases.last_id, w.rules, w.now, {}, {}, {learned});
  w.step(Tick{});
  w.measure(9 * GiB);
  EXPECT_EQ(cost(), once);
}

}  // namespace
}  // namespace sublet::core::testing
