// SPDX-License-Identifier: Apache-2.0
// Leases that capabilities declare reclaimable.
#include "base/size_bounds.h"
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

// Two programs of 10 GiB each on 24 GiB, and a waiter for 12 GiB.
struct ReclaimableLeases : Card {
  LeaseId quiet, busy, waiter;
  explicit ReclaimableLeases(Tier tier = Tier::standard) {
    rules.min_residency = 3600s;  // no time slices
    quiet = start(10 * GiB, Tier::standard, "quiet");
    busy = start(10 * GiB, Tier::standard, "busy");
    live(30s);
    waiter = queue(12 * GiB, tier, "waiter");
  }
  void declare(LeaseId id, Reclaim terms) {
    const PauseCauseKind cause = terms.cause;
    EXPECT_TRUE(accepts(Reclaimable{id, cause, std::move(terms)}));
  }
  void withdraw(LeaseId id, PauseCauseKind cause) { EXPECT_TRUE(accepts(Reclaimable{id, cause, std::nullopt})); }
};

Reclaim idle_since(Time since) { return {.cause = PauseCauseKind::idle, .since = since, .since_as = "idle"}; }

TEST(Reclaim, ArePausedForTheirCauseAndTheirMemoryIsReserved) {
  ReclaimableLeases w;
  EXPECT_EQ(w.states(w.quiet, w.busy, w.waiter), "active active queued");
  w.declare(w.quiet, idle_since(w.now - 600s));
  const PreemptionPlan* plan = plan_for(w.state, w.waiter);
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->cause, Cause::reclaim);
  const PauseCause cause = w.at(w.quiet).parking->cause;
  EXPECT_EQ(cause.kind, PauseCauseKind::idle);
  EXPECT_EQ(cause.preemptor, w.waiter);
  EXPECT_EQ(cause.args.duration("idle"), 600s);
  const LeaseId small = w.queue(4 * GiB, Tier::standard, "small");
  w.obey();
  EXPECT_EQ(w.states(w.quiet, w.busy, w.waiter), "paused active active");
  EXPECT_EQ(w.states(small), "queued") << "only what the waiter leaves is for others";
  EXPECT_FALSE(w.at(w.quiet).parking->resume_requested);
}

TEST(Reclaim, AreTakenByTheirTerms) {
  const struct {
    const char* name;
    Tier waiter;
    Reclaim terms;
    const char* states;  // of the reclaimable lease and the waiter
    bool returns = false;
  } rows[] = {
      {"a lower tier than the least",
       Tier::batch,
       {.taken = Reclaim::Taken::turn, .least = Tier::standard},
       "active queued"},
      {"the least tier",
       Tier::standard,
       {.taken = Reclaim::Taken::turn, .least = Tier::standard},
       "paused active",
       true},
      {"any tier", Tier::batch, {}, "paused active"},
      {"by tier although it is reclaimable", Tier::critical, {}, "paused active", true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    ReclaimableLeases w(row.waiter);
    if (row.waiter != Tier::critical) w.step(Amend{.lease = w.busy, .pausable = Pausable::no});
    w.declare(w.quiet, row.terms);
    w.obey();
    EXPECT_EQ(w.states(w.quiet, w.waiter), row.states);
    const auto& parking = w.at(w.quiet).parking;
    EXPECT_EQ(parking && parking->resume_requested, row.returns);
  }
}

TEST(Reclaim, AreNotTakenWhereTheyDoNotHelp) {
  ReclaimableLeases w;
  w.step(Amend{.lease = w.busy, .pausable = Pausable::no});
  w.step(Release{w.waiter});
  w.waiter = w.queue(20 * GiB, Tier::standard, "large");
  w.declare(w.quiet, idle_since(w.now));
  EXPECT_EQ(w.states(w.quiet, w.waiter), "active queued");
}

TEST(Reclaim, StopsNoWorkForALeaseThatOnlyWantsToGrow) {
  for (const bool rests : {false, true}) {
    SCOPED_TRACE(rests);
    ReclaimableLeases w;
    w.step(Amend{.lease = w.busy, .pausable = Pausable::no});
    w.step(Release{w.waiter});
    w.waiter = w.start(rests ? least_lease : 4 * GiB, Tier::standard, "grows");
    w.step(Resize{w.waiter, 0, 12 * GiB, true});
    w.declare(w.quiet, {.taken = Reclaim::Taken::turn});
    w.obey();
    EXPECT_EQ(w.states(w.quiet), rests ? "paused" : "active");
  }
}

TEST(Reclaim, EndWithTheirWithdrawal) {
  ReclaimableLeases w;
  w.step(Release{w.waiter});
  w.declare(w.quiet, idle_since(w.now));
  w.withdraw(w.quiet, PauseCauseKind::idle);
  w.waiter = w.queue(12 * GiB, Tier::standard, "later");
  EXPECT_EQ(w.states(w.quiet, w.waiter), "active queued");
}

TEST(Reclaim, ServeWhereNothingIsPausedByTheRules) {
  ReclaimableLeases w;
  w.rules.automatic = false;
  w.declare(w.quiet, idle_since(w.now));
  w.obey();
  EXPECT_EQ(w.states(w.quiet, w.waiter), "paused active");
}

TEST(Reclaim, AreGivenBackByTheirCapability) {
  for (const Reclaim::Taken taken : {Reclaim::Taken::give_back, Reclaim::Taken::end}) {
    ReclaimableLeases w;
    w.step(Amend{.lease = w.quiet, .pausable = Pausable::no});
    w.declare(w.quiet, {.cause = PauseCauseKind::released, .taken = taken});
    const auto* order = w.newest<GiveBack>();
    ASSERT_NE(order, nullptr);
    EXPECT_EQ(order->lease, w.quiet);
    EXPECT_EQ(order->waiter, w.waiter);
    EXPECT_SAYS(w.info(w.waiter).basis, "gives its memory back");
    w.live(5s);
    EXPECT_EQ(w.ordered<GiveBack>(), 1) << "it is asked once";
    EXPECT_EQ(w.states(w.quiet, w.waiter), "active queued");
    w.quit(w.quiet);
    w.live(5s);
    EXPECT_EQ(w.states(w.waiter), "active");
  }
}

TEST(Reclaim, ACapabilityThatRefusesIsNotWaitedFor) {
  ReclaimableLeases w;
  w.step(Amend{.lease = w.quiet, .pausable = Pausable::no});
  w.declare(w.quiet, {.cause = PauseCauseKind::released, .taken = Reclaim::Taken::give_back});
  ASSERT_NE(plan_for(w.state, w.waiter), nullptr);
  w.withdraw(w.quiet, PauseCauseKind::released);
  EXPECT_EQ(plan_for(w.state, w.waiter), nullptr);
  w.declare(w.busy, idle_since(w.now));
  w.obey();
  EXPECT_EQ(w.states(w.quiet, w.busy, w.waiter), "active paused active");
}

}  // namespace
}  // namespace sublet::core::testing
