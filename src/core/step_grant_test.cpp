// SPDX-License-Identifier: Apache-2.0
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

Lease wish_at(Tier tier, int priority, Bytes vram = 20 * GiB) {
  Lease lease = wish(vram);
  lease.tier = tier;
  lease.priority = priority;
  return lease;
}

TEST(Grant, FollowsTierThenAgedPriorityThenFirstCome) {
  OneCard w;
  const LeaseId holder = w.submit(20 * GiB), old = w.submit(wish_at(Tier::standard, 0), true);
  w.pass(11min);
  const LeaseId plain = w.submit(wish_at(Tier::standard, 0), true), later = w.submit(wish_at(Tier::standard, 0), true);
  const LeaseId urgent = w.submit(wish_at(Tier::standard, 10), true);
  const LeaseId higher = w.submit(wish_at(Tier::interactive, -50), true);
  const std::vector<LeaseId> order{higher, old, urgent, plain, later};
  EXPECT_EQ(w.state.queue.in_order(), order) << "waiting overtakes priority";
  w.measure();
  LeaseId last = holder;
  for (const LeaseId next : order) {
    w.step(Release{last});
    EXPECT_EQ(w.states(next), "active");
    last = next;
  }
}

TEST(Grant, TakesTheDeviceThatItFillsBest) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB), gpu(2, 16 * GiB)});
  EXPECT_EQ(w.device_of(w.submit(8 * GiB)), uuid_of(1)) << "of equals the lower index";
  EXPECT_EQ(w.device_of(w.submit(8 * GiB)), uuid_of(1));
  EXPECT_EQ(w.device_of(w.submit(20 * GiB)), uuid_of(0));
}

TEST(Grant, SaysWhyItIsThisDevice) {
  using placement::Policy;
  const auto granted = [](Policy policy, std::vector<Bytes> before) {
    World w;
    w.rules.placement = policy;
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
    for (const Bytes size : before) w.submit(size);
    return w.reason(w.submit(8 * GiB), ReasonKind::granted);
  };
  const ReasonArgs best = granted(Policy::best_fit, {});
  EXPECT_EQ(best.text("policy"), "best-fit");
  EXPECT_EQ(best.list("next"), std::vector<std::string>{"gpu0"});
  EXPECT_EQ(best.bytes("leaves"), 8 * GiB);
  EXPECT_EQ(best.bytes("next_leaves"), 16 * GiB);
  EXPECT_FALSE(best.has("costs"));
  EXPECT_EQ(granted(Policy::spread, {}).list("next"), std::vector<std::string>{"gpu1"});
  EXPECT_EQ(granted(Policy::random, {}).number("choices"), 2);
  EXPECT_FALSE(granted(Policy::pack, {}).flag("used_before")) << "both are idle";
  EXPECT_TRUE(granted(Policy::pack, {GiB}).flag("used_before"));
  EXPECT_EQ(granted(Policy::fragmentation, {}).bytes("costs"), 8 * GiB) << "the rest is useful to the same request";
  EXPECT_TRUE(granted(Policy::fragmentation, {13 * GiB}).flag("only")) << "gpu1 has 3 GiB left";
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  Lease named = wish(8 * GiB);
  named.wanted_devices = {uuid_of(0)};
  EXPECT_FALSE(w.reason(w.submit(named), ReasonKind::granted).has("policy")) << "its device was asked for by name";
}

Lease gang(int count, Bytes vram) {
  Lease lease = wish(vram);
  lease.device_count = count;
  return lease;
}

TEST(Gang, IsOnAllItsDevicesOrOnNone) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB), gpu(2, 16 * GiB)});
  const LeaseId pair = w.submit(gang(2, 10 * GiB));
  EXPECT_EQ(w.at(pair).devices, (std::vector{uuid_of(1), uuid_of(2)})) << "where it leaves the least";
  EXPECT_EQ(w.reason(pair, ReasonKind::granted).list("devices"), (std::vector<std::string>{"gpu1", "gpu2"}));
  EXPECT_EQ(w.reason(pair, ReasonKind::granted).bytes("free"), 16 * GiB);
  const LeaseId other = w.submit(gang(2, 10 * GiB), true);
  EXPECT_EQ(w.states(other), "queued");
  EXPECT_EQ(w.reason(other, ReasonKind::queued).number("devices_each"), 2);
  EXPECT_EQ(w.reason(other, ReasonKind::queued).text("device"), "gpu1");
  EXPECT_EQ(w.free(0), 24 * GiB) << "nothing is hoarded while it waits";
  w.step(Release{pair});
  EXPECT_EQ(w.at(other).devices.size(), 2u);
}

