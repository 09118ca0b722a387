// SPDX-License-Identifier: Apache-2.0
#include "core/world.h"

namespace sublet::core::testing {
namespace {

Lease wish_at(Tier tier, int priority, Bytes vram = 20 * GiB) {
  Lease lease = wish(vram);
  lease.tier = tier;
  lease.priority = priority;
  return lease;
}

TEST(Grant, FollowsTierThenAgedPriorityThenFirstCome) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId holder = w.submit(20 * GiB);
  const LeaseId plain = w.submit(wish_at(Tier::standard, 0), true);
  const LeaseId later = w.submit(wish_at(Tier::standard, 0), true);
  const LeaseId urgent = w.submit(wish_at(Tier::standard, 10), true);
  const LeaseId higher = w.submit(wish_at(Tier::interactive, -50), true);
  const std::vector<LeaseId> order{higher, urgent, plain, later};
  EXPECT_EQ(w.state.queue().in_order(), order);
  LeaseId last = holder;
  for (const LeaseId next : order) {
    w.step(Release{last});
    EXPECT_EQ(w.state_of(next), LeaseState::active);
    last = next;
  }
}

TEST(Grant, WaitingOvertakesPriority) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  w.submit(20 * GiB);
  const LeaseId old = w.submit(wish_at(Tier::standard, 0), true);
  w.pass(11min);
  const LeaseId urgent = w.submit(wish_at(Tier::standard, 10), true);
  EXPECT_EQ(w.state.queue().place(old), 1u);
  EXPECT_EQ(w.state.queue().place(urgent), 2u);
}

TEST(Grant, SmallOnesPassALargeHeadThatDoesNotFit) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  w.submit(10 * GiB);
  const LeaseId large = w.submit(20 * GiB);
  const LeaseId small = w.submit(4 * GiB);
  EXPECT_EQ(w.state_of(large), LeaseState::queued);
  EXPECT_EQ(w.state_of(small), LeaseState::active);
  EXPECT_SAYS(w.why(large, "queued"), "queued at place 1 of 1: needs 20.0 GiB; 14.0 GiB is effectively free on gpu0");
}

TEST(Grant, TakesTheDeviceThatItFillsBest) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB), gpu(2, 16 * GiB)});
  EXPECT_EQ(w.at(w.submit(8 * GiB)).device, uuid_of(1)) << "of equals the lower index";
  EXPECT_EQ(w.at(w.submit(8 * GiB)).device, uuid_of(1));
  EXPECT_EQ(w.at(w.submit(20 * GiB)).device, uuid_of(0));
}

TEST(Grant, OneQueueForThoseWhoWantADeviceAndThoseWhoTakeAny) {
  World w;
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  const LeaseId on_0 = w.submit(8 * GiB), on_1 = w.submit(8 * GiB);
  Lease first = wish(8 * GiB);
  first.wanted_device = uuid_of(1);
  const LeaseId picky = w.submit(first, true), any = w.submit(wish(8 * GiB), true);
  w.step(Release{on_0});
  EXPECT_EQ(w.at(any).device, uuid_of(0)) << "the first in order does not fit there";
  EXPECT_EQ(w.state_of(picky), LeaseState::queued);
  w.step(Release{on_1});
  EXPECT_EQ(w.at(picky).device, uuid_of(1));
}

TEST(Grant, NeverPromisesWhatOutsidersUse) {
  World w;
  // One lease has used half of its reservation, an outsider 10 GiB, and 2 GiB are in no list.
  w.snapshot({gpu(0, 80 * GiB)});
  const LeaseId id = w.run(40 * GiB, 100);
  w.snapshot({gpu(0, 80 * GiB, {uses(100, 5 * GiB, id), uses(4711, 10 * GiB)}, 2 * GiB)});
  EXPECT_EQ(w.free(0), 28 * GiB);
  EXPECT_EQ(w.state.devices().at(uuid_of(0)).other, 12 * GiB);
  EXPECT_EQ(w.state_of(w.submit(29 * GiB)), LeaseState::queued);
  EXPECT_EQ(w.state_of(w.submit(28 * GiB)), LeaseState::active);
}

TEST(Grant, UseAboveTheReservationCounts) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId id = w.run(6 * GiB, 100);
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 9 * GiB, id)})});
  EXPECT_EQ(w.free(0), 15 * GiB);
  EXPECT_EQ(w.at(id).peak_used, 9 * GiB);
}

