// SPDX-License-Identifier: Apache-2.0
#include "base/size_bounds.h"
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

TEST(Submit, IsGrantedAtOnceWhereItFits) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId id = w.submit(6 * GiB);
  EXPECT_EQ(w.state_of(id), LeaseState::active);
  EXPECT_EQ(w.device_of(id), uuid_of(0));
  EXPECT_EQ(w.at(id).granted_at, w.now);
  EXPECT_EQ(w.free(0), 18 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("vram"), 6 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("free"), 24 * GiB);
  EXPECT_EQ(w.last.changed.size(), 1u);
}

TEST(Submit, MoreThanAnyDeviceHasIsTooLargeAtOnce) {
  World w;
  w.rules.headroom = 256 * MiB;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  const auto refused = w.ask(wish(24 * GiB));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::TooLarge);
  EXPECT_SAYS(refused.error().detail, "needs 24.0 GiB");
  EXPECT_SAYS(refused.error().detail, "24.0 GiB on gpu0");
  Lease on_small = wish(16 * GiB);
  on_small.wanted_device = uuid_of(1);
  EXPECT_EQ(w.ask(on_small).error().code, Code::TooLarge) << "the device asked for is what counts";
  on_small.vram = 15 * GiB;
  EXPECT_EQ(w.device_of(w.submit(on_small)), uuid_of(1));
}

// The size of a hint such as "ask for 3.6 GiB or less", as one who types it means it.
Bytes told(std::string_view hint) {
  hint.remove_prefix(std::min(hint.size(), hint.find("ask for ") + 8));
  return parse_size(hint.substr(0, hint.find(" or "))).value();
}

TEST(Submit, WhatIsFreeIsNeverSaidToBeMoreThanItIs) {
  const Bytes odd{3'919'157'658};  // 3.65 GiB
  World w;
  w.snapshot({gpu(0, odd)});
  Lease wants = wish(4 * GiB);
  wants.min_vram = GiB;
  EXPECT_EQ(format_size_down(w.reason(w.submit(wants), ReasonKind::granted).bytes("free")), "3.6 GiB");
  World other;
  other.snapshot({gpu(0, 24 * GiB)});
  other.submit(24 * GiB - odd);
  EXPECT_SAYS(other.ask(wish(10 * GiB), false).error().detail, "3.6 GiB is free");
}

TEST(Submit, LessThanAKibibyteIsNoLease) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_SAYS(w.ask(wish(Bytes{1023})).error().detail, "1.0 KiB or more");
  EXPECT_TRUE(w.ask(wish(KiB)).has_value());
}

TEST(Submit, TheSizeOfAHintIsTakenAsItIsPrinted) {
  const Bytes odd{3'919'157'658};  // 3.65 GiB
  World w;
  w.snapshot({gpu(0, odd)});
  Lease on_one = wish(4 * GiB);
  on_one.wanted_device = uuid_of(0);
  for (const Lease& lease : {wish(4 * GiB), on_one}) {
    const Error refused = w.ask(lease).error();
    EXPECT_SAYS(refused.detail, "3.6 GiB of 3.7 GiB on gpu0");
    w.step(Release{w.submit(told(refused.hint))});
  }
  const LeaseId mine = w.submit(GiB);
  const Error refused = w.step(Resize{mine, 0, 4 * GiB, true}).outcome.error();
  EXPECT_TRUE(w.step(Resize{mine, 0, told(refused.hint), true}).outcome.has_value()) << refused.hint;

  Lease least = wish(odd);
  least.min_vram = odd + Bytes{1};
  EXPECT_GE(told(w.ask(least).error().hint), least.min_vram);
}

TEST(Submit, AnAbsurdSizeIsTooLargeThoughNoDeviceWasRead) {
  World w;
  EXPECT_EQ(w.ask(wish({std::int64_t{1} << 62})).error().code, Code::TooLarge);
  EXPECT_EQ(w.ask(wish({0})).error().code, Code::BadRequest);
  EXPECT_EQ(w.ask(wish({-5})).error().code, Code::BadRequest);
}

TEST(Submit, AnUnknownDeviceIsRefusedWithTheListOfDevices) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  Lease lease = wish(GiB);
  lease.wanted_device = "GPU-9";
  const auto refused = w.ask(lease);
  EXPECT_EQ(refused.error().code, Code::NotFound);
  EXPECT_SAYS(refused.error().hint, "gpu0 (Test Card, 24.0 GiB, GPU-0)");
}

TEST(Submit, ADeviceMayBeAskedForByItsName) {
  World w;
  Lease lease = wish(GiB);
  lease.wanted_device = "gpu1";
  const LeaseId early = w.submit(lease, true);
  EXPECT_EQ(w.state_of(early), LeaseState::queued);
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.device_of(early), uuid_of(1)) << "the first reading says which one that is";
  lease.wanted_device = "0";
  EXPECT_EQ(w.device_of(w.submit(lease)), uuid_of(0));
  EXPECT_EQ(w.state.devices().size(), 2u) << "a name is no device";
}

TEST(Submit, WhileNoDeviceWasReadEverythingMayQueueAndNothingIsGranted) {
  World w;
  const LeaseId id = w.submit(1000 * GiB);
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_TRUE(w.reason(id, ReasonKind::queued).has("unknown"));
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.told(id).end_reason, EndReason::rejected);
  EXPECT_EQ(w.reason(id, ReasonKind::rejected).bytes("vram"), 1000 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::rejected).bytes("most"), 24 * GiB);
  EXPECT_TRUE(w.gone(id));
}

