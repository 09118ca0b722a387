// SPDX-License-Identifier: Apache-2.0
#include "http/usage.h"

#include <gtest/gtest.h>

namespace sublet::http {
namespace {

using namespace std::chrono_literals;
using core::EndReason;
using core::Lease;
using core::LeaseState;

constexpr Time noon{1'000'000'000'000'000};

Lease ended(const char* user, Duration asked, Duration granted, Duration end, Bytes vram = GiB) {
  Lease lease;
  lease.user = user;
  lease.tenant = "team";
  lease.consumer = "job";
  lease.state = LeaseState::ended;
  lease.end_reason = EndReason::released;
  lease.vram = vram;
  lease.created_at = noon + asked;
  lease.granted_at = noon + granted;
  lease.ended_at = noon + end;
  return lease;
}

Usage hour(UsageBy by = UsageBy::user) { return Usage({noon, noon + 1h}, by); }

TEST(Usage, AddsUpWhatWasHeldAndForHowLong) {
  Usage usage = hour();
  Lease lease = ended("ana", 0s, 10s, 110s, 2 * GiB);
  lease.peak_used = 512 * MiB;
  usage.add(lease);
  const auto row = usage.rows()[0];
  EXPECT_EQ(row["name"], "ana");
  EXPECT_EQ(row["held_mib_seconds"], 100 * 2048);
  EXPECT_EQ(row["never_used_mib_seconds"], 100 * 1536);
  EXPECT_EQ(row["peak_used_bytes"], 512 * MiB.count);
  EXPECT_EQ(row["wait"]["max_ms"], 10'000);
  EXPECT_EQ(row["ended"]["released"], 1);
}

TEST(Usage, WhatLiesOutsideTheWindowIsNotCounted) {
  Usage usage = hour();
  usage.add(ended("ana", -3h, -2h, -1h));          // before
  usage.add(ended("ana", -30min, -30min, 30min));  // half of it inside
  usage.add(ended("ana", 2h, 2h, 3h));             // after
  EXPECT_EQ(usage.total()["leases"], 1);
  EXPECT_EQ(usage.total()["held_mib_seconds"], 1800 * 1024);
}

TEST(Usage, LiveOnesCountUntilNowAndThoseThatWaitHoldNothing) {
  Usage usage = hour();
  Lease active = ended("ana", 0s, 0s, 0s);
  active.state = LeaseState::active;
  active.ended_at.reset();
  active.device_count = 2;
  Lease queued = active;
  queued.state = LeaseState::queued;
  queued.granted_at.reset();
  queued.user = "ben";
  usage.add(active);
  usage.add(queued);
  EXPECT_EQ(usage.total()["active"], 1);
  EXPECT_EQ(usage.total()["waiting"], 1);
  EXPECT_EQ(usage.total()["held_mib_seconds"], 2 * 3600 * 1024);
  EXPECT_EQ(usage.rows()[1]["name"], "ben");
  EXPECT_EQ(usage.rows()[1]["wait"]["max_ms"], 3'600'000);
}

TEST(Usage, WhoHasBegunMayWaitToo) {
  Lease grows = ended("ana", 0s, 10s, 0s);
  grows.state = LeaseState::active;
  grows.ended_at.reset();
  grows.resize = core::Upgrade{2 * GiB, noon + 30min};
  Lease paused = grows;
  paused.state = LeaseState::paused;
  paused.resize.reset();
  paused.parking.emplace();
  paused.parked_at = noon + 30min;
  Usage usage = hour();
  usage.add(grows);
  usage.add(paused);
  EXPECT_EQ(usage.total()["waiting"], 1) << "nobody wants the other back yet";
  paused.parking->resume_requested = true;
  usage.add(paused);
  EXPECT_EQ(usage.total()["waiting"], 2);
  EXPECT_EQ(usage.total()["active"], 3);
  EXPECT_EQ(usage.total()["wait"]["max_ms"], 10'000) << "to the first grant";
  grows.state = LeaseState::ended;
  grows.ended_at = noon + 40min;
  usage.add(grows);
  EXPECT_EQ(usage.total()["waiting"], 2) << "who has ended waits no longer";
}

TEST(Usage, TimeInWhichItWasParkedIsNotHeld) {
  Lease lease = ended("ana", 0s, 0s, 100s);
  lease.device_count = 2;
  lease.peak_used = 512 * MiB;
  lease.parked_for = 25s;
  Usage past = hour();
  past.add(lease);
  EXPECT_EQ(past.total()["held_mib_seconds"], 75 * 2 * 1024);
  EXPECT_EQ(past.total()["paused_mib_seconds"], 25 * 2 * 1024);
  EXPECT_EQ(past.total()["never_used_mib_seconds"], 75 * 2 * 512);

  lease.state = LeaseState::paused;
  lease.ended_at.reset();
  lease.parked_at = noon + 50min;
  Usage present = hour();
  present.add(lease);
  EXPECT_EQ(present.total()["paused_mib_seconds"], (10 * 60 + 25) * 2 * 1024) << "until now, and what was before";
  EXPECT_EQ(present.total()["held_mib_seconds"], (50 * 60 - 25) * 2 * 1024);
}

TEST(Usage, PausesThatAreOverAreSpreadOverTheTimeThatTheyLieIn) {
  Lease lease = ended("ana", -1h, -1h, 1h);
  lease.parked_for = 30min;
  Usage past = hour();
  past.add(lease);
  EXPECT_EQ(past.total()["paused_mib_seconds"], 15 * 60 * 1024);
  EXPECT_EQ(past.total()["held_mib_seconds"], 45 * 60 * 1024);

  lease.state = LeaseState::paused;
  lease.ended_at.reset();
  lease.parked_at = noon - 10min;
  Usage whole = hour();
  whole.add(lease);
  EXPECT_EQ(whole.total()["held_mib_seconds"], 0) << "parked since before the window";
  EXPECT_EQ(whole.total()["paused_mib_seconds"], 3600 * 1024);
}

TEST(Usage, EachSizeCountsForAsLongAsItWas) {
  Lease lease = ended("ana", 0s, 0s, 100s, MiB);
  lease.sized = core::Sized{2 * GiB, noon + 60s, 20s};
  lease.parked_for = 30s;
  lease.peak_used = GiB;
  Usage past = hour();
  past.add(lease);
  EXPECT_EQ(past.total()["held_mib_seconds"], 40 * 2048 + 30);
  EXPECT_EQ(past.total()["paused_mib_seconds"], 20 * 2048 + 10);
  EXPECT_EQ(past.total()["never_used_mib_seconds"], 40 * 1024);

  Usage later({noon + 30s, noon + 1h}, UsageBy::user);
  later.add(lease);
  EXPECT_EQ(later.total()["held_mib_seconds"], 20 * 2048 + 30);
}

TEST(Usage, PercentilesAreValuesThatWereThere) {
  Usage usage = hour(UsageBy::tenant);
  for (int i = 1; i <= 10; ++i) usage.add(ended("u", 0s, i * 1s, 60s));
  const auto wait = usage.rows()[0]["wait"];
  EXPECT_EQ(usage.rows()[0]["name"], "team");
  EXPECT_EQ(wait["p50_ms"], 5'000);
  EXPECT_EQ(wait["p90_ms"], 9'000);
  EXPECT_EQ(wait["max_ms"], 10'000);
  EXPECT_EQ(hour().total()["wait"]["p50_ms"], 0);
}

}  // namespace
}  // namespace sublet::http
