// SPDX-License-Identifier: Apache-2.0
// Leases of the tier spot: the only ones that are ended to make room, and only those that can never be parked.
#include "core/rehearse.h"
#include "core/testing/ideal_executor.h"

#include <numeric>

namespace sublet::core::testing {
namespace {

TEST(Spot, OneThatCannotBePausedIsEndedWithNotice) {
  Card w;
  Lease lease = w.want(20 * GiB, Tier::spot, "crawl");
  lease.pausable = Pausable::no;
  const LeaseId spot = w.submit(lease, true);
  w.attach(spot);
  const LeaseId urgent = w.start(10 * GiB, Tier::batch);
  EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
  EXPECT_EQ(w.signals(spot, false), 1) << "SIGTERM first";
  EXPECT_EQ(w.signals(spot, true), 0);
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued) << "its bytes are not measured gone";
  w.live(31s);
  EXPECT_EQ(w.signals(spot, true), 1) << "its grace is over";
  w.quit(spot);
  w.live(1s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

TEST(Spot, OneIsNotEndedForAWaitThatIsShorterThanItsGrace) {
  Card w;
  Lease lease = w.want(20 * GiB, Tier::spot, "crawl");
  lease.pausable = Pausable::no;
  const LeaseId spot = w.submit(lease, true);
  w.attach(spot);
  w.step(Renew{spot, 0, 20s});
  const LeaseId urgent = w.start(10 * GiB, Tier::batch);
  EXPECT_EQ(w.state_of(spot), LeaseState::active);
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
  w.step(Renew{spot, 0, 10min});
  w.live(1s);
  EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
}

TEST(Spot, OneWhoseProgramIsOnlyBeingStartedIsNotEndedForThat) {
  Card w;
  const LeaseId spot = w.submit(w.want(20 * GiB, Tier::spot, "crawl"), true);
  const LeaseId urgent = w.start(10 * GiB, Tier::batch);
  ASSERT_EQ(w.state_of(spot), LeaseState::active) << "in a moment it is one that can be paused";
  w.attach(spot);
  w.live(1s);
  EXPECT_EQ(w.state_of(spot), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);

  Card never;
  const LeaseId held = never.submit(never.want(20 * GiB, Tier::spot, "crawl"), true);
  const LeaseId waits = never.start(10 * GiB, Tier::batch);
  never.live(115s);
  EXPECT_EQ(never.state_of(held), LeaseState::active);
  never.live(6s);
  EXPECT_TRUE(never.gone(held)) << "no program came";
  EXPECT_TRUE(never.at(waits).reserves());
}

TEST(Spot, OneThatCanBePausedIsPaused) {
  Card w;
  const LeaseId spot = w.start(20 * GiB, Tier::spot, "crawl");
  w.start(10 * GiB, Tier::standard);
  w.obey();
  EXPECT_EQ(w.state_of(spot), LeaseState::paused);
}

TEST(Spot, OneThatHostMemoryCouldNeverTakeIsEnded) {
  const auto ends = [](Bytes limit, std::optional<Bytes> machine, Tier tier = Tier::spot) {
    Card w;
    w.rules.ledger_limit = limit;
    w.rules.host_memory = machine;
    const LeaseId held = w.start(20 * GiB, tier, "crawl");
    w.start(10 * GiB, Tier::standard);
    return w.at(held).end_reason == EndReason::revoked;
  };
  EXPECT_TRUE(ends(19 * GiB, {}));
  EXPECT_FALSE(ends(20 * GiB, {}));
  EXPECT_TRUE(ends(32 * GiB, 21 * GiB)) << "2 GiB of the machine's are kept free";
  EXPECT_FALSE(ends(32 * GiB, 22 * GiB));
  EXPECT_FALSE(ends(19 * GiB, {}, Tier::batch)) << "nobody else ever is";
}

TEST(Spot, NobodysTurnEndsOneThatHostMemoryCouldNeverTake) {
  Card w;
  w.rules.host_memory = 21 * GiB;
  const LeaseId first = w.start(20 * GiB, Tier::spot, "first");
  const LeaseId second = w.start(10 * GiB, Tier::spot, "second");
  w.live(10min);
  EXPECT_EQ(w.state_of(first), LeaseState::active);
  EXPECT_EQ(w.state_of(second), LeaseState::queued);
  EXPECT_TRUE(w.state.slices().empty());
}

TEST(Spot, OneThatHoldsTooMuchForAMomentIsNotEnded) {
  Card w;
  w.rules.ledger_limit = 15 * GiB;
  const LeaseId over = w.start(12 * GiB, Tier::spot, "over");
  w.programs.at(over).second = 18 * GiB;
  w.measure();
  const LeaseId urgent = w.start(10 * GiB, Tier::standard);
  EXPECT_EQ(w.state_of(over), LeaseState::active) << "of what it was given, host memory takes all";
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
}

TEST(Spot, OneThatHostMemoryDoesNotTakeForNowIsNotEnded) {
  Card w;
  w.rules.ledger_limit = 20 * GiB;
  const LeaseId first = w.start(15 * GiB, Tier::spot, "first");
  w.start(12 * GiB, Tier::standard);
  w.obey();
  ASSERT_EQ(w.state_of(first), LeaseState::paused);
  const LeaseId second = w.start(10 * GiB, Tier::spot, "second");
  ASSERT_EQ(w.state_of(second), LeaseState::active);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive);
  w.obey();
  EXPECT_EQ(w.state_of(second), LeaseState::active) << "15 of 20 GiB are taken, and come free again";
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
}

TEST(Spot, OneThatUsedTheCardAMomentAgoIsNotEnded) {
  Card w;
  const LeaseId spot = w.start(20 * GiB, Tier::spot, "stages");
  w.live(10min);
  w.programs[spot].second = {};  // the first of its programs has ended, and the next one starts
  w.measure();
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.live(115s);
  EXPECT_EQ(w.state_of(spot), LeaseState::active);
  w.programs[spot].second = 20 * GiB;
  w.live(10s);
  EXPECT_EQ(w.state_of(spot), LeaseState::paused) << "it is paused once it uses its card again";
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

TEST(Spot, OneWithNothingOnTheCardHasAMomentToTakeSomething) {
  const auto after = [](Duration waits, Tier tier) {
    Card w;
    const LeaseId early = w.submit(w.want(20 * GiB, tier, "imports"), true);
    w.step(Attach{early, 0, kept_process(50), true, {}});
    w.start(10 * GiB, Tier::interactive, "infer");
    w.live(waits);
    return std::pair(w.at(early).end_reason, w.times_told(early, ReasonKind::spot_unused));
  };
  EXPECT_EQ(after(115s, Tier::spot).first, EndReason::none) << "it may only be importing";
  const auto [end, times_told] = after(125s, Tier::spot);
  EXPECT_EQ(end, EndReason::revoked) << "else it would keep its room for ever";
  EXPECT_EQ(times_told, 1);
  EXPECT_EQ(after(10min, Tier::batch).first, EndReason::none) << "nobody else ever is";
}

// Bytes of no listed process may be the lease's own.
TEST(Spot, OneThatMayHoldSomethingUnseenIsNotEnded) {
  OneCard w;
  Lease lease = wish(20 * GiB, "imports");
  lease.tier = Tier::spot;
  lease.owner.kind = OwnerKind::connection;
  const LeaseId early = w.submit(lease, true);
  w.step(Attach{early, 0, kept_process(50), true, {}});
  w.submit(wish(10 * GiB, "infer"));
  for (int i = 0; i < 60; ++i) {
    w.pass(1s);
    w.measure({}, 1 * GiB);
  }
  EXPECT_EQ(w.state_of(early), LeaseState::active);
}

TEST(Spot, NobodysWordEndsAnEqual) {
  Card w;
  Lease lease = w.want(20 * GiB, Tier::spot, "crawl");
  lease.pausable = Pausable::no;
  const LeaseId pinned = w.submit(lease, true);
  w.attach(pinned);
  const LeaseId equal = w.start(10 * GiB, Tier::spot, "infer");
  for (const bool any_user : {false, true}) {
    const auto refused = w.step(Preempt{equal, 0, PreemptionRequest{1000, any_user}}).outcome;
    ASSERT_FALSE(refused.has_value());
    EXPECT_SAYS(refused.error().detail, "it cannot be paused, and is ended for a higher tier only");
  }
  EXPECT_EQ(w.state_of(pinned), LeaseState::active);
}

TEST(Spot, OneOnSeveralDevicesThatTwoPreemptorsWouldEndEndsOnce) {
  World w;
  const auto cards = [] { return std::vector{gpu(0, 8 * GiB), gpu(1, 8 * GiB)}; };
  w.snapshot(cards());
  Lease both = wish(6 * GiB, "crawl");
  both.tier = Tier::spot;
  both.device_count = 2;
  both.pausable = Pausable::no;
  const LeaseId spot = w.submit(both);
  w.pass(20s);  // nothing is known any more, so that both wait
  for (int card = 0; card < 2; ++card) {
    Lease preemptor = wish(6 * GiB, "train");
    preemptor.wanted_device = uuid_of(card);
    w.submit(preemptor);
  }
  w.snapshot(cards());
  EXPECT_TRUE(w.gone(spot));
  EXPECT_TRUE(w.at({spot.number + 1}).reserves());
  EXPECT_TRUE(w.at({spot.number + 2}).reserves());
}

// A daemon that stood still looks at its timers before it has read what happened meanwhile.
TEST(Spot, OneIsEndedForNothingOnTheCardOnlyByAReadingFromAfterItsMoment) {
  Card w;
  const LeaseId idle = w.submit(w.want(20 * GiB, Tier::spot, "imports"), true);
  w.step(Attach{idle, 0, kept_process(50), true, {}});
  const Time over = *w.at(idle).granted_at + w.rules.spot_unused_after;
  w.live(w.rules.spot_unused_after - 5s);
  w.submit(w.want(10 * GiB, Tier::standard), true);
  w.now = over + 2s;
  w.step(Tick{});
  EXPECT_EQ(w.state_of(idle), LeaseState::active);
  w.measure();
  EXPECT_EQ(w.at(idle).end_reason, EndReason::revoked);
}

TEST(Spot, OneThatCouldNeverBeParkedIsEndedWithNothingOnTheCardToo) {
  Card w;
  w.rules.ledger_limit = 15 * GiB;
  const LeaseId idle = w.submit(w.want(20 * GiB, Tier::spot, "imports"), true);
  w.step(Attach{idle, 0, kept_process(50), true, {}});
  w.start(10 * GiB, Tier::standard);
  EXPECT_EQ(w.at(idle).end_reason, EndReason::revoked) << "else it would keep its room for ever";
}

TEST(Spot, WhatOneUserMayTakeOfTheLedgerCountsWhileAnotherWaits) {
  const auto ends = [](std::uint32_t waiter) {
    Card w;
    w.rules.ledger_limit = 24 * GiB;  // 18 of it are one user's share
    const LeaseId held = w.start(20 * GiB, Tier::spot, "crawl");
    Lease urgent = w.want(10 * GiB, Tier::standard);
    urgent.uid = waiter;
    w.submit(urgent, true);
    return w.at(held).end_reason == EndReason::revoked;
  };
  EXPECT_TRUE(ends(1001)) << "for as long as it waits";
  EXPECT_FALSE(ends(1000)) << "all of the ledger may be this user's";
}

// Another user's lease passes: while it is there, a lease over the share waits and is not ended.
TEST(Spot, AThirdUserSLeaseHasNobodyEnded) {
  Card w;
  w.rules.ledger_limit = 24 * GiB;
  const LeaseId held = w.start(20 * GiB, Tier::spot, "crawl");
  Lease other = w.want(1 * GiB, Tier::standard);
  other.uid = 1001;
  const LeaseId passing = w.submit(other, true);
  const LeaseId urgent = w.submit(w.want(10 * GiB, Tier::standard), true);
  w.live(30s);
  EXPECT_EQ(w.state_of(held), LeaseState::active);
  const VictimPlan plan = victim_plan(w.state, w.rules, w.at(urgent), {}, w.now);
  const auto is_it = [&](const Ineligible& ineligible) { return ineligible.lease == held; };
  const auto ineligible = std::find_if(plan.ineligible.begin(), plan.ineligible.end(), is_it);
  ASSERT_NE(ineligible, plan.ineligible.end());
  EXPECT_EQ(ineligible->code, IneligibleCode::obstacle);
  EXPECT_SAYS(ineligible->why, "18.0 GiB");
  w.step(Release{passing});
  w.live(60s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(w.state_of(held), LeaseState::paused);
}

TEST(Spot, WhoHasOneEndedIsToldThatItHasItsTimeToEnd) {
  Card w;
  w.rules.automatic = false;
  Lease lease = w.want(20 * GiB, Tier::spot, "crawl");
  lease.pausable = Pausable::no;
  const LeaseId spot = w.submit(lease, true);
  w.attach(spot);
  const LeaseId above = w.start(10 * GiB, Tier::batch, "infer");
  const auto helps = what_would_help(w.state, w.rules, w.at(above), w.now);
  const std::string all = std::accumulate(helps.begin(), helps.end(), std::string());
  EXPECT_SAYS(all, "`sublet preempt " + to_string(above) + "` pauses " + to_string(spot));
  EXPECT_SAYS(all, to_string(spot) + " (crawl, ana) cannot be paused, and is ended: it has its time to end");
  EXPECT_EQ(all.find("its pause takes"), std::string::npos) << all;
}

}  // namespace
}  // namespace sublet::core::testing