TEST(Gang, PrefersDevicesThatAreLinked) {
  const auto linked_gpu = [](int index, int nvlink, int numa) {
    DeviceReading reading = gpu(index, 24 * GiB);
    reading.links.group = {nvlink, -1, numa};
    return reading;
  };
  World w;
  w.snapshot({linked_gpu(0, -1, 0), linked_gpu(1, 1, 0), linked_gpu(2, 1, 2), linked_gpu(3, -1, 2)});
  using Devices = std::vector<std::string>;
  const LeaseId first = w.submit(gang(2, 10 * GiB));
  EXPECT_EQ(w.at(first).devices, (Devices{uuid_of(1), uuid_of(2)})) << "NVLink before one NUMA node";
  EXPECT_EQ(w.reason(first, ReasonKind::granted).text("linked"), "nvlink");
  EXPECT_EQ(w.reason(first, ReasonKind::granted).text("next_linked"), "numa");
  const LeaseId second = w.submit(gang(2, 12 * GiB));
  EXPECT_EQ(w.at(second).devices, (Devices{uuid_of(1), uuid_of(2)})) << "links before full devices";
  const LeaseId third = w.submit(gang(2, 12 * GiB));
  EXPECT_EQ(w.at(third).devices, (Devices{uuid_of(0), uuid_of(3)})) << "without a link rather than not at all";
  EXPECT_FALSE(w.reason(third, ReasonKind::granted).has("linked"));
  w.step(Release{third});
  EXPECT_EQ(w.at(w.submit(gang(3, 2 * GiB))).devices.size(), 3U) << "more than any group has";
}

TEST(Gang, ThatNeedsMoreDevicesThanThereAreIsRefused) {
  World w;
  const LeaseId early = w.submit(gang(3, GiB));
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  EXPECT_TRUE(w.gone(early)) << "queued before the devices were read";
  EXPECT_EQ(w.reason(early, ReasonKind::rejected).number("devices_each"), 3);
  EXPECT_EQ(w.reason(early, ReasonKind::rejected).number("present"), 2);
  EXPECT_EQ(w.ask(gang(3, GiB)).error().code, Code::TooLarge);
  EXPECT_SAYS(w.ask(gang(3, GiB)).error().detail, "needs 3 devices at once; there are 2");
  EXPECT_EQ(w.ask(gang(2, 20 * GiB)).error().code, Code::TooLarge);
  EXPECT_SAYS(w.ask(gang(2, 20 * GiB)).error().detail, "the last of them has 16.0 GiB");
  Lease odd = gang(2, GiB);
  odd.wanted_devices = {uuid_of(0)};
  EXPECT_EQ(w.ask(odd).error().code, Code::BadRequest);
  EXPECT_TRUE(w.ask(gang(2, GiB), false).has_value());
}

TEST(Gang, EndsWithEachOfItsDevicesAndIsChargedUntilAllAreMeasured) {
  World w;
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  const LeaseId id = w.submit(gang(2, 6 * GiB));
  w.snapshot({gpu(0, 8 * GiB, {uses(7, 5 * GiB, id)}), gpu(1, 8 * GiB, {uses(7, 2 * GiB, id)})});
  EXPECT_EQ(use_of(w.state, id).used, 7 * GiB);
  EXPECT_EQ(w.at(id).peak_used, 5 * GiB) << "the peak is that of one device";
  w.now = w.now + 1s;
  w.step(Release{id, 0, true});
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB, {uses(7, 2 * GiB, id)})});
  EXPECT_EQ(w.free(0), 8 * GiB) << "measured gone there";
  EXPECT_EQ(w.free(1), 6 * GiB);
  EXPECT_TRUE(use_of(w.state, id).settling);
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  EXPECT_TRUE(w.gone(id));

  const LeaseId next = w.submit(gang(2, 6 * GiB));
  for (int i = 0; i < 40 && !w.gone(next); ++i) {
    w.now = w.now + 1s;
    w.snapshot({gpu(0, 8 * GiB)});
  }
  EXPECT_TRUE(w.gone(next)) << "it loses all when one device is lost";
  EXPECT_EQ(w.reason(next, ReasonKind::device_gone).text("device"), "gpu1");
  EXPECT_EQ(w.free(0), 8 * GiB);
}

