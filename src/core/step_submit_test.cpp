// SPDX-License-Identifier: Apache-2.0
#include "base/size_bounds.h"
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

TEST(Submit, IsGrantedAtOnceWhereItFits) {
  OneCard w;
  const LeaseId id = w.submit(6 * GiB);
  EXPECT_EQ(w.states(id), "active");
  EXPECT_EQ(w.device_of(id), uuid_of(0));
  EXPECT_EQ(w.at(id).granted_at, w.now);
  EXPECT_EQ(w.free(0), 18 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("vram"), 6 * GiB);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).bytes("free"), 24 * GiB);
  EXPECT_EQ(w.last.changed.size(), 1u);
}

TEST(Submit, SizesAndDevicesThatCannotBeHadAreRefusedAtOnce) {
  World unread, w;
  w.rules.headroom = 256 * MiB;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  const struct {
    World& world;
    Bytes vram;
    std::vector<std::string> devices;
    Code code;
    const char* detail;
  } rows[] = {
      {w, 24 * GiB, {}, Code::TooLarge, "needs 24.0 GiB"},
      {w, 16 * GiB, {"GPU-1"}, Code::TooLarge, "on gpu1"},  // the device asked for is what counts
      {w, Bytes{1023}, {}, Code::BadRequest, "1.0 KiB or more"},
      {w, GiB, {"GPU-9"}, Code::NotFound, "GPU-9"},
      {w, GiB, {"GPU-0", "GPU-9"}, Code::NotFound, "GPU-9"},
      {w, 25 * GiB, {"gpu0", "gpu1"}, Code::TooLarge, "on one of gpu0 and gpu1; at most 23.7 GiB of 24.0 GiB on gpu0"},
      {unread, {std::int64_t{1} << 62}, {}, Code::TooLarge, ""},
      {unread, {0}, {}, Code::BadRequest, ""},
      {unread, {-5}, {}, Code::BadRequest, ""},
  };
  for (const auto& row : rows) {
    Lease lease = wish(row.vram);
    lease.wanted_devices = row.devices;
    const Error refused = row.world.ask(lease).error();
    EXPECT_EQ(refused.code, row.code) << refused.detail;
    EXPECT_SAYS(refused.detail, row.detail);
    EXPECT_TRUE(row.code != Code::NotFound || contains(refused.hint, "gpu0 (Test Card, 24.0 GiB, GPU-0)"));
  }
  Lease on_small = wish(15 * GiB);
  on_small.wanted_devices = {uuid_of(1)};
  EXPECT_EQ(w.device_of(w.submit(on_small)), uuid_of(1));
  EXPECT_TRUE(w.ask(wish(KiB)).has_value());
}

// The size of a hint such as "ask for 3.6 GiB or less", as one who types it means it.
Bytes told(std::string_view hint) {
  hint.remove_prefix(std::min(hint.size(), hint.find("ask for ") + 8));
  return parse_size(hint.substr(0, hint.find(" or "))).value();
}

