// SPDX-License-Identifier: Apache-2.0
#include "core/testing/world.h"
#include "explain/over_limit.h"
#include "state/format.h"

namespace sublet::core::testing {
namespace {

struct Watched : OneCard {
  const Device& card() const { return state.devices.by_uuid.at(uuid_of(0)); }
  bool known() const { return is_known(state, card(), rules, now); }
};

// -------------------------------------------------------------------------------- settling

TEST(Settling, BytesStayChargedUntilASnapshotBegunAfterTheEndShowsThemGone) {
  Watched w;
  const LeaseId id = w.run(6 * GiB, 100), waiter = w.submit(20 * GiB);
  w.measure({uses(100, 7 * GiB, id), uses(101, 1 * GiB, id)});
  const Time before_end = w.now;
  w.now = w.now + 1s;
  w.step(ProgramEnded{id, 0, false});
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_EQ(w.free(0), 16 * GiB) << "max(reserved, last used)";
  EXPECT_TRUE(use_of(w.state, id).settling);
  w.now = w.now + 10ms;
  w.step(Snapshot{before_end, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.free(0), 18 * GiB) << "begun before the end: still reserved";
  w.measure({uses(101, 1 * GiB, id)});
  EXPECT_EQ(w.states(id, waiter), "ended offered");
  EXPECT_EQ(w.free(0), 23 * GiB - 20 * GiB) << "what is still listed stays charged";
  EXPECT_TRUE(use_of(w.state, id).settling);
  w.measure();
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.last.settled, std::vector<LeaseId>{id});
  EXPECT_EQ(w.free(0), 4 * GiB);
  EXPECT_EQ(w.times_told(id, ReasonKind::settled), 1);
}

TEST(OverSize, IsWhatAnActiveLeaseUsesBeyondItsSizeAndTheReadingsDifference) {
  Watched w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 6 * GiB + explain::over_slack, id)});
  EXPECT_EQ(explain::over_size(w.state, w.at(id)), Bytes{});
  w.measure({uses(100, 5 * GiB, id), uses(101, 2 * GiB, id)});
  EXPECT_EQ(explain::over_size(w.state, w.at(id)), GiB);
  EXPECT_EQ(explain::over_size(w.state, w.at(id), uuid_of(0)), GiB);
  w.step(ProgramEnded{id, 0, false});
  EXPECT_EQ(explain::over_size(w.state, w.at(id)), Bytes{}) << "it is over";
}

TEST(Settling, WhatIsNotMeasuredGoneIsNotFree) {
  Watched w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 5 * GiB, id)});
  w.step(ProgramEnded{id, 0, false});
  DeviceReading broken = gpu(0, 24 * GiB);
  broken.problem = "NVML timed out";
  w.snapshot({broken});
  EXPECT_FALSE(w.gone(id));
  w.step(SnapshotFailed{"the probe died"});
  EXPECT_FALSE(w.gone(id));
  EXPECT_EQ(w.state.devices.snapshot_problem, "the probe died");
  w.measure({{process(100), std::nullopt, id}});
  EXPECT_FALSE(w.gone(id)) << "listed without a number: not measured gone";
  EXPECT_EQ(w.free(0), 18 * GiB);
  w.measure({}, 5 * GiB);
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.card().other, 5 * GiB) << "off the list, and not off the card";
  EXPECT_EQ(w.free(0), 19 * GiB);
}

TEST(Snapshot, NothingIsGrantedAndNobodyEndsWhileTheDevicesCannotBeRead) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId runs = w.submit(6 * GiB);
  w.pass(1s);
  w.step(SnapshotFailed{"the driver has not answered for 2s"});
  const auto refused = w.ask(wish(6 * GiB), false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::Unverified);
  const LeaseId waits = w.submit(6 * GiB);
  EXPECT_EQ(w.states(runs), "active");
  EXPECT_EQ(w.states(waits), "queued");
  EXPECT_SAYS(w.info(waits).basis, "last read 1 s ago, and cannot be read now (the driver has not answered for 2s)");
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.states(waits), "offered");
}

TEST(Unleased, BytesThatHaveBeenThereForAMinuteAreTold) {
  Watched w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 6 * GiB, id), uses(4711, GiB)}, GiB);
  EXPECT_EQ(w.card().lasting.bytes(), Bytes{});
  w.now = w.now + 1min;
  w.measure({uses(100, 6 * GiB, id), uses(4711, GiB)}, GiB);
  EXPECT_EQ(w.card().other, 2 * GiB);
  EXPECT_EQ(w.card().lasting.bytes(), 2 * GiB) << "of the process and of no listed process, not of the lease";
}