// -------------------------------------------------------------------------------- offers

struct OfferWorld : World {
  LeaseId holder, waiter;
  OfferWorld() {
    snapshot({gpu(0, 24 * GiB)});
    holder = submit(20 * GiB);
    waiter = submit(20 * GiB);
    EXPECT_EQ(state_of(waiter), LeaseState::queued);
  }
};

TEST(Offer, ALeaseThatNobodyWaitsForIsOfferedAndReserved) {
  OfferWorld w;
  w.step(Release{w.holder});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered);
  EXPECT_EQ(w.at(w.waiter).offer_ends_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.last.wake_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.pass(9s);
  w.step(HeldChanged{w.waiter, true});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered) << "only a claim takes an offer";
  const std::uint64_t generation = w.at(w.waiter).generation;
  EXPECT_TRUE(w.step(Claim{w.waiter, generation}).outcome.has_value());
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::active);
  EXPECT_GT(w.at(w.waiter).generation, generation);
}

TEST(Offer, ALeaseThatSomebodyWaitsForIsActiveAtOnce) {
  OfferWorld w;
  w.step(HeldChanged{w.waiter, true});
  w.step(Release{w.holder});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::active);
}

TEST(Offer, LapsesBackBehindItsEqualsAndTheSecondTimeEnds) {
  OfferWorld w;
  const LeaseId other = w.submit(20 * GiB);
  w.step(Release{w.holder});
  w.pass(10s);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::queued);
  EXPECT_EQ(w.at(w.waiter).device, "");
  EXPECT_EQ(w.state_of(other), LeaseState::offered) << "the next one gets exactly its bytes";
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.snapshot({gpu(0, 24 * GiB)});
  w.step(Claim{other});
  w.step(Release{other});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered);
  w.pass(9s);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered);
  w.pass(1s);
  EXPECT_EQ(w.told(w.waiter).end_reason, EndReason::unclaimed);
  EXPECT_TRUE(w.gone(w.waiter));
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Offer, WhatItsProcessIsListedWithCountsAsAnOutsidersOnceItLapsed) {
  OfferWorld w;
  w.step(Release{w.holder});
  DeviceReading reading = gpu(0, 24 * GiB, {uses(100, 3 * GiB, w.waiter)});
  reading.used = 1 * GiB;  // less than the list adds up to: whichever is more counts
  w.snapshot({reading});
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.pass(w.rules.claim_window);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered) << "it fits still, and is offered once more";
  EXPECT_EQ(w.at(w.waiter).lapsed_offers, 1);
  EXPECT_EQ(w.free(0), 1 * GiB);
}

TEST(Offer, BehindItsEqualsAlsoWithinTheSameInstant) {
  OfferWorld w;
  w.step(Release{w.holder});
  w.now = *w.at(w.waiter).offer_ends_at;
  const LeaseId newcomer = w.submit(20 * GiB);  // this step finds the offer over
  EXPECT_EQ(w.state_of(newcomer), LeaseState::active) << "its request is open";
  EXPECT_GT(w.at(w.waiter).queued_at, w.at(newcomer).queued_at);
}

TEST(Offer, AClaimThatComesTooLateIsStale) {
  OfferWorld w;
  EXPECT_EQ(w.step(Claim{w.waiter}).outcome.error().code, Code::Stale) << "nothing is offered yet";
  w.step(Release{w.holder});
  const std::uint64_t first_offer = w.at(w.waiter).generation;
  w.now = *w.at(w.waiter).offer_ends_at;
  EXPECT_EQ(w.step(Claim{w.waiter}).outcome.error().code, Code::Stale);
  w.step(Tick{});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered) << "nobody else waits: offered once more";
  const auto late = w.step(Claim{w.waiter, first_offer}).outcome;
  EXPECT_EQ(late.error().code, Code::Stale);
  EXPECT_SAYS(late.error().detail, "generation " + std::to_string(w.at(w.waiter).generation));
  EXPECT_SAYS(late.error().detail, "generation " + std::to_string(first_offer));
  EXPECT_TRUE(w.step(Claim{w.waiter}).outcome.has_value());
}

}  // namespace
}  // namespace sublet::core::testing
