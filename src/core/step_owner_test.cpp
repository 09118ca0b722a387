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
  EXPECT_EQ(w.state_of(id), LeaseState::active);
  w.step(HeldChanged{id, false});
  EXPECT_EQ(w.last.wake_at, w.now + w.rules.linger);
  w.pass(w.rules.linger - 1ms);
  EXPECT_EQ(w.state_of(id), LeaseState::active);
  w.pass(1ms);
  EXPECT_EQ(w.told(id).end_reason, EndReason::owner_gone);
  EXPECT_EQ(w.reason(id, ReasonKind::owner_disconnected).duration("gone"), 5s);
  EXPECT_TRUE(w.gone(id)) << "it never had a process: its bytes are free at once";
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Connection, BackWithinTheLingerKeepsTheLease) {
  Owned w;
  const LeaseId id = w.hold();
  w.step(HeldChanged{id, false});
  w.pass(4s);
  w.step(HeldChanged{id, true});
  w.pass(1h);
  EXPECT_EQ(w.state_of(id), LeaseState::active);
  w.step(HeldChanged{id, false});
  w.pass(4s);
  EXPECT_EQ(w.state_of(id), LeaseState::active) << "the linger starts anew";
}

TEST(Connection, LostWhileQueuedLeavesTheQueue) {
  Owned w;
  w.hold(20 * GiB);
  const LeaseId id = w.hold(20 * GiB);
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  w.step(HeldChanged{id, false});
  w.pass(5s);
  EXPECT_EQ(w.told(id).end_reason, EndReason::cancelled);
}

TEST(Connection, OfATokenLeaseMeansNothing) {
  Owned w;
  const LeaseId id = w.token(1h);
  w.step(HeldChanged{id, true});
  w.step(HeldChanged{id, false});
  w.pass(10min);
  EXPECT_EQ(w.state_of(id), LeaseState::active);
}

// -------------------------------------------------------------------------------- tokens

TEST(Token, ExpiresUnlessRenewed) {
  Owned w;
  const LeaseId id = w.token(60s);
  EXPECT_EQ(w.at(id).expires_at, w.now + 60s);
  w.pass(59s);
  EXPECT_TRUE(w.step(Renew{id}).outcome.has_value());
  EXPECT_EQ(w.at(id).expires_at, w.now + 60s) << "whole again";
  EXPECT_TRUE(w.step(Renew{id, 0, 10s}).outcome.has_value());
  w.pass(10s);
  EXPECT_EQ(w.told(id).end_reason, EndReason::expired);
  EXPECT_EQ(w.signals(id, false), 0);
  EXPECT_EQ(w.step(Renew{id}).outcome.error().code, Code::NotFound);
}

TEST(Token, ARenewalAfterTheEndIsStaleThoughTheTimerDidNotRunYet) {
  Owned w;
  const LeaseId id = w.token(60s);
  w.now = w.now + 60s;
  EXPECT_EQ(w.step(Renew{id}).outcome.error().code, Code::Stale);
  w.step(Tick{});
  EXPECT_TRUE(w.gone(id));
}

TEST(Token, TheTtlRunsFromTheClaimNotFromTheQueue) {
  Owned w;
  const LeaseId holder = w.hold(24 * GiB);
  const LeaseId id = w.token(20s);
  w.pass_measured(60s);
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  w.step(Release{holder});
  w.pass(9s);
  w.step(Claim{id});
  EXPECT_EQ(w.at(id).expires_at, w.now + 20s);
}

TEST(Token, ALeaseWithoutATtlCannotBeRenewed) {
  Owned w;
  const LeaseId id = w.hold();
  EXPECT_EQ(w.step(Renew{id}).outcome.error().code, Code::BadRequest);
  EXPECT_EQ(w.step(Renew{id, 0, -1s}).outcome.error().code, Code::BadRequest);
}

// -------------------------------------------------------------------------------- attach

TEST(Attach, MakesTheProcessTheOwner) {
  Owned w;
  const LeaseId id = w.hold();
  const std::uint64_t generation = w.at(id).generation;
  EXPECT_TRUE(w.step(Attach{id, generation, kept_process(100), true, {}}).outcome.has_value());
  EXPECT_EQ(w.at(id).owner.kind, OwnerKind::process);
  EXPECT_EQ(w.at(id).owner.process, process(100));
  EXPECT_TRUE(w.at(id).had_process);
  EXPECT_GT(w.at(id).generation, generation);
  w.step(HeldChanged{id, false});
  w.pass(1h);
  EXPECT_EQ(w.state_of(id), LeaseState::active) << "a killed command line ends nothing any more";
}

