// SPDX-License-Identifier: Apache-2.0
// Spot leases of which nothing has said yet how it yields: they have a moment in which it still may.
#include "core/rehearse.h"
#include "core/testing/ideal_executor.h"

#include <numeric>

namespace sublet::core::testing {
namespace {

// One card, a spot lease that has most of it, and one above it that wants half.
struct Silent : Card {
  LeaseId spot, urgent;
  explicit Silent(OwnerKind owner, Pausable pausable = Pausable::automatic, bool asked = true) {
    rules.max_age = 24h;  // whatever is decided is decided by time alone
    Lease lease = want(20 * GiB, Tier::spot, "crawl");
    lease.pausable = pausable;
    if (owner == OwnerKind::token) lease.owner.kind = owner, lease.ttl = 1h;
    spot = submit(lease, true);
    if (owner == OwnerKind::process) attach(spot);
    if (asked) ask();
  }
  void ask() { urgent = submit(want(10 * GiB, Tier::standard, "infer"), true); }
  // Whatever may have ended it until then has happened.
  void pass_until(Time at) { pass(at - now), step(Tick{}); }
  Time granted() const { return *at(spot).granted_at; }
  Result<LeaseId> registers() {
    Cooperation how;
    how.way = CooperationWay::webhook;
    how.address = "http://127.0.0.1/yield";
    return step(Cooperate{spot, 0, how}).outcome;
  }
  bool asked() const {
    return std::ranges::any_of(last.actions, [](const Action& of) { return std::holds_alternative<WeighHost>(of); });
  }
  bool lives() const { return state.find(spot) != nullptr && !state.find(spot)->ended(); }
  std::string helps() const {
    const auto helps = what_would_help(state, rules, at(urgent), now);
    return std::accumulate(helps.begin(), helps.end(), std::string());
  }
};

// A script that registers once it has imported; who asked for a lease by HTTP, and cannot before it knows its id; who
// holds one for others.
const std::vector<std::pair<OwnerKind, Pausable>> who_may{
    {OwnerKind::process, Pausable::cooperative}, {OwnerKind::token, Pausable::automatic},
    {OwnerKind::token, Pausable::cooperative},   {OwnerKind::connection, Pausable::automatic},
    {OwnerKind::connection, Pausable::driver},
};

TEST(Register, WhoMayStillDoItIsNotEndedBefore) {
  for (const auto& [owner, pausable] : who_may) {
    Silent w(owner, pausable);
    w.pass_until(w.granted() + w.rules.spot_unused_after - 1ms);
    EXPECT_TRUE(w.lives()) << static_cast<int>(owner) << " " << to_string(pausable);
    EXPECT_EQ(w.last.wake_at, w.granted() + w.rules.spot_unused_after)
        << "when it is over is looked at then, and not before";
  }
}

TEST(Register, WhoNeverDoesIsEndedOnceItsMomentIsOver) {
  for (const auto& [owner, pausable] : who_may) {
    Silent w(owner, pausable);
    w.pass_until(w.granted() + w.rules.spot_unused_after);
    EXPECT_FALSE(w.lives()) << static_cast<int>(owner) << " " << to_string(pausable);
    const bool by_driver = pausable == Pausable::driver;
    const ReasonArgs& why =
        w.reason(w.spot, by_driver ? ReasonKind::spot_without_program : ReasonKind::spot_unregistered);
    EXPECT_EQ(why.duration("idle"), w.rules.spot_unused_after);
  }
}

TEST(Register, WhoDoesItInTimeIsAskedAtOnce) {
  for (const auto& [owner, pausable] : who_may) {
    if (pausable == Pausable::driver) continue;
    Silent w(owner, pausable);
    w.pass(w.rules.spot_unused_after - 1s);
    ASSERT_TRUE(w.registers().has_value());
    EXPECT_TRUE(w.asked()) << static_cast<int>(owner) << " " << to_string(pausable);
    w.step(HostWeighed{w.spot, plenty});
    EXPECT_EQ(w.state_of(w.spot), LeaseState::pausing);
  }
}

TEST(Register, WhoSaysBeforehandThatItNeverWillIsEndedAtOnce) {
  for (const Pausable pausable : {Pausable::no, Pausable::interposer})
    EXPECT_FALSE(Silent(OwnerKind::token, pausable).lives()) << to_string(pausable);
}

TEST(Register, WhomHostMemoryCouldNeverTakeGainsNothingByIt) {
  Silent w(OwnerKind::token, Pausable::automatic, /*asked=*/false);
  w.rules.ledger_limit = 19 * GiB;
  w.ask();
  EXPECT_FALSE(w.lives());
  EXPECT_EQ(w.reason(w.spot, ReasonKind::spot_too_large).bytes("most"), 19 * GiB);
}

TEST(Register, WhomTheDriverWasTriedOnIsNotWaitedFor) {
  Silent w(OwnerKind::process);
  w.step(HostWeighed{w.spot, plenty});
  ASSERT_EQ(w.state_of(w.spot), LeaseState::pausing);
  w.step(Parked{.lease = w.spot, .detail = "it uses memory of others", .unfit = Unfit::never});
  w.step(Unparked{w.spot, Unparked::How::runs, {}, plenty});
  w.pass(w.rules.cooldown);
  w.measure();
  EXPECT_EQ(w.at(w.spot).end_reason, EndReason::revoked) << "its program is there, and registered nothing";
}

TEST(Register, WhatItDoesOnItsCardProlongsNothing) {
  Silent w(OwnerKind::process, Pausable::cooperative);
  const Time ends = w.granted() + w.rules.spot_unused_after;
  for (Bytes uses = 20 * GiB; w.now + 10s < ends; uses -= 1 * GiB) {
    w.programs[w.spot].second = uses;
    w.pass(9s);
    w.measure();
  }
  w.pass_until(ends);
  EXPECT_FALSE(w.lives());
}

// The next program of a script may register as the one before did.
TEST(Register, ItHasAnotherMomentFromTheEndOfWhoHadRegistered) {
  Silent w(OwnerKind::process, Pausable::cooperative, /*asked=*/false);
  w.registers();
  w.pass(10min);
  w.step(Cooperate{w.spot, 0, {}});
  const Time ended = w.now;
  w.ask();
  w.pass_until(ended + w.rules.spot_unused_after - 1ms);
  EXPECT_TRUE(w.lives());
  w.pass_until(ended + w.rules.spot_unused_after);
  EXPECT_FALSE(w.lives());
}

TEST(Register, TimeAsleepIsNoTimeInWhichAnybodyCould) {
  Silent w(OwnerKind::token);
  const Time ends = w.granted() + w.rules.spot_unused_after + 10min;
  w.now = w.now + 10min;
  w.step(ClockGap{10min});
  w.measure();
  w.pass_until(ends - 1ms);
  EXPECT_TRUE(w.lives());
  w.pass_until(ends);
  EXPECT_FALSE(w.lives());
}

TEST(Register, ARestartIsAsTheGrant) {
  Silent w(OwnerKind::token);
  w.pass(1min);
  w.state = State::load({w.at(w.spot), w.at(w.urgent)}, {}, w.urgent.number, w.rules, w.now);
  w.step(HeldChanged{w.urgent, true});
  w.measure();
  const Time restarted = w.now - 20ms;
  w.pass_until(restarted + w.rules.spot_unused_after - 1ms);
  EXPECT_TRUE(w.lives());
  w.pass_until(restarted + w.rules.spot_unused_after);
  EXPECT_FALSE(w.lives());
}

TEST(Register, WhoWaitsIsToldWhenItMayBeEnded) {
  Silent w(OwnerKind::token);
  w.pass(30s);
  EXPECT_SAYS(w.helps(),
              "lease-1 (crawl, ana) is not paused for it: its program has not registered as cooperative yet, and "
              "still may; it may be ended in about 1 min 30 s");
  const QueueInfo info = queue_info(w.state, w.rules, w.at(w.urgent), w.now);
  ASSERT_TRUE(info.eta);
  EXPECT_NEAR(std::chrono::duration<double>(*info.eta).count(), 90, 1);
  EXPECT_SAYS(info.basis, "it may be ended in about 1 min 30 s; then lease-1 (crawl, ana) cannot be paused");
  const VictimPlan plan = victim_plan(w.state, w.rules, w.at(w.urgent), {}, w.now);
  EXPECT_TRUE(plan.found);
  EXPECT_EQ(plan.wait, 90s);
  EXPECT_SAYS(plan.wait_for, "has not registered as cooperative yet");
}

TEST(Register, WhoseProgramHasItsTimeToEndEndsNobodyKnowsWhen) {
  Silent w(OwnerKind::process, Pausable::cooperative);
  const QueueInfo info = queue_info(w.state, w.rules, w.at(w.urgent), w.now);
  EXPECT_FALSE(info.eta);
  EXPECT_SAYS(info.basis,
              "it may be ended in about 2 min; then lease-1 (crawl, ana) cannot be paused, and is ended: "
              "it has its time to end");
}

// A daemon that stood still heard nothing: as after a restart, everybody has the whole of it again.
TEST(Register, WhatADaemonThatStoodStillCouldNotHearCountsAgainstNobody) {
  for (const bool idles : {false, true}) {
    Card w;
    Lease asked = w.want(20 * GiB, Tier::spot, "crawl");
    asked.pausable = idles ? Pausable::driver : Pausable::cooperative;
    const LeaseId spot = w.submit(asked, true);
    w.attach(spot);
    if (idles) w.programs[spot].second = {};
    w.measure();
    w.submit(w.want(10 * GiB, Tier::interactive, "chat"), true);
    w.pass(w.rules.spot_unused_after - 10s);
    w.measure();
    w.now = w.now + 40s;
    w.step(ClockGap{.stood_still = 40s});
    w.measure(), w.measure();
    EXPECT_EQ(w.state_of(spot), LeaseState::active);
    w.live(w.rules.spot_unused_after + 2s);
    EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
  }
}

}  // namespace
}  // namespace sublet::core::testing
