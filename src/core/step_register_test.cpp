// SPDX-License-Identifier: Apache-2.0
// Spot leases of which nothing has said yet how it yields: they have a moment in which it still may.
#include "core/testing/ideal_executor.h"
#include "explain/dry_run.h"

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
  // The moment is counted from there.
  void expect_end_after(Time from) {
    pass_until(from + rules.spot_unused_after - 1ms);
    EXPECT_TRUE(lives());
    pass_until(from + rules.spot_unused_after);
    EXPECT_FALSE(lives());
  }
  Result<LeaseId> registers() {
    Cooperation how;
    how.way = CooperationWay::webhook;
    how.address = "http://127.0.0.1/yield";
    return step(Cooperate{spot, 0, how}).outcome;
  }
  bool asked() const {
    return std::ranges::any_of(last.actions, [](const Action& of) { return std::holds_alternative<Park>(of); });
  }
  bool lives() const { return find(state, spot) != nullptr && !find(state, spot)->ended(); }
};

// A script that registers once it has imported; who asked for a lease by HTTP, and cannot before it knows its id; who
// holds one for others.
const std::vector<std::pair<OwnerKind, Pausable>> who_may{
    {OwnerKind::process, Pausable::cooperative}, {OwnerKind::token, Pausable::automatic},
    {OwnerKind::token, Pausable::cooperative},   {OwnerKind::connection, Pausable::automatic},
    {OwnerKind::connection, Pausable::driver},
};

TEST(Register, WhoMayStillDoItHasItsMomentAndIsEndedAfterIt) {
  for (const auto& [owner, pausable] : who_may) {
    SCOPED_TRACE(std::string(to_string(owner)) + " " + std::string(to_string(pausable)));
    Silent w(owner, pausable);
    const Time over = w.granted() + w.rules.spot_unused_after;
    w.pass_until(over - 1ms);
    EXPECT_TRUE(w.lives());
    EXPECT_EQ(w.last.wake_at, over) << "when it is over is looked at then, and not before";
    w.pass_until(over);
    EXPECT_FALSE(w.lives());
    const bool by_driver = pausable == Pausable::driver;
    const auto kind = by_driver ? ReasonKind::spot_without_program : ReasonKind::spot_unregistered;
    EXPECT_EQ(w.reason(w.spot, kind).duration("idle"), w.rules.spot_unused_after);
    if (by_driver) continue;
    Silent speaks(owner, pausable);
    speaks.pass(speaks.rules.spot_unused_after - 1s);
    ASSERT_TRUE(speaks.registers().has_value());
    EXPECT_TRUE(speaks.asked()) << "at once";
    EXPECT_EQ(speaks.states(speaks.spot), "pausing");
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
  ASSERT_EQ(w.states(w.spot), "pausing");
  w.step(AttemptEvent{w.spot, Parked{.detail = "it uses memory of others", .code = ObstacleCode::not_parkable}});
  w.step(AttemptEvent{w.spot, Unparked{Unparked::How::runs, {}, plenty}});
  w.pass(w.rules.cooldown);
  w.measure();
  EXPECT_EQ(w.at(w.spot).end_reason, EndReason::revoked) << "its program is there, and registered nothing";
}

TEST(Register, ItsMomentBeginsAnewOnlyByWhatKeptItFromRegistering) {
  Silent works(OwnerKind::process, Pausable::cooperative);
  for (Bytes uses = 20 * GiB; works.now + 10s < works.granted() + works.rules.spot_unused_after; uses -= 1 * GiB) {
    works.programs[works.spot].second = uses;
    works.pass(9s);
    works.measure();
  }
  works.expect_end_after(works.granted());  // what it does on its card prolongs nothing

  // The program that had registered ended, and the next one of a script may register as well.
  Silent registered(OwnerKind::process, Pausable::cooperative, /*asked=*/false);
  registered.registers();
  registered.pass(10min);
  registered.step(Cooperate{registered.spot, 0, {}});
  registered.ask();
  registered.expect_end_after(registered.now);

  Silent asleep(OwnerKind::token);
  asleep.now = asleep.now + 10min;
  asleep.step(ClockGap{10min});
  asleep.measure();
  asleep.expect_end_after(asleep.granted() + 10min);

  Silent restarted(OwnerKind::token);
  restarted.pass(1min);
  const std::vector<Lease> stored{restarted.at(restarted.spot), restarted.at(restarted.urgent)};
  restarted.state = State::load(stored, {}, restarted.urgent.number, restarted.rules, restarted.now);
  restarted.step(HeldChanged{restarted.urgent, true});
  restarted.measure();
  restarted.expect_end_after(restarted.now - 20ms);
}

TEST(Register, WhoWaitsIsToldWhenItMayBeEnded) {
  Silent w(OwnerKind::token);
  w.pass(30s);
  EXPECT_SAYS(w.helps(w.urgent), "still may; it may be ended in about 1 min 30 s");
  const explain::QueueInfo info = w.info(w.urgent);
  ASSERT_TRUE(info.eta);
  EXPECT_NEAR(std::chrono::duration<double>(*info.eta).count(), 90, 1);
  EXPECT_SAYS(info.basis, "it may be ended in about 1 min 30 s; then lease-1 (crawl, ana) cannot be paused");
  const VictimPlan plan = explain::victim_plan(w.state, w.rules, w.at(w.urgent), {}, w.now);
  EXPECT_TRUE(plan.found);
  EXPECT_EQ(plan.wait, 90s);
  EXPECT_SAYS(plan.wait_for, "has not registered as cooperative yet");

  Silent ours(OwnerKind::process, Pausable::cooperative);
  EXPECT_FALSE(ours.info(ours.urgent).eta) << "its program has its time to end";
  EXPECT_SAYS(ours.info(ours.urgent).basis, "and is ended: it has its time to end");
}

// After a clock gap, as after a restart, each lease has the whole time again.
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
    EXPECT_EQ(w.states(spot), "active");
    w.live(w.rules.spot_unused_after + 2s);
    EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
  }
}

}  // namespace
}  // namespace sublet::core::testing
