// SPDX-License-Identifier: Apache-2.0
// Leases that name a set of devices, and get as many of them as they want.
#include "core/testing/slice_helpers.h"
#include "core/victims.h"
#include "state/nominations.h"

namespace sublet::core::testing {
namespace {

std::vector<std::string> uuids(std::initializer_list<int> cards) {
  std::vector<std::string> all;
  for (const int card : cards) all.push_back(uuid_of(card));
  return all;
}

Lease among(std::initializer_list<int> cards, int count, Bytes vram) {
  Lease lease = wish(vram);
  lease.owner.kind = OwnerKind::connection;
  lease.wanted_devices = uuids(cards);
  lease.device_count = count;
  return lease;
}

// Four cards of 24 GiB.
struct FourCards : Card {
  FourCards() {
    cards = 4;
    rules.ledger_limit = 256 * GiB;
    measure();
  }
  LeaseId fill(int card, Bytes vram = 20 * GiB, Tier tier = Tier::standard, Pausable pausable = Pausable::no) {
    Lease lease = among({card}, 1, vram);
    lease.consumer = "holder" + std::to_string(card);
    lease.tier = tier;
    lease.pausable = pausable;
    const LeaseId id = submit(lease, true);
    attach(id);
    return id;
  }
};

TEST(NamedSet, TheLeaseGetsAsManyOfTheNamedDevicesAsItWants) {
  FourCards w;
  w.fill(3);
  EXPECT_EQ(w.device_of(w.submit(among({1, 3}, 1, 10 * GiB), true)), uuid_of(1));
  EXPECT_EQ(w.at(w.submit(among({0, 2, 3}, 2, 10 * GiB), true)).devices, uuids({0, 2}));
  EXPECT_EQ(w.device_of(w.submit(among({1, 2}, 1, 12 * GiB), true)), uuid_of(1)) << "where it leaves the least";
  Lease less = among({2, 3}, 1, 20 * GiB);
  less.min_vram = GiB;
  const LeaseId small = w.submit(less, true);
  EXPECT_EQ(w.device_of(small), uuid_of(2)) << "the roomiest of the two";
  EXPECT_EQ(w.at(small).vram, 14 * GiB);
}

TEST(NamedSet, AsLargeAsTheLeaseWantsItIsWaitedForAsAWhole) {
  FourCards w;
  const LeaseId holder = w.fill(3);
  const LeaseId pair = w.submit(among({3, 1}, 2, 10 * GiB), true);
  ASSERT_EQ(w.states(pair), "queued") << "although gpu0 and gpu2 are free";
  EXPECT_EQ(w.reason(pair, ReasonKind::queued).list("among"), (std::vector<std::string>{"gpu1", "gpu3"}));
  EXPECT_EQ(w.info(pair).device, uuid_of(3));
  EXPECT_EQ(w.free(1), 24 * GiB) << "nothing is hoarded meanwhile";
  EXPECT_SAYS(w.helps(pair), "another device than gpu1 and gpu3");
  w.quit(holder);
  EXPECT_EQ(w.at(pair).devices, uuids({1, 3}));
}

TEST(NamedSet, AWaiterIsToldOfItsDevicesAlone) {
  FourCards w;
  Lease ends = among({1}, 1, 20 * GiB);
  ends.ttl = 10min;
  w.submit(ends, true);
  w.fill(3, 16 * GiB);
  const LeaseId waits = w.submit(among({1, 3}, 1, 10 * GiB), true);
  ASSERT_EQ(w.states(waits), "queued");
  EXPECT_EQ(w.info(waits).device, uuid_of(3)) << "it lacks least there, and gpu0 and gpu2 do not count";
  EXPECT_EQ(w.info(waits).eta, 10min - 20ms);
  EXPECT_EQ(w.reason(waits, ReasonKind::queued).list("one_of"), (std::vector<std::string>{"gpu1", "gpu3"}));
  const Error refused = w.ask(among({1, 3}, 1, 10 * GiB), false, true).error();
  EXPECT_SAYS(refused.detail, "on one of gpu1 and gpu3; 8.0 GiB is free");
  EXPECT_EQ(w.device_of(w.submit(among({1, 3}, 1, 8 * GiB), true)), uuid_of(3)) << "a small one goes past it";
}

TEST(NamedSet, WhatItCanNeverHoldIsRefused) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB), gpu(2, 8 * GiB)});
  EXPECT_EQ(w.ask(among({0, 1}, 3, GiB)).error().code, Code::BadRequest);
  EXPECT_SAYS(w.ask(among({0, 1}, 3, GiB)).error().detail, "on 3 devices cannot be on gpu0 and gpu1 alone");
  EXPECT_EQ(w.ask(among({0, 0}, 2, GiB)).error().code, Code::BadRequest) << "one device, named twice";
  const Error large = w.ask(among({0, 1, 2}, 2, 20 * GiB)).error();
  EXPECT_EQ(large.code, Code::TooLarge);
  EXPECT_SAYS(large.detail, "on each of 2 devices among gpu0, gpu1 and gpu2; at most 16.0 GiB of 16.0 GiB on gpu1");
  EXPECT_TRUE(w.ask(among({0, 1, 2}, 2, 16 * GiB)).has_value());
  const LeaseId waits = w.submit(among({0, 1}, 1, 24 * GiB), true);
  DeviceReading shrunk = gpu(0, 24 * GiB);
  shrunk.driver_reserved = 2 * GiB;
  w.snapshot({shrunk, gpu(1, 16 * GiB), gpu(2, 8 * GiB)});
  EXPECT_TRUE(w.gone(waits)) << "no reading will show so much any more";
  EXPECT_EQ(w.reason(waits, ReasonKind::rejected).bytes("most"), 22 * GiB);
}

