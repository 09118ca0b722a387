// SPDX-License-Identifier: Apache-2.0
// A pause holds a waiting lease back, at its place, until it is resumed.
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

// One card of 24 GiB with a lease of 20 GiB, and three leases that wait for 10 GiB each.
struct Waiting : OneCard {
  LeaseId holder, first, second, third;
  Waiting() {
    holder = run(20 * GiB, 7);
    measure({uses(7, 18 * GiB, holder)});
    first = submit(wish(10 * GiB, "a"), true);
    pass(1s);
    second = submit(wish(10 * GiB, "b"), true);
    pass(1s);
    third = submit(wish(10 * GiB, "c"), true);
  }
  bool pause(LeaseId id) { return accepts(Pause{id, 0, {PauseCauseKind::owner_request}, plenty}); }
  void leave() {
    step(ProgramEnded{holder, 0});
    measure();
  }
};

TEST(HoldBack, ALeaseThatIsHeldBackIsPassedByUntilItIsResumed) {
  for (const bool restarts : {false, true}) {
    Waiting w;
    ASSERT_TRUE(w.pause(w.first));
    EXPECT_EQ(w.reason(w.first, ReasonKind::held_back).number("place"), 1);
    EXPECT_EQ(w.state.queue.place(w.second), 1U);
    EXPECT_SAYS(w.helps(w.first), "sublet resume");
    EXPECT_TRUE(w.pause(w.first)) << "again";
    if (restarts) w.restart();
    w.leave();
    EXPECT_EQ(w.states(w.first, w.second, w.third), restarts ? "queued offered offered" : "queued active active");
    ASSERT_TRUE(w.accepts(Resume{w.first}));
    EXPECT_FALSE(w.at(w.first).held_back_at);
    EXPECT_EQ(w.state.queue.place(w.first), 1U);
  }
}

TEST(HoldBack, AResumeGivesTheOldPlaceBack) {
  Waiting w;
  const Time queued_at = w.at(w.first).queued_at;
  w.pause(w.first);
  w.pass(1h);
  const LeaseId later = w.submit(wish(10 * GiB, "d"), true);
  ASSERT_TRUE(w.accepts(Resume{w.first}));
  EXPECT_EQ(w.at(w.first).queued_at, queued_at);
  EXPECT_EQ(w.state.queue.place(w.first), 1U);
  EXPECT_EQ(w.state.queue.place(later), 4U);
  w.leave();
  EXPECT_EQ(w.states(w.first, w.second, w.third), "active active queued");
}

TEST(HoldBack, NobodyIsPausedForALeaseThatIsHeldBack) {
  Waiting w;
  Lease urgent = wish(20 * GiB, "urgent");
  urgent.tier = Tier::interactive;
  ASSERT_TRUE(w.pause(w.first) && w.pause(w.second) && w.pause(w.third));
  const int asked = w.ordered<Park>();
  const LeaseId id = w.submit(urgent, true);
  if (w.ordered<Park>() == asked) {  // its pause was not asked for yet
    ASSERT_TRUE(w.pause(id));
    w.pass(1min);
    EXPECT_EQ(w.ordered<Park>(), asked);
  }
}

TEST(HoldBack, NothingButAnOwnerOrAnAdminHoldsALeaseBack) {
  Waiting w;
  for (const PauseCauseKind kind : {PauseCauseKind::idle, PauseCauseKind::soft_limit, PauseCauseKind::tier})
    EXPECT_EQ(w.refusal(Pause{w.first, 0, {kind}, plenty}).code, Code::Stale);
  EXPECT_FALSE(w.at(w.first).held_back_at);
  EXPECT_TRUE(w.accepts(Pause{w.first, 0, {PauseCauseKind::admin_request}, plenty}));
  EXPECT_TRUE(w.at(w.first).held_back_at);
}

TEST(HoldBack, AResumeOfALeaseForACardThatWasNeverReadAsksForAReading) {
  World w;
  Lease lease = wish(10 * GiB);
  lease.wanted_devices = {"gpu1"};
  const LeaseId id = w.submit(lease, true);
  ASSERT_TRUE(w.accepts(Pause{id, 0, {PauseCauseKind::owner_request}, plenty}));
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  w.pass(1h);
  const int asked = w.ordered<TakeSnapshot>();
  ASSERT_TRUE(w.accepts(Resume{id}));
  EXPECT_GT(w.ordered<TakeSnapshot>(), asked) << "the last reading is old";
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.states(id), "active");
}

TEST(HoldBack, EndsWithItsLease) {
  Waiting w;
  w.pause(w.first);
  w.step(Release{.lease = w.first});
  EXPECT_EQ(w.told(w.first).end_reason, EndReason::cancelled);
  EXPECT_FALSE(w.told(w.first).held_back_at);
  EXPECT_EQ(w.state.queue.size(), 2U);
}

TEST(HoldBack, APauseOfTheOwnerReplacesTheCauseOfAnotherPause) {
  TwoLeases w;
  ASSERT_TRUE(w.accepts(Pause{w.victim, 0, {PauseCauseKind::idle, w.waiter}, plenty}));
  w.parked();
  ASSERT_TRUE(w.accepts(Pause{w.victim, 0, {PauseCauseKind::soft_limit}, plenty}));
  EXPECT_EQ(w.at(w.victim).parking->cause.kind, PauseCauseKind::idle);
  ASSERT_TRUE(w.accepts(Pause{w.victim, 0, {PauseCauseKind::owner_request}, plenty}));
  EXPECT_EQ(w.told(w.victim).parking->cause, PauseCause{PauseCauseKind::owner_request});
}

TEST(HoldBack, AResumeOfALeaseThatWaitsIsRefused) {
  Waiting w;
  EXPECT_EQ(w.refusal(Resume{w.first}).code, Code::Stale);
}

}  // namespace
}  // namespace sublet::core::testing