TEST(Settling, ALeaseWhoseProcessesWereOnlyEverSeenSettlesToo) {
  Watched w;
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
  Watched w;
  w.pass(w.rules.max_age);
  EXPECT_TRUE(w.known());
  w.pass(1ns);
  EXPECT_FALSE(w.known());
  EXPECT_EQ(w.free(0), Bytes{});
  const LeaseId id = w.submit(GiB);
  EXPECT_EQ(w.states(id), "queued");
  EXPECT_TRUE(w.wants_snapshot());
  w.measure();
  EXPECT_EQ(w.states(id), "offered");
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
    Watched w;
    const LeaseId id = w.run(6 * GiB, 100);
    w.measure({uses(100, 5 * GiB, id)});
    w.snapshot({lie});
    EXPECT_FALSE(w.card().problem.empty());
    EXPECT_FALSE(w.known()) << w.card().problem;
    EXPECT_EQ(w.free(0), Bytes{});
    EXPECT_EQ(w.states(id), "active");
    EXPECT_EQ(use_of(w.state, id).used, 5 * GiB) << "the last plausible reading is kept";
    w.measure({uses(100, 5 * GiB, id)});
    EXPECT_TRUE(w.known());
  }
}

TEST(Snapshot, AnEmptyListIsBelievedWhenTheBytesAreGoneToo) {
  Watched w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({uses(100, 5 * GiB, id)}, 10 * GiB);
  w.measure({}, 10 * GiB);
  EXPECT_TRUE(w.known()) << w.card().problem;
  EXPECT_EQ(use_of(w.state, id).used, Bytes{});
}

TEST(Snapshot, OneThatWasOvertakenIsIgnored) {
  Watched w;
  const Time early = w.now;
  w.now = w.now + 1s;
  w.measure({uses(4711, 10 * GiB)});
  w.step(Snapshot{early, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.free(0), 14 * GiB);
  w.step(Snapshot{w.now + 1s, {gpu(0, 24 * GiB)}});
  EXPECT_FALSE(w.known()) << "one from the future tells that the clock is wrong";
  w.snapshot({gpu(0, 24 * GiB), gpu(0, 24 * GiB)});
  EXPECT_FALSE(w.known()) << "the same device twice is implausible";
}

// -------------------------------------------------------------------------------- lost devices

TEST(LostDevice, IsUnknownAtOnceAndGivenUpOnlyAfterAWhile) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease lease = wish(6 * GiB);
  lease.wanted_devices = {uuid_of(1)};
  const LeaseId id = w.submit(lease), waits = w.submit([&] { return lease.vram = 20 * GiB, lease; }());
  const auto miss = [&w] { w.snapshot({gpu(0, 24 * GiB)}); };
  miss();
  EXPECT_TRUE(w.state.devices.by_uuid.at(uuid_of(1)).lost);
  EXPECT_EQ(w.free(1), Bytes{});
  for (int i = 0; i < 10; ++i) miss();
  EXPECT_EQ(w.states(id), "active") << "many snapshots within one moment prove nothing";
  w.pass(w.rules.max_age);
  miss();
  EXPECT_EQ(w.told(id).end_reason, EndReason::failed);
  EXPECT_EQ(w.reason(id, ReasonKind::device_gone).number("snapshots"), 12);
  EXPECT_EQ(w.states(waits), "queued") << "the card may come back";
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.states(waits), "offered");
}

// Two cards of which only the second can hold the large one, and a third request that wants it by name.
struct LargeLost : World {
  LargeLost() {
    snapshot({gpu(0, 8 * GiB), gpu(1, 24 * GiB)});
    holder = submit(4 * GiB);
    Lease lease = wish(20 * GiB);
    lease.wanted_devices = {uuid_of(1)};
    step(Release{submit(lease), 0, false});
    run(20 * GiB, 100);
    large = submit(20 * GiB);
    lease.vram = 23 * GiB;
    named = submit(lease);
    small = submit(6 * GiB);
  }
  void lose(Duration time, const std::string& problem = {}) {
    for (const Time until = now + time; now < until;) {
      DeviceReading reading = gpu(1, 24 * GiB);
      reading.problem = problem;
      reading.lost = true;
      snapshot(problem.empty() ? std::vector{gpu(0, 8 * GiB)} : std::vector{gpu(0, 8 * GiB), reading});
      pass(5s);
    }
  }
  LeaseId holder, large, named, small;
};

