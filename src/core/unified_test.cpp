// SPDX-License-Identifier: Apache-2.0
// Devices whose memory is that of the machine, and the names and the order of MIG slices.
#include "core/testing/world.h"
#include "state/format.h"
#include "state/host.h"
#include "state/methods.h"

#include <gtest/gtest.h>

namespace sublet::core::testing {
namespace {

DeviceReading unified(Bytes machine_used, std::vector<ProcessUse> processes = {}) {
  DeviceReading reading = gpu(0, 16 * GiB, std::move(processes));
  reading.used = machine_used;
  reading.unified = true;
  reading.for_system = 4 * GiB;
  return reading;
}

TEST(Unified, TheUseOfTheMachineIsBelievedWithoutAProcess) {
  World w;
  w.snapshot({unified(10 * GiB)});
  EXPECT_EQ(w.free(0), 2 * GiB) << "16 GiB without those of the system, and without what is used";
  EXPECT_FALSE(w.ask(wish(13 * GiB)).has_value()) << "more than can ever be had";
  const LeaseId waiter = w.submit(4 * GiB);
  EXPECT_EQ(w.states(waiter), "queued");
  w.snapshot({unified(5 * GiB)});
  EXPECT_EQ(w.states(waiter), "offered");
}

TEST(Unified, TheDriverParksNothingThere) {
  World w;
  w.snapshot({unified(GiB)});
  const LeaseId lease = w.run(8 * GiB, 100);
  w.snapshot({unified(6 * GiB, {uses(100, 5 * GiB, lease)})});
  EXPECT_TRUE(pause_methods_of(w.state, w.at(lease)).empty());
  const auto method = pause_method_of(w.state, w.at(lease));
  ASSERT_FALSE(method.has_value());
  EXPECT_EQ(method.error().code, Code::PauseUnsafe);
  EXPECT_NE(method.error().detail.find("gpu0 uses the memory of the machine"), std::string::npos);
  EXPECT_FALSE(lacks_a_grant(w.state, w.at(lease)));
  EXPECT_EQ(held_by(w.state, w.at(lease)), 8 * GiB);
  EXPECT_EQ(enters_host(w.state, w.at(lease)), Bytes{});
}

TEST(Unified, ProgramsWithoutFiguresAreNotCountedTwice) {
  World w;
  w.snapshot({unified(GiB)});
  const LeaseId lease = w.run(6 * GiB, 100);
  ProcessUse untold = uses(100, {}, lease);
  untold.used.reset();
  w.snapshot({unified(6 * GiB, {untold})});
  EXPECT_EQ(w.free(0), 6 * GiB) << "the 6 GiB are those of the lease, of the 12 GiB that are for programs";
  w.snapshot({unified(9 * GiB, {untold})});
  EXPECT_EQ(w.free(0), 3 * GiB) << "others use what is more than its size";
}

TEST(Unified, PromisedMemoryIsNotGivenToParkedPrograms) {
  World w;
  w.snapshot({unified(GiB)});
  const HostMemory host{15 * GiB, std::nullopt};
  const Bytes before = ledger_free(w.state, w.rules, host, std::nullopt);
  const LeaseId lease = w.run(8 * GiB, 100);
  EXPECT_EQ(ledger_free(w.state, w.rules, host, std::nullopt), before - 8 * GiB);
  w.snapshot({unified(6 * GiB, {uses(100, 5 * GiB, lease)})});
  EXPECT_EQ(ledger_free(w.state, w.rules, host, std::nullopt), before - 3 * GiB) << "5 GiB are used, and not available";
}

TEST(Unified, OnlyOneDeviceMayHaveTheMemoryOfTheMachine) {
  World w;
  DeviceReading second = unified(GiB);
  second.uuid = uuid_of(1), second.index = 1;
  w.snapshot({unified(GiB), second});
  EXPECT_EQ(w.free(0), 11 * GiB);
  EXPECT_EQ(w.free(1), Bytes{});
  EXPECT_NE(w.state.devices.by_uuid.at(uuid_of(1)).problem.find("already that of gpu0"), std::string::npos);
}

TEST(Slices, HaveNamesAndAnOrderAmongTheCards) {
  World w;
  DeviceReading second = gpu(0, 8 * GiB), first = gpu(0, 8 * GiB), card = gpu(1, 8 * GiB);
  first.uuid = "MIG-b", first.slice = 0, first.parent = "GPU-0";
  second.uuid = "MIG-a", second.slice = 1, second.parent = "GPU-0";
  w.snapshot({card, second, first});
  EXPECT_EQ(find_device(w.state, "0:1")->reading.uuid, "MIG-a");
  EXPECT_EQ(find_device(w.state, "gpu0:0")->reading.uuid, "MIG-b");
  EXPECT_EQ(find_device(w.state, "0"), nullptr) << "the card is no device";
  EXPECT_EQ(sort_by_index(w.state, {"GPU-1", "MIG-a", "MIG-b"}), (std::vector<std::string>{"MIG-b", "MIG-a", "GPU-1"}));
  EXPECT_TRUE(list_devices(w.state).starts_with("gpu0:0 (")) << list_devices(w.state);
  EXPECT_EQ(w.device_of(w.submit(GiB)), "MIG-b") << "the first in the order, among equals";
}

}  // namespace
}  // namespace sublet::core::testing
