// SPDX-License-Identifier: Apache-2.0
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

struct Owned : OneCard {
  // As the probe does while the rest of the test waits.
  void pass_measured(Duration d) {
    for (const Time until = now + d; now < until;) {
      pass(std::min<Duration>(5s, until - now));
      snapshot({gpu(0, 24 * GiB)});
    }
  }
  LeaseId hold(Bytes vram = 6 * GiB) {
    Lease lease = wish(vram);
    lease.owner.kind = OwnerKind::connection;
    return submit(lease, true);
  }
  LeaseId token(Duration ttl, Bytes vram = 6 * GiB) {
    Lease lease = wish(vram);
    lease.ttl = ttl;
    return submit(lease);
  }
};

// -------------------------------------------------------------------------------- connections

TEST(Connection, LostForTheLingerEndsTheLease) {
  Owned w;
  const LeaseId id = w.hold();
  w.step(HeldChanged{id, false});
  w.pass(4s);
  w.step(HeldChanged{id, true});
  w.pass(1h);
  EXPECT_EQ(w.states(id), "active") << "it was back within the linger";
  w.step(HeldChanged{id, false});
  EXPECT_EQ(w.last.wake_at, w.now + w.rules.linger);
  w.pass(w.rules.linger - 1ms);
  EXPECT_EQ(w.states(id), "active") << "the linger starts anew";
  w.pass(1ms);
  EXPECT_EQ(w.told(id).end_reason, EndReason::owner_gone);
  EXPECT_EQ(w.reason(id, ReasonKind::owner_disconnected).duration("gone"), 5s);
  EXPECT_TRUE(w.gone(id)) << "it never had a process: its bytes are free at once";
  w.measure();
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Connection, LostWhileQueuedLeavesTheQueueUnlessByToken) {
  Owned w;
  w.hold(20 * GiB);
  const LeaseId id = w.hold(20 * GiB), token = w.token(1h, 20 * GiB);
  EXPECT_EQ(w.states(id, token), "queued queued");
  w.step(HeldChanged{token, true});
  for (const LeaseId lost : {id, token}) w.step(HeldChanged{lost, false});
  w.pass(5s);
  EXPECT_EQ(w.told(id).end_reason, EndReason::cancelled);
  w.pass(10min);
  EXPECT_EQ(w.states(token), "queued");
}

// -------------------------------------------------------------------------------- tokens

TEST(Token, ExpiresUnlessRenewed) {
  Owned w;
  const LeaseId id = w.token(60s), late = w.token(69s);
  EXPECT_EQ(w.at(id).expires_at, w.now + 60s);
  w.pass(59s);
  EXPECT_TRUE(w.accepts(Renew{id}));
  EXPECT_EQ(w.at(id).expires_at, w.now + 60s) << "whole again";
  EXPECT_TRUE(w.accepts(Renew{id, 0, 9s}));
  w.pass(9s);
  EXPECT_EQ(w.told(id).end_reason, EndReason::expired);
  EXPECT_EQ(w.signals(id, false), 0);
  EXPECT_EQ(w.refusal(Renew{id}).code, Code::NotFound);
  w.now = w.now + 1s;
  EXPECT_EQ(w.refusal(Renew{late}).code, Code::Stale) << "after the end, though the timer did not run yet";
  w.step(Tick{});
  EXPECT_TRUE(w.gone(late));
  const LeaseId without_ttl = w.hold();
  EXPECT_EQ(w.refusal(Renew{without_ttl}).code, Code::BadRequest);
  EXPECT_EQ(w.refusal(Renew{without_ttl, 0, -1s}).code, Code::BadRequest);
}

TEST(Token, TheTtlRunsFromTheClaimNotFromTheQueue) {
  Owned w;
  const LeaseId holder = w.hold(24 * GiB), id = w.token(20s);
  w.pass_measured(60s);
  EXPECT_EQ(w.states(id), "queued");
  w.step(Release{holder});
  w.pass(9s);
  w.step(Claim{id});
  EXPECT_EQ(w.at(id).expires_at, w.now + 20s);
}

// -------------------------------------------------------------------------------- attach