TEST(LostDevice, WhomOnlyItCouldServeIsToldSoAtOnce) {
  LargeLost w;
  EXPECT_TRUE(hopeless_text(w.state, w.rules, w.at(w.large), w.now).empty());
  w.lose(1s);
  const explain::QueueInfo info = w.info(w.large);
  EXPECT_SAYS(info.basis, "; no other can hold it: the most is 8.0 GiB on gpu0");
  EXPECT_SAYS(info.basis, w.info(w.named).basis);
  EXPECT_EQ(info.device, "");
  EXPECT_TRUE(info.holders.empty());
  EXPECT_FALSE(info.eta);
  EXPECT_EQ(w.info(w.named).basis, "gpu1 (GPU-1) has been gone for 5 s: the driver no longer lists it");
  EXPECT_EQ(w.info(w.small).device, uuid_of(0)) << "the other can serve that one";
  EXPECT_SAYS(w.helps(w.large), "ask for 8.0 GiB or less");
  EXPECT_SAYS(w.helps(w.large), "After 10 min without it the request is rejected");
  EXPECT_EQ(w.ask(wish(20 * GiB), false).error().code, Code::GpuLost);
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.info(w.large).device, uuid_of(1));
}

TEST(LostDevice, IsForgottenInTheEndAndWhomOnlyItCouldServeIsRejected) {
  for (const std::string word : {"", "GPU is lost (15)"}) {
    LargeLost w;
    w.lose(w.rules.forget_after, word);
    EXPECT_EQ(w.states(w.large), "queued");
    for (int i = 0; i < 3; ++i) {  // it is not expected again by the driver's word
      w.lose(5s, word);
      EXPECT_EQ(w.state.devices.by_uuid.size(), 1U);
      EXPECT_EQ(w.ask(wish(20 * GiB)).error().code, Code::TooLarge);
    }
    EXPECT_EQ(w.states(w.large, w.named, w.small), "gone gone queued");
    EXPECT_EQ(w.reason(w.large, ReasonKind::rejected).bytes("most"), 8 * GiB);
    EXPECT_SAYS(w.reason(w.named, ReasonKind::rejected).text("gone"), "gpu1 (GPU-1)");
    EXPECT_SAYS(w.reason(w.named, ReasonKind::rejected).text("known"), "gpu0");
    w.snapshot({gpu(0, 8 * GiB), gpu(1, 24 * GiB)});
    EXPECT_EQ(w.states(w.small), "offered") << "it is a device like any other when it comes back";
  }
}

TEST(LostDevice, ItsNameIsThatOfTheCardWhichHasItsIndexNow) {
  World w;
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  DeviceReading moved = gpu(7, 24 * GiB);
  moved.index = 1;
  w.snapshot({gpu(0, 8 * GiB), moved});
  EXPECT_EQ(find_device(w.state, "gpu1")->reading.uuid, uuid_of(7));
  EXPECT_EQ(find_device(w.state, uuid_of(1))->reading.uuid, uuid_of(1));
  w.snapshot({gpu(0, 8 * GiB)});
  EXPECT_NE(find_device(w.state, "gpu1"), nullptr) << "lost, and still known by its name";
}

TEST(LostDevice, ByTheDriversWordIsAsGoodAsMissing) {
  LargeLost w;
  w.lose(w.rules.max_age + 5s, "GPU is lost (15)");
  EXPECT_SAYS(w.info(w.large).basis, "gpu1 (GPU-1) has been gone for 20 s: GPU is lost (15)");
  // The driver forgets which one it was.
  for (int i = 0; i < 3; ++i) {
    w.step(Snapshot{w.now, {gpu(0, 8 * GiB)}, {}, "GPU is lost (15)"});
    EXPECT_TRUE(w.state.devices.by_uuid.at(uuid_of(1)).lost);
    EXPECT_EQ(w.state.devices.by_uuid.at(uuid_of(1)).problem, "GPU is lost (15)");
  }
  w.step(Snapshot{w.now, {gpu(0, 8 * GiB)}, "Unknown Error (999)", "GPU is lost (15)"});
  EXPECT_EQ(w.state.devices.by_uuid.size(), 2U);
  EXPECT_SAYS(w.state.devices.by_uuid.at(uuid_of(1)).problem, "which card is which");
}

