// SPDX-License-Identifier: Apache-2.0
// `ps` and `queue` of leases that are paused or wait.
#include "cli/render_test.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

std::string reason_of(const json& lease) {
  Common common;
  common.columns = {"reason"};
  return *render_leases({{"leases", {lease}}}, common, Look{});
}

TEST(PsOfThePaused, WhyAProgramDoesNotRunAgainYet) {
  json pause = {{"method", "driver"},
                {"reason", "requested by its owner"},
                {"problem", "process 9 is stopped or frozen"},
                {"progress", {{"move", "resume"}, {"moved_bytes", 0}, {"total_bytes", 1024}, {"late", true}}}};
  EXPECT_EQ(reason_of({{"state", "resuming"}, {"pause", pause}}),
            "REASON\nis not running again yet: process 9 is stopped or frozen; the daemon retries\n");
  pause["problem"] = nullptr;
  EXPECT_EQ(reason_of({{"state", "resuming"}, {"pause", pause}}),
            "REASON\n0 B of 1.0 KiB restored, later than predicted\n");
}

TEST(PsOfThePaused, NothingIsParkedWhileItsWorkIsWaitedFor) {
  const json progress = {{"move", "pause"}, {"moved_bytes", 0}, {"total_bytes", 1024}, {"bytes_per_second", 0},
                         {"left_ms", 800},  {"late", false},    {"measured", false}};
  json pause = {{"method", "driver"}, {"reason", "requested by its owner"}, {"begun", false}, {"progress", progress}};
  EXPECT_EQ(reason_of({{"state", "pausing"}, {"pause", pause}}),
            "REASON\n0 B of 1.0 KiB parked, its program is not touched yet: requested by its owner\n");
  pause["begun"] = true;
  EXPECT_EQ(reason_of({{"state", "pausing"}, {"pause", pause}}),
            "REASON\n0 B of 1.0 KiB parked, waiting until its program is at rest: requested by its owner\n");
}

TEST(PsOfThePaused, APredictionIsNoProgress) {
  json progress = {{"move", "pause"}, {"moved_bytes", 0},  {"total_bytes", 1024}, {"bytes_per_second", 0},
                   {"left_ms", 1000}, {"measured", false}, {"late", false},       {"under_way", true}};
  const auto shown = [&](const char* method) {
    const json pause = {{"method", method}, {"reason", "asked"}, {"begun", true}, {"progress", progress}};
    return reason_of({{"state", "pausing"}, {"pause", pause}});
  };
  EXPECT_EQ(shown("cooperative"), "REASON\n0 B of 1.0 KiB freed, about 1.0s expected: asked\n");
  EXPECT_EQ(shown("driver"), "REASON\n0 B of 1.0 KiB parked, about 1.0s expected: asked\n");
  progress["left_ms"] = 0;
  EXPECT_EQ(shown("driver"), "REASON\n0 B of 1.0 KiB parked, expected any moment: asked\n");
  progress.update({{"left_ms", 1000}, {"moved_bytes", 512}, {"bytes_per_second", 512}, {"measured", true}});
  EXPECT_EQ(shown("cooperative"), "REASON\n512 B of 1.0 KiB freed, 512 B/s, about 1.0s left: asked\n");
}

TEST(PsOfThePaused, WhatBecameOfOneThatNeverRunsAgain) {
  json lease = {
      {"state", "poisoned"}, {"parked_bytes", 2048}, {"pause", {{"method", "driver"}, {"reason", "it failed"}}}};
  EXPECT_EQ(reason_of(lease), "REASON\n2.0 KiB parked: it failed\n");
  lease["parked_bytes"] = 0;
  EXPECT_EQ(reason_of(lease), "REASON\nit failed\n");
}

TEST(PsOfTheQueued, AnOfferThatWasNotClaimed) {
  json lease = {{"state", "queued"}, {"queue", {{"place", 2}, {"device", "GPU-1"}, {"eta_seconds", nullptr}}}};
  lease["lapsed_offers"] = 0;
  EXPECT_EQ(reason_of(lease), "REASON\nplace 2; start unknown\n");
  lease["lapsed_offers"] = 1;
  EXPECT_EQ(reason_of(lease), "REASON\nits offer was not claimed; place 2; start unknown\n");
}

// The holder may be another lease than the preemptor.
TEST(PsOfThePaused, WhoHasItsRoomNow) {
  const json pause = {{"method", "driver"},
                      {"reason", "time slice of lease-5 (chat, ana), which asked for 1.0 KiB"},
                      {"preemptor", "lease-5"},
                      {"resume_requested", true}};
  const json queue = {
      {"place", 1}, {"device", "GPU-1"}, {"holders", {{{"what", "lease-6 (train, ana)"}, {"bytes", 1024}}}}};
  const json lease = {{"state", "paused"}, {"parked_bytes", 2048}, {"pause", pause}, {"queue", queue}};
  EXPECT_EQ(reason_of(lease), "REASON\n2.0 KiB parked for lease-5; place 1; resume time unknown\n");
  EXPECT_EQ(whole_reason(lease, Look{}),
            "2.0 KiB parked by the driver: time slice of lease-5 (chat, ana), which asked for 1.0 KiB; place 1; resume "
            "time unknown; the memory is held by lease-6 (train, ana) 1.0 KiB");
}

TEST(Queue, ShowsTheLongestWaitBesideTheExpectedOne) {
  json lease = leases["leases"][1];
  lease["queue"]["bound_seconds"] = 840;
  Common common;
  common.columns = {"id", "start"};
  EXPECT_EQ(*render_queue({{"queue", {lease}}}, common, at_noon()),
            "ID                  START\n"
            "lease-2  ~5m, at most 14m\n");
  EXPECT_EQ(queue_phrase(lease, at_noon()),
            "place 1, 1.0 GiB short on gpu0; starts in about 5 min, at most 14 min by rule");
}

}  // namespace
}  // namespace sublet::cli