TEST(Submit, TheSizeOfAHintIsTakenAsItIsPrinted) {
  const Bytes odd{3'919'157'658};  // 3.65 GiB
  World w;
  w.snapshot({gpu(0, odd)});
  Lease on_one = wish(4 * GiB);
  on_one.wanted_devices = {uuid_of(0)};
  for (const Lease& lease : {wish(4 * GiB), on_one}) {
    const Error refused = w.ask(lease).error();
    EXPECT_SAYS(refused.detail, "3.6 GiB of 3.7 GiB on gpu0");
    w.step(Release{w.submit(told(refused.hint))});
  }
  const LeaseId mine = w.submit(GiB);
  const Error refused = w.refusal(Resize{mine, 0, 4 * GiB, true});
  EXPECT_TRUE(w.accepts(Resize{mine, 0, told(refused.hint), true})) << refused.hint;

  Lease least = wish(odd);
  least.min_vram = odd + Bytes{1};
  EXPECT_GE(told(w.ask(least).error().hint), least.min_vram);

  // Free memory is never said to be more than it is.
  World other;
  other.snapshot({gpu(0, 24 * GiB)});
  other.submit(24 * GiB - odd);
  EXPECT_SAYS(other.ask(wish(10 * GiB), false).error().detail, "3.6 GiB is free");
  Lease wants = wish(4 * GiB);
  wants.min_vram = GiB;
  EXPECT_EQ(format_size_down(other.reason(other.submit(wants), ReasonKind::granted).bytes("free")), "3.6 GiB");
}

TEST(Submit, ADeviceMayBeAskedForByItsName) {
  World w;
  Lease lease = wish(GiB);
  lease.wanted_devices = {"gpu1"};
  const LeaseId early = w.submit(lease, true);
  EXPECT_EQ(w.states(early), "queued");
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  EXPECT_EQ(w.device_of(early), uuid_of(1)) << "the first reading says which one that is";
  lease.wanted_devices = {"0"};
  EXPECT_EQ(w.device_of(w.submit(lease)), uuid_of(0));
  EXPECT_EQ(w.state.devices.by_uuid.size(), 2u) << "a name is no device";
}

TEST(Submit, WhileADeviceWasNotReadEverythingMayQueue) {
  World w;
  const LeaseId huge = w.submit(1000 * GiB), large = w.submit(30 * GiB);
  EXPECT_TRUE(w.wants_snapshot());
  EXPECT_TRUE(w.reason(huge, ReasonKind::queued).has("unknown"));
  DeviceReading broken = gpu(1, 80 * GiB);
  broken.problem = "NVML says: unknown error";
  w.snapshot({gpu(0, 24 * GiB), broken});
  EXPECT_EQ(w.states(huge, large, w.submit(40 * GiB)), "queued queued queued");
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 32 * GiB)});
  EXPECT_EQ(w.device_of(large), uuid_of(1));
  EXPECT_EQ(w.told(huge).end_reason, EndReason::rejected);
  EXPECT_EQ(w.reason(huge, ReasonKind::rejected).bytes("vram"), 1000 * GiB);
  EXPECT_EQ(w.reason(huge, ReasonKind::rejected).bytes("most"), 32 * GiB);
  EXPECT_TRUE(w.gone(huge));
}

TEST(Submit, ATagIsUniquePerUserWhileItsLeaseLives) {
  OneCard w;
  Lease lease = wish(GiB);
  lease.tag = "whisper";
  const LeaseId first = w.submit(lease);
  const auto refused = w.ask(lease);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_SAYS(refused.error().detail, "'whisper' belongs to lease-1, which is active");
  Lease other = lease;
  other.uid = 1001;
  w.submit(other);
  EXPECT_EQ(find_tag(w.state, 1000, "whisper")->id, first);
  w.step(Release{first});
  EXPECT_EQ(find_tag(w.state, 1000, "whisper"), nullptr);
  EXPECT_EQ(w.states(w.submit(lease)), "active");
}

// -------------------------------------------------------------------------------- no queue

TEST(SubmitNoQueue, IsRefusedWithTheCauseAndChangesNothing) {
  const auto refused = [](World& w, Code code, std::string_view detail) {
    const std::size_t before = w.state.leases.by_id.size();
    Lease lease = wish(6 * GiB);
    lease.tag = "t";
    const Error error = w.ask(lease, false).error();
    EXPECT_EQ(error.code, code) << error.detail;
    EXPECT_SAYS(error.detail, detail);
    EXPECT_FALSE(error.hint.empty());
    EXPECT_EQ(w.state.leases.by_id.size(), before);
    EXPECT_EQ(find_tag(w.state, 1000, "t"), nullptr);
    EXPECT_EQ(w.state.queue.size(), 0U);
  };
  OneCard held;
  held.submit(20 * GiB);
  refused(held, Code::Memory, "needs 6.0 GiB; 4.0 GiB is free on gpu0");
  refused(held, Code::Memory, "lease-1 (train, ana) 20.0 GiB");
  EXPECT_EQ(held.submit(GiB).number, 2u) << "no id was used up";

  World unknown;
  refused(unknown, Code::Unverified, "");
  unknown.snapshot({gpu(0, 24 * GiB)});
  unknown.pass(unknown.rules.max_age + 1s);
  refused(unknown, Code::Unverified, "gpu0 was last read 16 s ago");

  OneCard outside;
  outside.measure({uses(4711, 20 * GiB)});
  refused(outside, Code::External, "pid 4711 (without a lease) 20.0 GiB");

  OneCard settling;
  const LeaseId id = settling.run(20 * GiB, 100);
  settling.now = settling.now + 1s;
  settling.step(ProgramEnded{id, 0, false});
  refused(settling, Code::Settling, "ended and not yet measured gone 20.0 GiB");
}

}  // namespace
}  // namespace sublet::core::testing
