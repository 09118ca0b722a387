// SPDX-License-Identifier: Apache-2.0
// Leases of the tier spot: only they are ended for others, and only if they can never be parked.
#include "core/testing/ideal_executor.h"
#include "explain/dry_run.h"

namespace sublet::core::testing {
namespace {

TEST(Spot, OneThatCannotBePausedIsEndedWithNotice) {
  Card w;
  const LeaseId spot = w.pinned(20 * GiB, Tier::spot, "crawl"), urgent = w.start(10 * GiB, Tier::batch);
  EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
  EXPECT_EQ(w.signals(spot, false), 1) << "SIGTERM first";
  EXPECT_EQ(w.signals(spot, true), 0);
  EXPECT_EQ(w.states(urgent), "queued") << "its bytes are not measured gone";
  w.live(31s);
  EXPECT_EQ(w.signals(spot, true), 1) << "its grace is over";
  w.quit(spot);
  w.live(1s);
  EXPECT_EQ(w.states(urgent), "active");
}

TEST(Spot, ItsWorkIsSavedBeforeItIsEnded) {
  enum class Then { nothing, saved, preemptor_leaves };
  for (const Then then : {Then::nothing, Then::saved, Then::preemptor_leaves}) {
    Card w;
    const LeaseId spot = w.pinned(20 * GiB, Tier::spot, "crawl");
    w.step(Amend{.lease = spot, .notice = 20s});
    const LeaseId urgent = w.start(10 * GiB, Tier::batch);
    w.live(19s);
    EXPECT_EQ(w.states(spot), "active");
    EXPECT_EQ(w.times_told(spot, ReasonKind::spot_noticed), 1);
    EXPECT_EQ(w.signals(spot, false), 0) << "its program runs, so that its work can be saved";
    if (then == Then::preemptor_leaves) w.step(Release{.lease = urgent});
    if (then == Then::saved) {
      w.step(Amend{.lease = spot, .notice = Duration{}});
      EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked) << "at once";
    }
    w.live(2s);
    EXPECT_EQ(w.states(spot), then == Then::preemptor_leaves ? "active" : "ended");
    EXPECT_EQ(w.signals(spot, false), then == Then::preemptor_leaves ? 0 : 1);
  }
}

TEST(Spot, OneIsNotEndedForAWaitThatIsShorterThanItsGrace) {
  Card w;
  const LeaseId spot = w.pinned(20 * GiB, Tier::spot, "crawl");
  w.step(Renew{spot, 0, 20s});
  const LeaseId urgent = w.start(10 * GiB, Tier::batch);
  EXPECT_EQ(w.states(spot, urgent), "active queued");
  w.step(Renew{spot, 0, 10min});
  w.live(1s);
  EXPECT_EQ(w.at(spot).end_reason, EndReason::revoked);
}

TEST(Spot, OneWhoseProgramIsOnlyBeingStartedIsNotEndedForThat) {
  for (const bool comes : {true, false}) {
    Card w;
    const LeaseId spot = w.queue(20 * GiB, Tier::spot, "crawl"), urgent = w.start(10 * GiB, Tier::batch);
    ASSERT_EQ(w.states(spot), "active") << "in a moment it is one that can be paused";
    if (comes) {
      w.attach(spot);
      w.live(1s);
      EXPECT_EQ(w.states(spot, urgent), "paused active");
      continue;
    }
    w.live(115s);
    EXPECT_EQ(w.states(spot), "active");
    w.live(6s);
    EXPECT_EQ(w.states(spot, urgent), "gone active") << "no program came";
  }
}

TEST(Spot, OneThatHostMemoryCouldNeverTakeIsEnded) {
  const struct {
    const char* name;
    Bytes limit;                   // of the ledger
    std::optional<Bytes> machine;  // host memory of the machine
    Bytes leased, used;
    Tier tier;
    std::uint32_t waiter;  // user who waits; the lease is of 1000
    bool ends;
  } rows[] = {
      {"less than it leased", 19 * GiB, {}, 20 * GiB, 20 * GiB, Tier::spot, 1000, true},
      {"as much as it leased", 20 * GiB, {}, 20 * GiB, 20 * GiB, Tier::spot, 1000, false},
      {"2 GiB of the machine's are kept free", 32 * GiB, 21 * GiB, 20 * GiB, 20 * GiB, Tier::spot, 1000, true},
      {"the machine has enough", 32 * GiB, 22 * GiB, 20 * GiB, 20 * GiB, Tier::spot, 1000, false},
      {"only spot leases are ended", 19 * GiB, {}, 20 * GiB, 20 * GiB, Tier::batch, 1000, false},
      {"holds too much for a moment", 15 * GiB, {}, 12 * GiB, 18 * GiB, Tier::spot, 1000, false},
      {"nothing is on the card", 15 * GiB, {}, 20 * GiB, {}, Tier::spot, 1000, true},
      {"a user's share counts while another waits", 24 * GiB, {}, 20 * GiB, 20 * GiB, Tier::spot, 1001, true},
      {"alone the user may take all", 24 * GiB, {}, 20 * GiB, 20 * GiB, Tier::spot, 1000, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Card w;
    w.rules.ledger_limit = row.limit;
    w.rules.host_memory = row.machine;
    const LeaseId held = w.imports(row.leased, row.tier, row.used);
    Lease urgent = w.want(10 * GiB, Tier::standard);
    urgent.uid = row.waiter;
    const LeaseId waits = w.submit(urgent, true);
    EXPECT_EQ(w.at(held).end_reason, row.ends ? EndReason::revoked : EndReason::none);
    EXPECT_EQ(w.states(waits), "queued");
  }
}

TEST(Spot, NobodysTurnEndsOneThatHostMemoryCouldNeverTake) {
  Card w;
  w.rules.host_memory = 21 * GiB;
  const LeaseId first = w.start(20 * GiB, Tier::spot, "first"), second = w.start(10 * GiB, Tier::spot, "second");
  w.live(10min);
  EXPECT_EQ(w.states(first, second), "active queued");
  EXPECT_TRUE(w.state.preemption.slices.empty());
}

TEST(Spot, OneThatUsedTheCardAMomentAgoIsNotEnded) {
  Card w;
  const LeaseId spot = w.start(20 * GiB, Tier::spot, "stages");
  w.live(10min);
  w.programs[spot].second = {};  // the first of its programs has ended, and the next one starts
  w.measure();
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.live(115s);
  EXPECT_EQ(w.states(spot), "active");
  w.programs[spot].second = 20 * GiB;
  w.live(10s);
  EXPECT_EQ(w.states(spot, urgent), "paused active") << "it is paused once it uses its card again";
}

TEST(Spot, OneWithNothingOnTheCardHasAMomentToTakeSomething) {
  const auto after = [](Duration waits, Tier tier) {
    Card w;
    const LeaseId early = w.imports(20 * GiB, tier);
    w.start(10 * GiB, Tier::interactive, "infer");
    w.live(waits);
    return std::pair(w.at(early).end_reason, w.times_told(early, ReasonKind::spot_unused));
  };
  EXPECT_EQ(after(115s, Tier::spot), std::pair(EndReason::none, 0L)) << "it may only be importing";
  EXPECT_EQ(after(125s, Tier::spot), std::pair(EndReason::revoked, 1L)) << "else it would keep its room for ever";
  EXPECT_EQ(after(10min, Tier::batch), std::pair(EndReason::none, 0L)) << "nobody else ever is";
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
  EXPECT_EQ(w.states(early), "active");
}

TEST(Spot, NobodysWordEndsAnEqual) {
  Card w;
  const LeaseId pinned = w.pinned(20 * GiB, Tier::spot, "crawl"), equal = w.start(10 * GiB, Tier::spot, "infer");
  for (const bool any_user : {false, true})
    EXPECT_EQ(w.refusal(Preempt{equal, 0, PreemptionRequest{1000, any_user}}).code, Code::CannotPreempt);
  EXPECT_EQ(w.states(pinned), "active");
}

// After a clock gap the daemon looks at its timers before it has read what happened meanwhile.
TEST(Spot, OneIsEndedForNothingOnTheCardOnlyByAReadingFromAfterItsMoment) {
  Card w;
  const LeaseId idle = w.imports(20 * GiB, Tier::spot);
  const Time over = *w.at(idle).granted_at + w.rules.spot_unused_after;
  w.live(w.rules.spot_unused_after - 5s);
  w.queue(10 * GiB, Tier::standard);
  w.now = over + 2s;
  w.step(Tick{});
  EXPECT_EQ(w.states(idle), "active");
  w.measure();
  EXPECT_EQ(w.at(idle).end_reason, EndReason::revoked);
}

TEST(Spot, WhoHasOneEndedIsToldThatItHasItsTimeToEnd) {
  Card w;
  w.rules.automatic = false;
  w.pinned(20 * GiB, Tier::spot, "crawl");
  const std::string helps = w.helps(w.start(10 * GiB, Tier::batch, "infer"));
  EXPECT_SAYS(helps, "lease-1 (crawl, ana) cannot be paused, and is ended: it has its time to end");
  EXPECT_FALSE(contains(helps, "its pause takes")) << helps;
}

}  // namespace
}  // namespace sublet::core::testing