TEST(NamedSet, IsReadByTheFirstReading) {
  for (const bool held_back : {false, true}) {
    World w;
    Lease lease = wish(GiB);
    lease.wanted_devices = {"gpu1", "3"};
    const LeaseId either = w.submit(lease, true);
    lease.device_count = 2;
    lease.wanted_devices = {"gpu1", "1"};
    const LeaseId same = w.submit(lease, true);
    if (held_back) ASSERT_TRUE(w.accepts(Pause{either, 0, {PauseCauseKind::owner_request}, plenty}));
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB, {uses(9, 24 * GiB)}), gpu(2, 24 * GiB), gpu(3, 24 * GiB)});
    EXPECT_EQ(w.at(either).wanted_devices, uuids({1, 3}));
    EXPECT_TRUE(w.gone(same)) << "both names are of one device";
    EXPECT_EQ(w.state.devices.by_uuid.size(), 4u);
    if (held_back) w.step(Resume{either});
    EXPECT_EQ(w.device_of(either), uuid_of(3));
  }
}

TEST(NamedSet, AForgottenDeviceLeavesIt) {
  World w;
  const auto all = [](Bytes used) {
    return std::vector{gpu(0, 24 * GiB), gpu(1, 24 * GiB), gpu(2, 24 * GiB, {uses(9, used)}),
                       gpu(3, 24 * GiB, {uses(9, used)})};
  };
  w.snapshot(all(24 * GiB));
  const LeaseId two = w.submit(among({1, 2, 3}, 2, 10 * GiB), true), both = w.submit(among({1, 2}, 2, 10 * GiB), true),
                back = w.submit(among({1, 2}, 2, 10 * GiB), true);
  ASSERT_TRUE(w.accepts(Pause{back, 0, {PauseCauseKind::owner_request}, plenty}));
  ASSERT_EQ(w.states(two, both, back), "queued queued queued");
  for (const Time until = w.now + w.rules.forget_after + 10s; w.now < until; w.pass(5s)) {
    std::vector<DeviceReading> rest = all(24 * GiB);
    rest.erase(rest.begin() + 1);
    w.snapshot(std::move(rest));
  }
  EXPECT_EQ(w.states(two, both, back), "queued gone gone") << "held back or not";
  EXPECT_EQ(w.at(two).wanted_devices, uuids({2, 3}));
  w.snapshot(all({}));
  EXPECT_EQ(w.at(two).devices, uuids({2, 3})) << "and not on gpu1, which is back";
}