TEST(Submit, ADeviceThatWasNeverReadRejectsNobody) {
  World w;
  const LeaseId id = w.submit(30 * GiB);
  DeviceReading broken = gpu(1, 80 * GiB);
  broken.problem = "NVML says: unknown error";
  w.snapshot({gpu(0, 24 * GiB), broken});
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  EXPECT_EQ(w.state_of(w.submit(40 * GiB)), LeaseState::queued);
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 32 * GiB)});
  EXPECT_EQ(w.device_of(id), uuid_of(1));
}

TEST(Submit, ATagIsUniquePerUserWhileItsLeaseLives) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  Lease lease = wish(GiB);
  lease.tag = "whisper";
  const LeaseId first = w.submit(lease);
  const auto refused = w.ask(lease);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_SAYS(refused.error().detail, "'whisper' belongs to lease-1, which is active");
  Lease other = lease;
  other.uid = 1001;
  w.submit(other);
  EXPECT_EQ(w.state.find_tag(1000, "whisper")->id, first);
  w.step(Release{first});
  EXPECT_EQ(w.state.find_tag(1000, "whisper"), nullptr);
  EXPECT_EQ(w.state_of(w.submit(lease)), LeaseState::active);
}

// -------------------------------------------------------------------------------- no queue

TEST(SubmitNoQueue, RefusedForMemoryWithWhoHoldsIt) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  w.submit(20 * GiB);
  const auto refused = w.ask(wish(6 * GiB), false);
  EXPECT_EQ(refused.error().code, Code::Memory);
  EXPECT_SAYS(refused.error().detail, "needs 6.0 GiB; 4.0 GiB is free on gpu0");
  EXPECT_SAYS(refused.error().detail, "lease-1 (train, ana) 20.0 GiB");
  EXPECT_FALSE(refused.error().hint.empty());
}

TEST(SubmitNoQueue, ARefusalChangesNothing) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  w.submit(20 * GiB);
  Lease lease = wish(6 * GiB);
  lease.tag = "t";
  EXPECT_FALSE(w.ask(lease, false).has_value());
  EXPECT_TRUE(w.last.changed.empty() && w.last.reasons.empty() && w.last.actions.empty());
  EXPECT_EQ(w.state.leases().size(), 1u);
  EXPECT_EQ(w.state.find_tag(1000, "t"), nullptr);
  EXPECT_TRUE(w.state.queue().empty());
  EXPECT_EQ(w.submit(GiB).number, 2u) << "no id was used up";
}

TEST(SubmitNoQueue, SaysUnverifiedWhileNothingIsKnown) {
  World w;
  EXPECT_EQ(w.ask(wish(GiB), false).error().code, Code::Unverified);
  w.snapshot({gpu(0, 24 * GiB)});
  w.pass(w.rules.max_age + 1s);
  const auto refused = w.ask(wish(GiB), false);
  EXPECT_EQ(refused.error().code, Code::Unverified);
  EXPECT_SAYS(refused.error().detail, "gpu0 was last read 16 s ago");
}

TEST(SubmitNoQueue, SaysExternalWhenNoLeaseCouldMakeRoom) {
  World w;
  w.snapshot({gpu(0, 24 * GiB, {uses(4711, 20 * GiB)})});
  const auto refused = w.ask(wish(6 * GiB), false);
  EXPECT_EQ(refused.error().code, Code::External);
  EXPECT_SAYS(refused.error().detail, "pid 4711 (without a lease) 20.0 GiB");
}

TEST(SubmitNoQueue, SaysSettlingWhenOnlyBytesThatAreBeingMeasuredLack) {
  World w;
  w.snapshot({gpu(0, 24 * GiB)});
  const LeaseId id = w.run(20 * GiB, 100);
  w.now = w.now + 1s;
  w.step(ProgramEnded{id, 0, false});
  const auto refused = w.ask(wish(6 * GiB), false);
  EXPECT_EQ(refused.error().code, Code::Settling);
  EXPECT_SAYS(refused.error().detail, "ended and not yet measured gone 20.0 GiB");
}

// Its number is given again, and with it nobody's word.
TEST(Submit, WhatIsRefusedLeavesNoOrderBehind) {
  World w;
  w.rules.automatic = false;
  w.snapshot({gpu(0, 24 * GiB)});
  Lease low = wish(20 * GiB);
  low.tier = Tier::spot;
  low.pausable = Pausable::no;
  const LeaseId there = w.submit(low, true);
  Submit refused{
      .lease = wish(10 * GiB), .may_queue = false, .held = true, .preemption_request = PreemptionRequest{2000, false}};
  EXPECT_FALSE(w.step(refused).outcome.has_value());
  const LeaseId id = w.submit(wish(10 * GiB), true);
  w.pass(10s);
  EXPECT_EQ(w.state_of(id), LeaseState::queued);
  EXPECT_EQ(w.state_of(there), LeaseState::active) << "nobody ordered anything for that one";
  EXPECT_TRUE(w.state.plans().empty());
}

}  // namespace
}  // namespace sublet::core::testing
