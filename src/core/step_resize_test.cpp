// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

struct Two : World {
  LeaseId mine, other;
  Two() {
    snapshot({gpu(0, 24 * GiB)});
    mine = submit(8 * GiB), other = submit(10 * GiB);
  }
  Result<LeaseId> resize(LeaseId id, Bytes vram, bool may_queue = true) {
    return step(Resize{id, 0, vram, may_queue}).outcome;
  }
};

TEST(Resize, ShrinksAtOnceAndGivesToThoseWhoWaitOnceThatIsMeasured) {
  Two w;
  const LeaseId waiter = w.submit(wish(10 * GiB), true);
  const Time begun = w.now;
  w.now = w.now + 20ms;
  ASSERT_TRUE(w.resize(w.mine, 4 * GiB).has_value());
  EXPECT_EQ(w.at(w.mine).vram, 4 * GiB);
  EXPECT_EQ(w.reason(w.mine, ReasonKind::shrunk).bytes("from"), 8 * GiB);
  EXPECT_EQ(w.reason(w.mine, ReasonKind::shrunk).bytes("vram"), 4 * GiB);
  EXPECT_EQ(w.states(waiter), "queued") << "its programs may have taken more since the last reading";
  w.step(Snapshot{begun, {gpu(0, 24 * GiB)}});
  EXPECT_EQ(w.states(waiter), "queued") << "that was read before";
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 8 * GiB, w.mine)})});
  EXPECT_EQ(w.states(waiter), "queued") << "it uses all that it had";
  w.now = w.now + 20ms;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 3 * GiB, w.mine)})});
  EXPECT_EQ(w.states(waiter), "active");
}

TEST(Resize, WhatItHadBeforeIsKept) {
  Two w;
  EXPECT_FALSE(w.at(w.mine).sized);
  w.pass(10s);
  const Time shrunk = w.now;
  ASSERT_TRUE(w.resize(w.mine, 4 * GiB).has_value());
  EXPECT_EQ(w.at(w.mine).sized, (Sized{8 * GiB, shrunk, {}}));
  w.pass(30s);
  w.snapshot({gpu(0, 24 * GiB)});
  ASSERT_TRUE(w.resize(w.mine, 6 * GiB).has_value());
  EXPECT_EQ(w.at(w.mine).sized->until, w.now);
  EXPECT_EQ(w.at(w.mine).sized->mean, 5 * GiB);
}