TEST(Attach, MakesTheProcessTheOwner) {
  Owned w;
  const LeaseId id = w.hold();
  const std::uint64_t generation = w.at(id).generation;
  const Attach attach{id, generation, kept_process(100), true, {}};
  EXPECT_TRUE(w.accepts(attach));
  EXPECT_EQ(w.at(id).owner.kind, OwnerKind::process);
  EXPECT_EQ(w.at(id).owner.process, process(100));
  EXPECT_TRUE(w.at(id).had_process);
  EXPECT_GT(w.at(id).generation, generation);
  const std::uint64_t attached = w.at(id).generation;
  EXPECT_TRUE(w.accepts(attach)) << "twice is once";
  EXPECT_EQ(w.at(id).generation, attached);
  EXPECT_TRUE(w.last.changed.empty());
  EXPECT_EQ(w.refusal(Attach{id, generation, kept_process(200), true, {}}).code, Code::Stale);
  w.step(HeldChanged{id, false});
  w.pass(1h);
  EXPECT_EQ(w.states(id), "active") << "a killed command line ends nothing any more";
}

TEST(Attach, NeedsAnActiveLease) {
  Owned w;
  const LeaseId holder = w.hold(24 * GiB), id = w.token(1h);
  const Attach attach{id, 0, kept_process(100), true, {}};
  EXPECT_EQ(w.refusal(attach).code, Code::Stale);
  w.step(Release{holder});
  const Error offered = w.refusal(attach);
  EXPECT_EQ(offered.code, Code::Stale);
  EXPECT_SAYS(offered.hint, "sublet claim lease-2");
  EXPECT_FALSE(w.at(id).had_process);
  EXPECT_EQ(w.refusal(Attach{{99}, 0, kept_process(100), true, {}}).code, Code::NotFound);
}

TEST(Attach, BookingOnlyMakesTheEndWaitForAMeasurement) {
  Owned w;
  const LeaseId id = w.token(1h);
  const std::uint64_t generation = w.at(id).generation;
  w.step(Attach{id, 0, kept_process(100), false, {}});
  EXPECT_EQ(w.at(id).owner.kind, OwnerKind::token);
  EXPECT_EQ(w.at(id).generation, generation);
  EXPECT_TRUE(w.at(id).had_process);
  w.step(Release{id});
  EXPECT_FALSE(w.gone(id));
  EXPECT_EQ(w.free(0), 18 * GiB);
}

// A lease of 6 GiB whose booked process 100 has 4 GiB on the card.
void book(Owned& w, LeaseId id) {
  ASSERT_TRUE(w.accepts(Attach{id, 0, {}, false, {process(100), {}}}));
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 4 * GiB, id)})});
}

TEST(Attach, BookedProcessesAreParkedOnceTheirOwnerAllowsIt) {
  Owned w;
  const LeaseId id = w.token(1h);
  const Pause pause{id, 0, {}, plenty};
  EXPECT_SAYS(w.refusal(pause).hint, "sublet attach");
  book(w, id);
  EXPECT_SAYS(w.refusal(pause).hint, "sublet pause --grant " + w.at(id).consumer);
  w.step(Grant{w.at(id).uid, w.at(id).consumer, true});
  ASSERT_TRUE(w.accepts(pause));
  EXPECT_EQ(w.at(id).parking->method, PauseMethod::driver);
}

TEST(Attach, AnotherBookedProcessIsAskedAnew) {
  Owned w;
  const LeaseId id = w.token(1h);
  book(w, id);
  w.step(Grant{w.at(id).uid, w.at(id).consumer, true});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty}));
  w.step(AttemptEvent{id, Parked{false, "process 100 uses managed memory", {}, true, ObstacleCode::not_parkable}});
  w.step(AttemptEvent{id, Unparked{Unparked::How::runs, {}, plenty}});
  EXPECT_FALSE(w.accepts(Pause{id, 0, {}, plenty}));
  ASSERT_TRUE(w.accepts(Attach{id, 0, {}, false, {process(101), {}}}));
  EXPECT_TRUE(w.accepts(Pause{id, 0, {}, plenty}));
}

