// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"
#include "core/testing/two_leases.h"
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

const std::string why = "cordoned by root: new fan";

struct TwoCards : World {
  TwoCards() { measure(); }
  Plan& measure() { return snapshot({gpu(0, 24 * GiB), gpu(1, 48 * GiB)}); }
  LeaseId on_device(int index, Bytes vram) {
    Lease lease = wish(vram);
    lease.wanted_devices = {uuid_of(index)};
    return submit(lease, true);
  }
};

TEST(Serve, ADeviceOutOfServiceGrantsNothingAndTakesNothingAway) {
  TwoCards w;
  const LeaseId before = w.on_device(0, 4 * GiB);
  w.step(Serve{uuid_of(0), why});
  EXPECT_EQ(w.states(before), "active");
  EXPECT_EQ(w.free(0), Bytes{});
  EXPECT_EQ(w.device_of(w.submit(4 * GiB)), uuid_of(1)) << "gpu0 would be filled better";
  const LeaseId named = w.on_device(0, 4 * GiB);
  EXPECT_EQ(w.states(named), "queued");
  EXPECT_EQ(w.reason(named, ReasonKind::queued).text("closed"), "gpu0 is out of service (" + why + ")");
  EXPECT_EQ(w.info(named).basis, "gpu0 is out of service (" + why + ")");
  EXPECT_SAYS(w.helps(named), "sublet gpu uncordon");
  w.step(Serve{uuid_of(0)});
  EXPECT_EQ(w.states(named), "active");
}

TEST(Serve, ARequestThatOnlyThisDeviceCouldServeWaitsOrIsRefusedWithItsReason) {
  TwoCards w;
  w.step(Serve{uuid_of(1), why});
  const auto refused = w.ask(wish(40 * GiB), false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::Draining);
  EXPECT_SAYS(refused.error().detail, "gpu1 is out of service (" + why + ")");
  EXPECT_EQ(w.ask(wish(80 * GiB)).error().code, Code::TooLarge) << "no device can ever hold it";
  const LeaseId large = w.submit(wish(40 * GiB), true);
  EXPECT_EQ(w.states(large), "queued");
  w.step(Serve{uuid_of(1)});
  EXPECT_EQ(w.states(large), "active");
}

TEST(Serve, HoldsForADeviceThatIsNotReadYetAndForOneThatComesBack) {
  World w;
  w.step(Serve{uuid_of(0), why});
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId id = w.submit(wish(GiB), true);
  EXPECT_EQ(w.states(id), "queued");
  w.snapshot({gpu(1, 24 * GiB)});
  EXPECT_EQ(w.device_of(id), uuid_of(1));
  const LeaseId next = w.submit(wish(20 * GiB), true);
  EXPECT_EQ(w.device_of(next), uuid_of(1));
  const LeaseId last = w.submit(wish(20 * GiB), true);
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.states(last), "queued");
}

TEST(Serve, ALeaseDoesNotGrowThere) {
  TwoCards w;
  const LeaseId id = w.on_device(0, 4 * GiB);
  w.step(Serve{uuid_of(0), why});
  EXPECT_TRUE(w.accepts(Resize{id, 0, 8 * GiB}));
  EXPECT_EQ(w.at(id).vram, 4 * GiB);
  EXPECT_TRUE(w.accepts(Resize{id, 0, 2 * GiB}));
  EXPECT_EQ(w.at(id).vram, 2 * GiB) << "it may shrink";
}

TEST(Serve, NobodyIsPausedThereForOthersAndThePausedWait) {
  Card w;
  const LeaseId train = w.start(20 * GiB, Tier::batch, "train");
  w.step(Serve{uuid_of(0), why});
  Lease urgent = wish(20 * GiB, "chat");
  urgent.tier = Tier::interactive;
  const LeaseId chat = w.submit(urgent, true);
  EXPECT_EQ(w.states(train, chat), "active queued");
  EXPECT_TRUE(w.state.preemption.plans.empty());
  w.step(Serve{uuid_of(0)});
  EXPECT_NE(w.states(train), "active") << "back in service, it yields";
}

}  // namespace
}  // namespace sublet::core::testing