TEST(Resize, DoesNotGiveAwayWhatIsInUse) {
  Two w;
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 5 * GiB, w.mine)})});
  EXPECT_EQ(w.resize(w.mine, 4 * GiB).error().code, Code::InUse);
  EXPECT_SAYS(w.resize(w.mine, 4 * GiB).error().detail, "5.0 GiB on gpu0");
  EXPECT_EQ(w.at(w.mine).vram, 8 * GiB);
  EXPECT_TRUE(w.resize(w.mine, 5 * GiB).has_value());
  w.snapshot({gpu(0, 24 * GiB, {uses(7, Bytes{3'876'208'000}, w.mine)})});  // 3.61 GiB
  EXPECT_SAYS(w.resize(w.mine, GiB).error().hint, "ask for 3.7 GiB or more");
  auto untold = uses(7, {}, w.mine);
  untold.used.reset();
  w.snapshot({gpu(0, 24 * GiB, {untold}, 5 * GiB)});
  EXPECT_EQ(w.resize(w.mine, GiB).error().code, Code::InUse);
  w.snapshot({gpu(0, 24 * GiB, {uses(7, 14 * GiB, w.mine)})});
  EXPECT_EQ(w.free(0), Bytes{});
  ASSERT_TRUE(w.resize(w.mine, 14 * GiB, false).has_value()) << "it takes 14 GiB as it is";
  EXPECT_EQ(w.free(0), Bytes{});
}

TEST(Resize, GrowsAtOnceIfItFitsElseInTurn) {
  Two w;
  ASSERT_TRUE(w.resize(w.mine, 14 * GiB).has_value());
  EXPECT_EQ(w.at(w.mine).vram, 14 * GiB);
  ASSERT_TRUE(w.resize(w.mine, 20 * GiB).has_value());
  EXPECT_EQ(w.at(w.mine).vram, 14 * GiB) << "it keeps what it has";
  EXPECT_EQ(w.at(w.mine).resize->vram, 20 * GiB);
  EXPECT_EQ(w.reason(w.mine, ReasonKind::resizing).bytes("has"), 14 * GiB);
  EXPECT_EQ(w.reason(w.mine, ReasonKind::resizing).bytes("vram"), 20 * GiB);
  EXPECT_EQ(w.info(w.mine).short_bytes, 6 * GiB);
  w.restart();
  EXPECT_EQ(w.state.queue.place(w.mine), 1u) << "it outlives a restart";
  ASSERT_TRUE(w.resize(w.mine, 14 * GiB).has_value());
  EXPECT_FALSE(w.at(w.mine).resize.has_value()) << "a resize to the present size cancels";
  EXPECT_EQ(w.state.queue.size(), 0U);
  EXPECT_EQ(w.reason(w.mine, ReasonKind::resize_withdrawn_by_owner).bytes("wanted"), 20 * GiB);
  for (const LeaseId ends : {w.other, w.mine}) {
    w.snapshot({gpu(0, 24 * GiB)});
    ASSERT_TRUE(w.resize(w.mine, ends == w.mine ? 21 * GiB : 20 * GiB).has_value());
    w.step(Release{ends});
    EXPECT_EQ(w.state.queue.size(), 0U);
    if (ends == w.mine) continue;
    EXPECT_EQ(w.at(w.mine).vram, 20 * GiB);
    EXPECT_FALSE(w.at(w.mine).resize.has_value());
  }
  EXPECT_TRUE(w.gone(w.mine));
}

TEST(Resize, IsRefusedWhereItMayNotWait) {
  Two w;
  const auto refused = w.resize(w.mine, 20 * GiB, false);
  EXPECT_EQ(refused.error().code, Code::Memory);
  EXPECT_SAYS(refused.error().detail, "needs 20.0 GiB instead of 8.0 GiB; 6.0 GiB is free on gpu0");
  EXPECT_FALSE(w.at(w.mine).resize.has_value());
  EXPECT_TRUE(w.resize(w.mine, 14 * GiB, false).has_value());
  EXPECT_EQ(w.resize(w.mine, 25 * GiB).error().code, Code::TooLarge);
  EXPECT_EQ(w.resize(w.mine, {}).error().code, Code::BadRequest);
  EXPECT_EQ(w.resize({99}, GiB).error().code, Code::NotFound);
  EXPECT_EQ(w.refusal(Resize{w.mine, 17, GiB, true}).code, Code::Stale);
  const LeaseId queued = w.submit(wish(20 * GiB), true);
  EXPECT_EQ(w.resize(queued, GiB).error().code, Code::Stale);
}

TEST(Resize, StandsInTheSameOrderAsEverybody) {
  Two w;
  const LeaseId before = w.submit(wish(14 * GiB), true);
  ASSERT_TRUE(w.resize(w.mine, 16 * GiB).has_value());
  EXPECT_EQ(w.state.queue.in_order(), (std::vector{before, w.mine}));
  w.step(Release{w.other});
  EXPECT_EQ(w.states(before), "active");
  EXPECT_EQ(w.at(w.mine).vram, 8 * GiB);
}

TEST(Resize, OfAGangIsOnAllItsDevicesOrNone) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease pair = wish(8 * GiB);
  pair.device_count = 2;
  const LeaseId gang = w.submit(pair), other = w.submit(10 * GiB);
  w.step(Resize{gang, 0, 20 * GiB, true});
  EXPECT_EQ(w.at(gang).vram, 8 * GiB);
  EXPECT_EQ(w.free(1), 16 * GiB) << "nothing is taken on the one where it would fit";
  w.step(Release{other});
  EXPECT_EQ(w.at(gang).vram, 20 * GiB);
  EXPECT_EQ(w.free(0), 4 * GiB);
  EXPECT_EQ(w.free(1), 4 * GiB);
}

// Each on devices of its own, of which those of the others say nothing.
TEST(Resize, OnDevicesThatAreFreeItGrowsWhoeverWaitsBeforeItElsewhere) {
  World w;
  const auto read = [&w] {
    w.now = w.now + 20ms;
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB), gpu(2, 24 * GiB), gpu(3, 24 * GiB)});
  };
  read();
  const auto on_two = [&w](Bytes vram) {
    Lease lease = wish(vram);
    lease.device_count = 2;
    return w.submit(lease, true);
  };
  const LeaseId blocks = on_two(20 * GiB), last = on_two(14 * GiB);
  ASSERT_NE(w.at(blocks).devices, w.at(last).devices);
  std::vector<LeaseId> before;
  for (int i = 0; i < 9; ++i) before.push_back(on_two(256 * MiB));
  for (const LeaseId id : before) {
    ASSERT_EQ(w.at(id).devices, w.at(blocks).devices);
    ASSERT_TRUE(w.accepts(Resize{.lease = id, .vram = 4 * GiB}));
  }
  const LeaseId beside = on_two(4 * GiB);
  ASSERT_EQ(w.at(beside).devices, w.at(last).devices);
  ASSERT_TRUE(w.accepts(Resize{.lease = last, .vram = 22 * GiB}));
  EXPECT_EQ(w.at(last).vram, 14 * GiB);
  w.step(Release{.lease = beside});
  EXPECT_EQ(w.at(last).vram, 22 * GiB);
}

}  // namespace
}  // namespace sublet::core::testing