TEST(Attach, TheLossOfTheConnectionLeavesNoBookedProcessParked) {
  Owned w;
  const LeaseId id = w.hold();
  book(w, id);
  w.step(Grant{w.at(id).uid, w.at(id).consumer, true});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty}));
  w.step(AttemptEvent{id, Parked{true, {}, 4 * GiB}});
  for (int i = 0; i < 2; ++i) w.now = w.now + 20ms, w.snapshot({gpu(0, 24 * GiB)});
  ASSERT_EQ(w.states(id), "paused");
  w.step(HeldChanged{id, false});
  w.pass(w.rules.linger + 1s);
  ASSERT_FALSE(w.at(id).ended()) << "its process would stay parked for ever";
  w.snapshot({gpu(0, 24 * GiB)});
  ASSERT_EQ(w.states(id), "resuming");
  w.step(AttemptEvent{id, Unparked{Unparked::How::runs, {}, plenty}});
  EXPECT_EQ(w.states(id), "ended");
}

TEST(ClockGap, WhoCouldNotReachTheDaemonIsGivenTime) {
  Owned w;
  const LeaseId token = w.token(10s), held = w.hold();
  w.step(HeldChanged{held, false});
  const LeaseId holder = w.hold(w.free(0)), offered = w.token(1h);
  w.step(Release{holder});
  w.now = w.now + 60s;  // nothing ran, not even the timers
  w.step(ClockGap{});
  EXPECT_EQ(w.states(token, held, offered), "active active offered");
  EXPECT_EQ(w.told(token).expires_at, w.now + w.rules.reconnect) << "and that is stored";
  EXPECT_TRUE(w.accepts(Claim{offered}));
  EXPECT_TRUE(w.accepts(Renew{token}));
  w.pass(w.rules.reconnect + 1s);
  EXPECT_EQ(w.states(token, held), "gone gone");
}

TEST(ClockGap, WhatRanOutGoesOnWhereItStoodWhenTheMachineFellAsleep) {
  Owned w;
  w.rules.reconnect = 1s;
  const LeaseId token = w.token(1h), held = w.hold(), stopped = w.token(2h);
  w.step(Attach{stopped, 0, kept_process(100), true, {}});
  w.step(Release{.lease = stopped, .stop = true});
  w.step(HeldChanged{held, false});
  const LeaseId holder = w.hold(w.free(0)), waiter = w.token(1h);
  w.step(Release{holder});
  ASSERT_EQ(w.states(waiter), "offered");
  const Time fell_asleep = w.now;
  w.now = w.now + 10h;
  w.step(ClockGap{10h});
  EXPECT_EQ(w.told(token).expires_at, fell_asleep + 11h) << "and that is stored";
  EXPECT_EQ(w.told(stopped).stop_at, w.now) << "its grace begins anew where it stood";
  EXPECT_GE(*w.told(waiter).offer_ends_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.states(held), "active");
  EXPECT_EQ(w.free(0), Bytes{}) << "the last reading is of before";
  w.pass(w.rules.linger - 1s);
  EXPECT_EQ(w.states(held), "active") << "it lingers on";
  w.pass(2s);
  EXPECT_TRUE(w.gone(held));
  EXPECT_EQ(w.states(stopped), "active");
  w.actions.clear();
  w.pass(w.rules.grace);
  EXPECT_FALSE(w.actions.empty()) << "killed, its grace being over";
}

TEST(Generation, AnOlderOneIsRefusedWithBothNumbers) {
  Owned w;
  const LeaseId id = w.hold();
  const std::uint64_t old = w.at(id).generation;
  w.step(Attach{id, old, kept_process(100), true, {}});
  for (const Fact& late : {Fact(Renew{id, old, 5s}), Fact(Release{id, old}), Fact(Claim{id, old})}) {
    const Error refused = w.refusal(late);
    EXPECT_EQ(refused.code, Code::Stale);
    EXPECT_SAYS(refused.detail, "at generation " + std::to_string(old + 1));
    EXPECT_SAYS(refused.detail, "for generation " + std::to_string(old));
    EXPECT_TRUE(w.last.changed.empty());
  }
}

}  // namespace
}  // namespace sublet::core::testing
