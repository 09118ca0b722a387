// SPDX-License-Identifier: Apache-2.0
#include "core/world.h"

namespace sublet::core::testing {
namespace {

struct OneCard : World {
  OneCard() { measure(); }
  Plan& measure(std::vector<ProcessUse> processes = {}, Bytes hidden = {}) {
    return snapshot({gpu(0, 24 * GiB, std::move(processes), hidden)});
  }
  const Device& card() const { return state.devices().at(uuid_of(0)); }
  bool known() const { return state.known(card(), rules, now); }
};

// -------------------------------------------------------------------------------- settling

TEST(Settling, BytesStayChargedUntilASnapshotBegunAfterTheEndShowsThemGone) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 8 * GiB, id)});
  const Time before_end = w.now;
  w.now = w.now + 1s;
  w.step(ProgramEnded{id, 0, false});
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_EQ(w.free(0), 16 * GiB) << "max(reserved, last used)";
  EXPECT_TRUE(w.state.use(id).settling);
  w.now = w.now + 10ms;
  w.step(Snapshot{before_end, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.free(0), 18 * GiB) << "begun before the end: still reserved";
  EXPECT_FALSE(w.gone(id));
  w.measure();
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.last.settled, std::vector<LeaseId>{id});
  EXPECT_EQ(w.free(0), 24 * GiB);
  EXPECT_FALSE(w.why(id, "settled").empty());
}

TEST(Settling, WhatIsStillListedStaysCharged) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100), waiter = w.submit(20 * GiB);
  w.measure({uses(100, 5 * GiB, id), uses(101, 1 * GiB, id)});
  w.step(ProgramEnded{id, 0, false});
  w.measure({uses(101, 1 * GiB, id)});
  EXPECT_EQ(w.free(0), 23 * GiB - 20 * GiB);
  EXPECT_EQ(w.state_of(waiter), LeaseState::offered);
  EXPECT_TRUE(w.state.use(id).settling);
  w.measure();
  EXPECT_TRUE(w.gone(id));
}

TEST(Settling, BytesOfAProcessThatLeftTheListButNotTheCardAreNotFree) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 5 * GiB, id)});
  w.step(ProgramEnded{id, 0, false});
  w.measure({}, 5 * GiB);
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.card().other, 5 * GiB);
  EXPECT_EQ(w.free(0), 19 * GiB);
}

TEST(Settling, AnUnusableSnapshotMeasuresNothing) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 5 * GiB, id)});
  w.step(ProgramEnded{id, 0, false});
  DeviceReading broken = gpu(0, 24 * GiB);
  broken.problem = "NVML timed out";
  w.snapshot({broken});
  EXPECT_FALSE(w.gone(id));
  w.step(SnapshotFailed{"the probe died"});
  EXPECT_FALSE(w.gone(id));
  EXPECT_EQ(w.state.snapshot_problem(), "the probe died");
  w.measure({{process(100), std::nullopt, id}});
  EXPECT_FALSE(w.gone(id)) << "listed without a number: not measured gone";
  EXPECT_EQ(w.free(0), 18 * GiB);
}

TEST(Settling, ALeaseWhoseProcessesWereOnlyEverSeenSettlesToo) {
  OneCard w;
  const LeaseId id = w.submit(6 * GiB);
  EXPECT_FALSE(w.at(id).had_process);
  w.measure({uses(100, 1 * GiB, id)});
  EXPECT_TRUE(w.at(id).had_process);
  EXPECT_EQ(w.last.changed.size(), 1u) << "that is worth storing";
  w.measure({uses(100, 2 * GiB, id)});
  EXPECT_TRUE(w.last.changed.empty()) << "a figure alone is not";
  w.step(Release{id, 0, true});
  EXPECT_FALSE(w.gone(id));
}

// -------------------------------------------------------------------------------- belief

TEST(Snapshot, NothingIsGrantedOnWhatIsUnknown) {
  OneCard w;
  w.pass(w.rules.max_age);
  EXPECT_TRUE(w.known());
  w.pass(1ns);
  EXPECT_FALSE(w.known());
  EXPECT_EQ(w.free(0), Bytes{});
  const LeaseId id = w.submit(GiB);
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  EXPECT_TRUE(w.wants_snapshot());
  w.measure();
  EXPECT_EQ(w.state_of(id), LeaseState::offered);
}

