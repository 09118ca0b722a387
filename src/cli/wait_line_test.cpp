// SPDX-License-Identifier: Apache-2.0
#include "cli/wait_line.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

client::Lease waiting() {
  client::Lease lease;
  lease.id = "lease-7";
  lease.state = "queued";
  client::Place place;
  place.place = 2;
  place.short_by = 1945 * MiB;
  place.device = "GPU-1";
  place.holders = {{"lease-3", "lease-3 (train, ana)", 4 * GiB}, {"", "pid 12 (Xorg, without a lease)", 300 * MiB}};
  place.eta = std::chrono::seconds(125);
  place.basis = "lease-3 usually runs 10 min";
  lease.queue = place;
  return lease;
}

TEST(WaitText, NamesPlaceShortageEstimateHoldersAndBasis) {
  Look look;
  look.device_names["GPU-1"] = "gpu0";
  EXPECT_EQ(wait_text(waiting(), look),
            "lease-7 waits: place 2 · 1.9 GiB short on gpu0 · starts in about 2 min 5 s · "
            "held by lease-3 (train, ana) 4.0 GiB and 1 more · lease-3 usually runs 10 min");
}

TEST(WaitText, SaysThatNothingIsKnown) {
  auto lease = waiting();
  lease.queue->eta.reset();
  lease.queue->holders.clear();
  lease.queue->short_by = {};
  lease.queue->basis = "nobody ahead has ended before";
  EXPECT_EQ(wait_text(lease, {}), "lease-7 waits: place 2 · start unknown · nobody ahead has ended before");
  lease.queue.reset();
  EXPECT_EQ(wait_text(lease, {}), "lease-7 waits");
}

TEST(WaitText, SaysThatTheLeaseIsHeldBack) {
  auto lease = waiting();
  lease.queue->held_back = true;
  EXPECT_EQ(wait_text(lease, {}), "lease-7 is held back, and keeps place 2: sublet resume lease-7");
}

TEST(WaitText, NamesTheWayOutWhereUnleasedProcessesHoldTheMemory) {
  auto lease = waiting();
  lease.queue->short_by = 300 * MiB;
  lease.queue->unleased = 300 * MiB;
  lease.queue->free = Bytes{3'919'157'658};  // 3.65 GiB
  const std::string way = " · --vram 3.6GiB or less would fit now, and --min-vram accepts a smaller lease";
  EXPECT_NE(wait_text(lease, {}).find(way), std::string::npos) << wait_text(lease, {});
  lease.queue->unleased = 299 * MiB;
  EXPECT_EQ(wait_text(lease, {}).find("--vram"), std::string::npos) << "leases hold some of it";
  lease.queue->unleased = 300 * MiB;
  lease.queue->free = {};
  EXPECT_EQ(wait_text(lease, {}).find("--vram"), std::string::npos) << "no smaller lease fits";
  lease.queue->free = GiB;
  lease.state = "paused";
  EXPECT_EQ(wait_text(lease, {}).find("--vram"), std::string::npos);
}

TEST(WaitText, RoundsTheSizeOfALeaseDown) {
  auto lease = waiting();
  lease.queue->holders = {{"lease-3", "lease-3 (train, ana)", Bytes{3'919'157'658}}};
  EXPECT_NE(wait_text(lease, {}).find("lease-3 (train, ana) 3.6 GiB"), std::string::npos);
}

TEST(WaitText, OnANarrowTerminalKeepsPlaceShortageAndEstimate) {
  Look look;
  look.device_names["GPU-1"] = "gpu0";
  auto lease = waiting();
  lease.id = "lease-4711";
  lease.queue->holders.resize(3, {"lease-12", "lease-12 (a-rather-long-name, somebody)", 20 * GiB});
  EXPECT_EQ(fit(wait_text(lease, look), 79),
            "lease-4711 waits: place 2 · 1.9 GiB short on gpu0 · starts in about 2 min 5 s …");
  lease.queue->eta.reset();
  EXPECT_EQ(fit(wait_text(lease, look), 79),
            "lease-4711 waits: place 2 · 1.9 GiB short on gpu0 · start unknown · held by le…");
}

TEST(WaitText, DoesNotCountMilliseconds) {
  auto lease = waiting();
  lease.queue->eta = std::chrono::milliseconds(400);
  const std::string text = wait_text(lease, {});
  EXPECT_NE(text.find(" · starts at once · "), std::string::npos) << text;
}

TEST(WaitText, IsSafeOnATerminalAndNamesOneHolder) {
  auto lease = waiting();
  lease.queue->holders.assign(5, {"", "evil\x1b[2J", GiB});
  const std::string text = wait_text(lease, {});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("and 4 more"), std::string::npos);
}

TEST(WaitText, WithoutMinutesIsTheSameWhileOnlyTimePasses) {
  auto lease = waiting();
  const std::string before = wait_text(lease, {}, false);
  lease.queue->eta = std::chrono::seconds(60);
  EXPECT_EQ(wait_text(lease, {}, false), before);
  lease.queue->place = 1;
  EXPECT_NE(wait_text(lease, {}, false), before);
  lease.queue->eta.reset();
  lease.queue->basis = "gpu1 has been gone for 9.0 s";
  const std::string gone = wait_text(lease, {}, false);
  lease.queue->basis = "gpu1 has been gone for 12 s";
  EXPECT_EQ(wait_text(lease, {}, false), gone);
  lease.queue->basis = "gpu1 was not read yet";
  EXPECT_NE(wait_text(lease, {}, false), gone);
}

TEST(Fit, CutsAtTheWidthInColumnsNotBytes) {
  EXPECT_EQ(fit("abc", 3), "abc");
  EXPECT_EQ(fit("abcd", 3), "ab…");
  EXPECT_EQ(fit("äöüß", 3), "äö…");
  EXPECT_EQ(fit("日本語", 4), "日…");
  EXPECT_EQ(fit("abc", 0), "");
}

TEST(WaitLine, InAPipeSaysEachChangeOnce) {
  WaitLine line({}, false, false);
  auto lease = waiting();
  ::testing::internal::CaptureStderr();
  line.show(lease);
  lease.queue->eta = std::chrono::seconds(100);
  line.show(lease);
  lease.queue->place = 1;
  line.show(lease);
  line.clear();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2);
  EXPECT_EQ(said.find('\r'), std::string::npos);
}

TEST(WaitLine, OnATerminalIsRewrittenAndRemoved) {
  WaitLine line({}, true, false);
  ::testing::internal::CaptureStderr();
  line.show(waiting());
  line.show(waiting());
  line.clear();
  line.clear();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\r'), 3);
  EXPECT_EQ(said.find('\n'), std::string::npos);
  EXPECT_TRUE(said.ends_with("\r\x1b[K"));
}

}  // namespace
}  // namespace sublet::cli
