// SPDX-License-Identifier: Apache-2.0
// Cards that are divided into slices, and slices that vanish: what is granted, and which leases end.
#include "state/reconfigured.h"
#include "core/testing/world.h"
#include "state/format.h"

#include <gtest/gtest.h>

namespace sublet::core::testing {
namespace {

DeviceReading slice(int index, int card = 0, Bytes total = 8 * GiB) {
  DeviceReading reading = gpu(card, total);
  reading.uuid = "MIG-" + std::to_string(card) + "-" + std::to_string(index);
  reading.slice = index;
  reading.parent = uuid_of(card);
  return reading;
}

DeviceReading unreadable(int card) {
  DeviceReading reading = gpu(card, Bytes{});
  reading.problem = "nvmlDeviceGetMigMode: Unknown Error";
  return reading;
}

TEST(Slices, AreOutOfServiceWithTheirCard) {
  World w;
  w.step(Serve{"GPU-0", "cordoned by root"});
  w.snapshot({slice(0), gpu(1, 4 * GiB)});
  const LeaseId waiter = w.submit(6 * GiB);
  EXPECT_EQ(w.states(waiter), "queued");
  EXPECT_FALSE(is_in_service(w.state, "MIG-0-0"));
  EXPECT_EQ(out_of_service_text(w.state, w.rules, w.at(waiter)), "gpu0:0 is out of service (cordoned by root)");
  w.step(Serve{"GPU-0"});
  EXPECT_EQ(w.states(waiter), "offered");
}

TEST(Slices, AreNotAmongSeveralDevicesOfALease) {
  World w;
  w.snapshot({gpu(0, 8 * GiB), gpu(1, 8 * GiB)});
  w.run(8 * GiB, 100), w.run(8 * GiB, 200);
  Lease two = wish(2 * GiB);
  two.device_count = 2;
  const LeaseId waiter = w.submit(two);
  w.snapshot({slice(0), slice(1), slice(2), gpu(1, 8 * GiB)});
  EXPECT_EQ(w.states(waiter), "queued") << "an admin made slices while it waited";
  two.wanted_devices = {"MIG-0-0", "MIG-0-1"};
  EXPECT_EQ(w.refusal(Submit{two}).code, Code::BadRequest);
}

TEST(Slices, ARequestForSeveralDevicesCountsWholeOnes) {
  World w;
  w.snapshot({slice(0), slice(1), gpu(1, 8 * GiB)});
  Lease two = wish(2 * GiB);
  two.device_count = 2;
  const Error refused = w.refusal(Submit{two});
  EXPECT_EQ(refused.code, Code::TooLarge);
  EXPECT_NE(refused.detail.find("there are 1, and the others are MIG slices"), std::string::npos) << refused.detail;
}

TEST(Slices, ARequestBeforeTheFirstReadingGetsNoSlice) {
  World w;
  Lease two = wish(2 * GiB);
  two.device_count = 2;
  two.wanted_devices = {"MIG-0-0", "MIG-0-1"};
  const LeaseId named = w.submit(two);
  two.wanted_devices = {};
  const LeaseId any = w.submit(two);
  w.snapshot({slice(0), slice(1), gpu(1, 8 * GiB), gpu(2, 8 * GiB)});
  EXPECT_EQ(w.states(named), "gone");
  EXPECT_EQ(w.at(any).devices, (std::vector<std::string>{"GPU-1", "GPU-2"}));
}

TEST(Slices, AreUnknownWhileTheDriverDoesNotAnswerAboutTheirCard) {
  World w;
  w.snapshot({slice(0), gpu(1, 8 * GiB)});
  const LeaseId lease = w.run(2 * GiB, 100);
  ASSERT_EQ(w.device_of(lease), "MIG-0-0");
  for (int reading = 0; reading < 5; ++reading) {
    w.pass(10s);
    w.snapshot({unreadable(0), gpu(1, 8 * GiB)});
  }
  EXPECT_EQ(w.states(lease), "active");
  EXPECT_NE(w.state.devices.by_uuid.at("MIG-0-0").problem.find("Unknown Error"), std::string::npos);
  EXPECT_FALSE(w.state.devices.by_uuid.at("MIG-0-0").lost);
}

TEST(Slices, KeepTheirCardFromBeingLeasedAsAWhole) {
  World w;
  w.snapshot({slice(0)});
  const LeaseId there = w.run(2 * GiB, 100);
  const LeaseId waiter = w.submit(7 * GiB);
  w.snapshot({gpu(0, 80 * GiB)});
  EXPECT_EQ(w.states(waiter), "queued");
  EXPECT_EQ(w.free(0), Bytes{});
  for (int reading = 0; reading < 4; ++reading) {
    w.pass(10s);
    w.snapshot({gpu(0, 80 * GiB)});
  }
  EXPECT_EQ(w.states(there), "ended") << "its slice is gone";
  EXPECT_NE(w.states(waiter), "queued");
}

TEST(Slices, AreReconfiguredAndDidNotFail) {
  World w;
  DeviceReading divided = gpu(1, 8 * GiB);
  w.snapshot({slice(0), slice(1), divided, gpu(2, 8 * GiB)});
  divided.lost = true;
  divided.problem = in_mig_mode;
  w.snapshot({slice(0), divided});
  EXPECT_FALSE(is_reconfigured(w.state.devices.by_uuid.at("MIG-0-0")));
  EXPECT_TRUE(is_reconfigured(w.state.devices.by_uuid.at("MIG-0-1")));
  EXPECT_TRUE(is_reconfigured(w.state.devices.by_uuid.at("GPU-1")));
  EXPECT_FALSE(is_reconfigured(w.state.devices.by_uuid.at("GPU-2")));
}

}  // namespace
}  // namespace sublet::core::testing