TEST(Shrunk, StartsNowWithWhatFits) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  w.submit(20 * GiB), w.submit(18 * GiB);
  Lease lease = wish(12 * GiB);
  lease.min_vram = 5 * GiB;
  const LeaseId id = w.submit(lease);
  EXPECT_EQ(w.device_of(id), uuid_of(1)) << "where it gets most";
  EXPECT_EQ(w.at(id).vram, 6 * GiB);
  EXPECT_EQ(w.at(id).asked_vram, 12 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("vram"), 6 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("asked"), 12 * GiB);
  const LeaseId waiter = w.submit(lease, true);
  EXPECT_EQ(w.reason(waiter, ReasonKind::queued).bytes("min"), 5 * GiB);
  w.step(Release{id});
  EXPECT_EQ(w.at(waiter).vram, 6 * GiB);
}

TEST(Shrunk, AnOfferThatLapsedIsAskedForAsAWhole) {
  OneCard w;
  const LeaseId holder = w.submit(20 * GiB), blocker = w.submit(4 * GiB);
  Lease lease = wish(12 * GiB);
  lease.min_vram = 2 * GiB;
  const LeaseId id = w.submit(lease);
  w.step(HeldChanged{id, false});
  w.step(Release{blocker});
  EXPECT_EQ(w.states(id), "offered");
  EXPECT_EQ(w.at(id).vram, 4 * GiB);
  w.step(Release{holder});
  w.pass(11s);
  EXPECT_EQ(w.at(id).vram, 12 * GiB) << "offered once more, now there is room for all of it";
  lease.min_vram = 13 * GiB;
  EXPECT_EQ(w.ask(lease).error().code, Code::BadRequest);
}

TEST(Grant, OneQueueForThoseWhoWantADeviceAndThoseWhoTakeAny) {
  World w;
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  const LeaseId on_0 = w.submit(8 * GiB), on_1 = w.submit(8 * GiB);
  Lease first = wish(8 * GiB);
  first.wanted_devices = {uuid_of(1)};
  const LeaseId picky = w.submit(first, true), any = w.submit(wish(8 * GiB), true);
  w.step(Release{on_0});
  EXPECT_EQ(w.device_of(any), uuid_of(0)) << "the first in order does not fit there";
  EXPECT_EQ(w.states(picky), "queued");
  w.step(Release{on_1});
  EXPECT_EQ(w.device_of(picky), uuid_of(1));
}

TEST(Grant, NeverPromisesWhatUnleasedProcessesOrLeasesBeyondTheirSizeUse) {
  World w;
  // One lease has used half of its reservation, another more than its own, an unleased process 10 GiB, and 2 GiB are in
  // no list.
  w.snapshot({gpu(0, 80 * GiB)});
  const LeaseId id = w.run(40 * GiB, 100), over = w.run(6 * GiB, 102);
  w.snapshot({gpu(0, 80 * GiB, {uses(100, 5 * GiB, id), uses(102, 9 * GiB, over), uses(4711, 10 * GiB)}, 2 * GiB)});
  EXPECT_EQ(w.free(0), 19 * GiB);
  EXPECT_EQ(w.at(over).peak_used, 9 * GiB);
  EXPECT_EQ(w.state.devices.by_uuid.at(uuid_of(0)).other, 12 * GiB);
  EXPECT_EQ(w.states(w.submit(20 * GiB)), "queued");
  EXPECT_EQ(w.states(w.submit(19 * GiB)), "active");
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
  EXPECT_EQ(w.states(w.waiter), "offered");
  EXPECT_EQ(w.at(w.waiter).offer_ends_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.last.wake_at, w.now + w.rules.claim_window);
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.pass(9s);
  w.step(HeldChanged{w.waiter, true});
  EXPECT_EQ(w.states(w.waiter), "offered") << "only a claim takes an offer";
  const std::uint64_t generation = w.at(w.waiter).generation;
  EXPECT_TRUE(w.accepts(Claim{w.waiter, generation}));
  EXPECT_EQ(w.states(w.waiter), "active");
  EXPECT_GT(w.at(w.waiter).generation, generation);

  OfferWorld held;
  held.step(HeldChanged{held.waiter, true});
  held.step(Release{held.holder});
  EXPECT_EQ(held.states(held.waiter), "active") << "somebody waits for it";
}