TEST(Attach, TwiceIsOnce) {
  Owned w;
  const LeaseId id = w.hold();
  const std::uint64_t generation = w.at(id).generation;
  w.step(Attach{id, generation, kept_process(100), true, {}});
  const Lease before = w.at(id);
  EXPECT_TRUE(w.step(Attach{id, generation, kept_process(100), true, {}}).outcome.has_value());
  EXPECT_EQ(w.at(id).generation, before.generation);
  EXPECT_TRUE(w.last.changed.empty());
  EXPECT_EQ(w.step(Attach{id, generation, kept_process(200), true, {}}).outcome.error().code, Code::Stale);
}

TEST(Attach, NeedsAnActiveLease) {
  Owned w;
  const LeaseId holder = w.hold(24 * GiB);
  const LeaseId id = w.token(1h);
  EXPECT_EQ(w.step(Attach{id, 0, kept_process(100), true, {}}).outcome.error().code, Code::Stale);
  w.step(Release{holder});
  const auto offered = w.step(Attach{id, 0, kept_process(100), true, {}}).outcome;
  EXPECT_EQ(offered.error().code, Code::Stale);
  EXPECT_SAYS(offered.error().hint, "sublet claim lease-2");
  EXPECT_FALSE(w.at(id).had_process);
  EXPECT_EQ(w.step(Attach{{99}, 0, kept_process(100), true, {}}).outcome.error().code, Code::NotFound);
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

TEST(ClockGap, WhoCouldNotReachTheDaemonIsGivenTime) {
  Owned w;
  const LeaseId token = w.token(10s);
  const LeaseId held = w.hold();
  w.step(HeldChanged{held, false});
  w.now = w.now + 60s;  // nothing ran, not even the timers
  w.step(ClockGap{});
  EXPECT_EQ(w.state_of(token), LeaseState::active);
  EXPECT_EQ(w.state_of(held), LeaseState::active);
  EXPECT_EQ(w.told(token).expires_at, w.now + w.rules.reconnect) << "and that is stored";
  EXPECT_TRUE(w.step(Renew{token}).outcome.has_value());
  w.pass(w.rules.reconnect + 1s);
  EXPECT_TRUE(w.gone(token));
  EXPECT_TRUE(w.gone(held));
}

TEST(ClockGap, AnOfferStaysOpen) {
  Owned w;
  const LeaseId holder = w.hold(24 * GiB);
  const LeaseId id = w.token(1h);
  w.step(Release{holder});
  ASSERT_EQ(w.state_of(id), LeaseState::offered);
  w.now = w.now + 60s;
  w.step(ClockGap{});
  EXPECT_EQ(w.state_of(id), LeaseState::offered);
  EXPECT_TRUE(w.step(Claim{id}).outcome.has_value());
}

TEST(ClockGap, WhatRanOutGoesOnWhereItStoodWhenTheMachineFellAsleep) {
  Owned w;
  w.rules.reconnect = 1s;
  const LeaseId token = w.token(1h);
  const LeaseId held = w.hold();
  const LeaseId stopped = w.token(2h);
  w.step(Attach{stopped, 0, kept_process(100), true, {}});
  w.step(Release{.lease = stopped, .stop = true});
  w.step(HeldChanged{held, false});
  const LeaseId holder = w.hold(w.free(0));
  const LeaseId waiter = w.token(1h);
  w.step(Release{holder});
  ASSERT_EQ(w.state_of(waiter), LeaseState::offered);
  const Time fell_asleep = w.now;
  w.now = w.now + 10h;
  w.step(ClockGap{10h});
  EXPECT_EQ(w.told(token).expires_at, fell_asleep + 11h) << "and that is stored";
  EXPECT_EQ(w.told(stopped).stop_at, w.now) << "its grace begins anew where it stood";
  EXPECT_GE(*w.told(waiter).offer_ends_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.state_of(held), LeaseState::active);
  EXPECT_EQ(w.free(0), Bytes{}) << "the last reading is of before";
  w.pass(w.rules.linger - 1s);
  EXPECT_EQ(w.state_of(held), LeaseState::active) << "it lingers on";
  w.pass(2s);
  EXPECT_TRUE(w.gone(held));
  EXPECT_EQ(w.state_of(stopped), LeaseState::active);
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
    const auto refused = w.step(late).outcome;
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::Stale);
    EXPECT_SAYS(refused.error().detail, "at generation " + std::to_string(old + 1));
    EXPECT_SAYS(refused.error().detail, "for generation " + std::to_string(old));
    EXPECT_TRUE(w.last.changed.empty());
  }
}

}  // namespace
}  // namespace sublet::core::testing