TEST(NamedSet, VictimsAreSoughtOnItsDevicesAlone) {
  FourCards w;
  const LeaseId cheap = w.fill(0, 20 * GiB, Tier::batch, Pausable::automatic);
  const LeaseId near = w.fill(1, 18 * GiB, Tier::batch, Pausable::automatic);
  const LeaseId dear = w.fill(3, 23 * GiB, Tier::batch, Pausable::automatic);
  w.fill(2, 20 * GiB);
  Lease urgent = among({1, 3}, 1, 20 * GiB);
  urgent.tier = Tier::interactive;
  const LeaseId id = w.submit(urgent, true);
  w.obey();
  EXPECT_EQ(w.states(id, cheap, near, dear), "active active paused active");
  EXPECT_EQ(w.device_of(id), uuid_of(1));
  Lease pair = among({0, 2, 3}, 2, 20 * GiB);
  pair.tier = Tier::interactive;
  const LeaseId two = w.submit(pair, true);
  w.live(2s);
  EXPECT_EQ(w.states(two, cheap, dear), "active paused paused");
  EXPECT_EQ(w.at(two).devices, uuids({0, 3}));
}

TEST(NamedSet, WaitersForOneSetKeepThoseForAnotherOutOfNothing) {
  FourCards w;
  for (const int card : {0, 1}) w.fill(card);
  const LeaseId victim = w.fill(2, 20 * GiB, Tier::batch, Pausable::automatic);
  w.fill(3);
  for (std::size_t i = 0; i < 2 * preemptors; ++i) w.submit(among({0, 1}, 1, 20 * GiB), true);
  const LeaseId last = w.submit(among({2, 3}, 1, 20 * GiB), true);
  w.live(2s);
  EXPECT_EQ(w.states(victim, last), "paused active");
}

TEST(NamedSet, AWaiterOfItsTierTakesTurnsOnIt) {
  FourCards w;
  w.rules.min_residency = 10s;
  const LeaseId other = w.fill(0, 20 * GiB, Tier::standard, Pausable::automatic);
  const LeaseId shares = w.fill(1, 20 * GiB, Tier::standard, Pausable::automatic);
  for (const int card : {2, 3}) w.fill(card);
  const LeaseId waits = w.submit(among({1, 3}, 1, 20 * GiB), true);
  const Served times = share(w, {other, shares, waits}, 5min);
  EXPECT_GT(times.had.at(waits), 1min);
  EXPECT_GT(times.had.at(shares), 1min);
  EXPECT_GE(times.had.at(other), 5min) << "nobody waits for gpu0";
}

TEST(NamedSet, MemoryIsReservedOnItsDevicesAfterALongWait) {
  FourCards w;
  for (const int card : {1, 2, 3}) w.fill(card, 12 * GiB);
  const LeaseId waits = w.submit(among({1, 2}, 1, 20 * GiB), true);
  const LeaseId pair = w.submit(among({0, 3}, 2, 20 * GiB), true);
  w.live(310s);
  const Nominations held(w.state, w.rules, w.now);
  ASSERT_EQ(held.entries().size(), 2u);
  EXPECT_EQ(held.entries()[0].room.devices, uuids({2})) << "of the set, where the holder is the youngest";
  EXPECT_EQ(held.entries()[1].room.devices, uuids({0, 3})) << "all that it named";
  EXPECT_EQ(w.states(w.submit(among({2}, 1, 6 * GiB), true)), "queued") << "it would keep the first out";
  const LeaseId small = w.submit(among({1, 2}, 1, 6 * GiB), true);
  EXPECT_EQ(w.states(small, waits, pair), "active queued queued");
  EXPECT_EQ(w.device_of(small), uuid_of(1));
}

}  // namespace
}  // namespace sublet::core::testing