TEST(Offer, LapsesBackBehindItsEqualsAndTheSecondTimeEnds) {
  OfferWorld w;
  const LeaseId other = w.submit(20 * GiB);
  w.step(Release{w.holder});
  w.pass(10s);
  EXPECT_EQ(w.states(w.waiter), "queued");
  EXPECT_EQ(w.device_of(w.waiter), "");
  EXPECT_EQ(w.states(other), "offered") << "the next one gets exactly its bytes";
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.snapshot({gpu(0, 24 * GiB)});
  w.step(Claim{other});
  w.step(Release{other});
  EXPECT_EQ(w.states(w.waiter), "offered");
  w.pass(9s);
  EXPECT_EQ(w.states(w.waiter), "offered");
  w.pass(1s);
  EXPECT_EQ(w.told(w.waiter).end_reason, EndReason::unclaimed);
  EXPECT_TRUE(w.gone(w.waiter));
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Offer, WhatItsProcessIsListedWithCountsAsAnUnleasedProcessesOnceItLapsed) {
  OfferWorld w;
  w.step(Release{w.holder});
  DeviceReading reading = gpu(0, 24 * GiB, {uses(100, 3 * GiB, w.waiter)});
  reading.used = 1 * GiB;  // less than the list adds up to: whichever is more counts
  w.snapshot({reading});
  EXPECT_EQ(w.free(0), 4 * GiB);
  w.pass(w.rules.claim_window);
  EXPECT_EQ(w.states(w.waiter), "offered") << "it fits still, and is offered once more";
  EXPECT_EQ(w.at(w.waiter).lapsed_offers, 1);
  EXPECT_EQ(w.free(0), 1 * GiB);
}

TEST(Offer, BehindItsEqualsAlsoWithinTheSameInstant) {
  OfferWorld w;
  w.step(Release{w.holder});
  w.now = *w.at(w.waiter).offer_ends_at;
  const LeaseId newcomer = w.submit(20 * GiB);  // this step finds the offer over
  EXPECT_EQ(w.states(newcomer), "active") << "its request is open";
  EXPECT_GT(w.at(w.waiter).queued_at, w.at(newcomer).queued_at);
}

TEST(Offer, AClaimThatComesTooLateIsStale) {
  OfferWorld w;
  EXPECT_EQ(w.refusal(Claim{w.waiter}).code, Code::Stale) << "nothing is offered yet";
  w.step(Release{w.holder});
  const std::uint64_t first_offer = w.at(w.waiter).generation;
  w.now = *w.at(w.waiter).offer_ends_at;
  EXPECT_EQ(w.refusal(Claim{w.waiter}).code, Code::Stale);
  w.step(Tick{});
  EXPECT_EQ(w.states(w.waiter), "offered") << "nobody else waits: offered once more";
  const auto late = w.step(Claim{w.waiter, first_offer}).outcome;
  EXPECT_EQ(late.error().code, Code::Stale);
  EXPECT_SAYS(late.error().detail, "generation " + std::to_string(w.at(w.waiter).generation));
  EXPECT_SAYS(late.error().detail, "generation " + std::to_string(first_offer));
  EXPECT_TRUE(w.accepts(Claim{w.waiter}));
}

}  // namespace
}  // namespace sublet::core::testing
