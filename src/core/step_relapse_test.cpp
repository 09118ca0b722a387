// SPDX-License-Identifier: Apache-2.0
// Memory allocated while paused that could not be parked at once is parked later.
#include "core/testing/cooperating.h"

namespace sublet::core::testing {
namespace {

struct Relapsed : Cooperating {
  Relapsed() {
    relapse(4 * GiB);
    EXPECT_EQ(asked(), 1);
  }
  void hold() { measure(4 * GiB); }
  int asked() const { return ordered<PauseAgain>(); }
  // As the engine does when it is told of a relapse.
  Result<LeaseId> again(const HostMemory& host = plenty) {
    return step(Pause{victim, 0, {PauseCauseKind::allocated_while_paused}, host, true}).outcome;
  }
  void fails(std::optional<Hindrance> why, bool undone = true) {
    Parked fact{victim, false, "it was in the way", {}, undone};
    fact.hindrance = why;
    step(fact);
  }
  // So much later, with readings meanwhile.
  void live(Duration d) {
    for (const Time until = now + d; now < until; hold()) pass(std::min<Duration>(500ms, until - now));
  }
};

TEST(Relapse, WhatPassesIsTriedAgainAfterTheCooldown) {
  Relapsed w;
  for (int tries = 1; tries <= 3; ++tries) {
    ASSERT_TRUE(w.again().has_value());
    ASSERT_EQ(w.ordered<Park>(), 1 + tries);
    w.live(10 * w.rules.cooldown);
    EXPECT_EQ(w.asked(), tries) << "not while it is being tried";
    w.fails(Hindrance::passing);
    w.live(w.rules.cooldown - 1s);
    EXPECT_EQ(w.asked(), tries) << "it is not asked all the time";
    w.live(2s);
    EXPECT_EQ(w.asked(), tries + 1);
  }
  EXPECT_EQ(w.trust("serve"), 1) << "it is nobody's fault";
  ASSERT_TRUE(w.again().has_value());
  w.touching();
  w.parked(4 * GiB);
  w.measure({});
  w.pass(1h);
  EXPECT_EQ(w.asked(), 4) << "nothing is left to park";
}

TEST(Relapse, TheCoreWakesForItAndGivesALostOrderAgain) {
  Relapsed w;
  w.again();
  w.fails(Hindrance::passing);
  EXPECT_LE(w.last.wake_at, w.now + w.rules.cooldown);
  w.pass(w.rules.cooldown);  // without a reading
  EXPECT_EQ(w.asked(), 2);
  w.live(w.rules.cooldown + 1s);
  EXPECT_EQ(w.asked(), 3) << "the order was lost";
}

TEST(Relapse, AShortHostIsAskedAgain) {
  Relapsed w;
  const HostMemory none{1 * GiB, std::nullopt};
  EXPECT_EQ(w.again(none).error().code, Code::HostMemory);
  w.live(w.rules.cooldown + 1s);
  ASSERT_EQ(w.asked(), 2);
  HostMemory swaps = plenty;
  swaps.may_swap = true;
  EXPECT_EQ(w.again(swaps).error().code, Code::PauseUnsafe);
  w.live(4 * w.rules.cooldown);
  EXPECT_EQ(w.asked(), 2) << "that lasts";
  w.live(2min + 1s - 4 * w.rules.cooldown);
  EXPECT_EQ(w.asked(), 3);
}

TEST(Relapse, WhatLastsIsLookedAtLater) {
  for (const Hindrance lasts : {Hindrance::program, Hindrance::driver, Hindrance::swap}) {
    Relapsed w;
    w.again();
    w.fails(lasts);
    w.live(1min);
    EXPECT_EQ(w.asked(), 1);
    w.live(1min + 1s);
    EXPECT_EQ(w.asked(), 2);
  }
  for (const bool back : {false, true}) {
    Relapsed w;
    w.again();
    Parked fails{w.victim, false, "the driver cannot park it", {}, true};
    if (back) fails.hindrance = Hindrance::passing;
    else fails.unfit = Unfit::never;
    w.step(fails);
    if (back) w.step(Resume{w.victim});
    w.live(back ? w.rules.cooldown + 1s : 10min);
    EXPECT_EQ(w.asked(), 1) << (back ? "it is back" : "nothing else can park it");
    EXPECT_EQ(w.states(w.victim), back ? "resuming" : "paused");
  }
}

TEST(Relapse, WhoFailsAgainAndAgainIsLeftAloneForLonger) {
  Relapsed w;
  for (int times = 1; times <= 2; ++times) {
    ASSERT_EQ(w.asked(), times);
    w.again();
    w.fails(std::nullopt);
    w.live(w.rules.cooldown + 1s);
  }
  EXPECT_EQ(w.asked(), 2);
  w.live(w.rules.cooldown);
  EXPECT_EQ(w.asked(), 3);
}

TEST(Relapse, ARestartTriesItAgain) {
  Relapsed w;
  w.again();
  w.fails(Hindrance::passing);
  w.restart();
  w.hold(), w.hold();
  EXPECT_EQ(w.asked(), 2);
  w.again();
  EXPECT_EQ(w.ordered<Park>(), 3);
}

// It was locked, and the helper ended.
TEST(Relapse, WhoMayBeLockedComesBackBeforeItIsAskedAgain) {
  Relapsed w;
  w.again();
  w.touching();
  w.fails(std::nullopt, false);
  w.live(10min);
  EXPECT_EQ(w.asked(), 1);
  w.step(Resume{w.victim});
  ASSERT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.newest<Unpark>()->method, PauseMethod::driver);
  EXPECT_EQ(w.newest<Unpark>()->locked_processes, (std::vector<ProcessRef>{process(7)}));
}

}  // namespace
}  // namespace sublet::core::testing