TEST(Snapshot, ImplausibleReadingsAreUnknownAndForgetNothing) {
  const auto broken = [](auto change) {
    DeviceReading reading = gpu(0, 24 * GiB, {uses(100, 5 * GiB, {1})});
    change(reading);
    return reading;
  };
  const std::vector<DeviceReading> lies{
      broken([](DeviceReading& r) { r.used = 25 * GiB; }),
      broken([](DeviceReading& r) { r.used = Bytes{-1}; }),
      broken([](DeviceReading& r) { r.total = Bytes{0}; }),
      broken([](DeviceReading& r) { r.total = Bytes{INT64_MAX}; }),
      broken([](DeviceReading& r) { r.driver_reserved = 25 * GiB; }),
      broken([](DeviceReading& r) { r.driver_reserved = Bytes{-1}; }),
      broken([](DeviceReading& r) { r.processes[0].used = Bytes{-5}; }),
      broken([](DeviceReading& r) { r.processes[0].used = Bytes{INT64_MAX}; }),
      broken([](DeviceReading& r) { r.processes.assign(3, uses(100, 10 * GiB, {1})); }),
      broken([](DeviceReading& r) { r.processes.clear(); }),  // the card is as full as before
      broken([](DeviceReading& r) { r.problem = "a pid of another namespace"; }),
  };
  for (const DeviceReading& lie : lies) {
    OneCard w;
    const LeaseId id = w.run(6 * GiB, 100);
    w.measure({uses(100, 5 * GiB, id)});
    w.snapshot({lie});
    EXPECT_FALSE(w.card().problem.empty());
    EXPECT_FALSE(w.known()) << w.card().problem;
    EXPECT_EQ(w.free(0), Bytes{});
    EXPECT_EQ(w.state_of(id), LeaseState::active);
    EXPECT_EQ(w.state.use(id).used, 5 * GiB) << "the last plausible reading is kept";
    w.measure({uses(100, 5 * GiB, id)});
    EXPECT_TRUE(w.known());
  }
}

TEST(Snapshot, AnEmptyListIsBelievedWhenTheBytesAreGoneToo) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 5 * GiB, id)}, 10 * GiB);
  w.measure({}, 10 * GiB);
  EXPECT_TRUE(w.known()) << w.card().problem;
  EXPECT_EQ(w.state.use(id).used, Bytes{});
}

TEST(Snapshot, OneThatWasOvertakenIsIgnored) {
  OneCard w;
  const Time early = w.now;
  w.now = w.now + 1s;
  w.measure({uses(4711, 10 * GiB)});
  w.step(Snapshot{early, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.free(0), 14 * GiB);
  w.step(Snapshot{w.now + 1s, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.free(0), 14 * GiB) << "nor one from the future";
}

TEST(Snapshot, TheSameDeviceTwiceIsImplausible) {
  OneCard w;
  w.snapshot({gpu(0, 24 * GiB), gpu(0, 24 * GiB)});
  EXPECT_FALSE(w.known());
}

// -------------------------------------------------------------------------------- lost devices

TEST(LostDevice, IsUnknownAtOnceAndGivenUpOnlyAfterAWhile) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease lease = wish(6 * GiB);
  lease.wanted_device = uuid_of(1);
  const LeaseId id = w.submit(lease), waits = w.submit([&] { return lease.vram = 20 * GiB, lease; }());
  const auto miss = [&w] { w.snapshot({gpu(0, 24 * GiB)}); };
  miss();
  EXPECT_TRUE(w.state.devices().at(uuid_of(1)).lost);
  EXPECT_EQ(w.free(1), Bytes{});
  for (int i = 0; i < 10; ++i) miss();
  EXPECT_EQ(w.state_of(id), LeaseState::active) << "many snapshots within one moment prove nothing";
  w.pass(w.rules.max_age);
  miss();
  EXPECT_EQ(w.told(id).end_reason, EndReason::failed);
  EXPECT_SAYS(w.why(id, "ended"), "its device gpu1 has been missing from 12 snapshots");
  EXPECT_EQ(w.state_of(waits), LeaseState::queued) << "the card may come back";
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.state_of(waits), LeaseState::offered);
}

TEST(LostDevice, ThatComesBackEndsNobody) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease lease = wish(6 * GiB);
  lease.wanted_device = uuid_of(1);
  const LeaseId id = w.submit(lease);
  for (int i = 0; i < 20; ++i) {
    w.pass(10s);
    w.snapshot({gpu(0, 24 * GiB)});
    w.pass(1s);
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  }
  EXPECT_EQ(w.state_of(id), LeaseState::active);
}

TEST(LostDevice, ADriverThatListsNothingEndsNobody) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  for (int i = 0; i < 10; ++i) {
    w.pass(10s);
    w.snapshot({});
    EXPECT_FALSE(w.known());
  }
  EXPECT_EQ(w.state_of(id), LeaseState::active);
  EXPECT_SAYS(w.state.snapshot_problem(), "lists no device");
}

}  // namespace
}  // namespace sublet::core::testing