TEST(LostDevice, OfAMachineWithoutAnyOtherIsToldInTheDriversWordsAndNotForgotten) {
  World w;
  DeviceReading reading = gpu(0, 24 * GiB);
  reading.lost = true;
  reading.problem = "GPU is lost (15)";
  w.snapshot({reading});
  EXPECT_TRUE(w.state.devices.by_uuid.empty());
  EXPECT_EQ(w.state.devices.snapshot_problem, "GPU is lost (15)");
  w.step(Snapshot{w.now, {}, {}, "GPU is lost, too (15)"});
  EXPECT_EQ(w.state.devices.snapshot_problem, "GPU is lost, too (15)");
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.state.devices.snapshot_problem, "");

  w.submit(20 * GiB);
  const LeaseId waits = w.submit(20 * GiB);
  for (int i = 0; i < 200; ++i) {
    w.pass(10s);
    w.step(Snapshot{w.now, {}, {}, "GPU is lost (15)"});
  }
  EXPECT_EQ(w.state.devices.by_uuid.size(), 1U);
  EXPECT_EQ(w.states(waits), "queued");
  EXPECT_SAYS(w.info(waits).basis, "gpu0 (GPU-0) has been gone for 33 min");
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.states(waits), "offered");
}

TEST(LostDevice, ThatComesBackOrADriverThatListsNothingEndsNobody) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease lease = wish(6 * GiB);
  lease.wanted_devices = {uuid_of(1)};
  const LeaseId id = w.submit(lease);
  for (int i = 0; i < 20; ++i) {
    w.pass(10s);
    w.snapshot({gpu(0, 24 * GiB)});
    w.pass(1s);
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  }
  for (int i = 0; i < 10; ++i) {
    w.pass(10s);
    w.snapshot({});
    EXPECT_EQ(w.free(0), Bytes{});
  }
  EXPECT_EQ(w.states(id), "active");
  EXPECT_SAYS(w.state.devices.snapshot_problem, "lists no device");
}

TEST(Stray, MemoryOnADeviceThatWasNotLeasedIsCountedAndNamed) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease lease = wish(10 * GiB);
  lease.wanted_devices = {uuid_of(0)};
  lease.owner.kind = OwnerKind::connection;
  const LeaseId id = w.submit(lease, true);
  w.step(Attach{id, 0, kept_process(7), true, {}});
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 9 * GiB, id)}), gpu(1, 24 * GiB, {uses(7, 2 * GiB, id)})});
  EXPECT_EQ(explain::stray_use(w.state.devices.by_uuid.at(uuid_of(1)), id).used, 2 * GiB);
  EXPECT_EQ(explain::stray_use(w.state.devices.by_uuid.at(uuid_of(0)), id).used, Bytes{}) << "its own device";
  const auto strays = explain::stray_uses(w.state);
  ASSERT_EQ(strays.size(), 1U);
  EXPECT_EQ(strays[0].lease, id);
  EXPECT_EQ(strays[0].device, uuid_of(1));
  EXPECT_EQ(w.free(1), 22 * GiB) << "nobody else gets it";
  Lease next = wish(23 * GiB);
  next.wanted_devices = {uuid_of(1)};
  const auto holders = w.info(w.submit(next, true)).holders;
  ASSERT_FALSE(holders.empty());
  EXPECT_EQ(holders[0].what, "pid 7 (of " + name_of(w.at(id)) + ", which has not leased gpu1)");
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 9 * GiB, id)}), gpu(1, 24 * GiB, {uses(7, 60 * MiB, id)})});
  EXPECT_TRUE(explain::stray_uses(w.state).empty()) << "within the error of readings";
  ProcessUse window = uses(7, GiB, id);
  window.graphics_only = true;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 9 * GiB, id)}), gpu(1, 24 * GiB, {window, uses(8, 2 * GiB, id)})});
  EXPECT_EQ(explain::stray_use(w.state.devices.by_uuid.at(uuid_of(1)), id).used, 3 * GiB);
  EXPECT_EQ(explain::stray_use(w.state.devices.by_uuid.at(uuid_of(1)), id).computing, 2 * GiB) << "a window is no work";
}

}  // namespace
}  // namespace sublet::core::testing
