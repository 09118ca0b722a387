// SPDX-License-Identifier: Apache-2.0
// The text of `why` for literal replies of the API.
#include "cli/render_test.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(Why, AQueuedLease) {
  const json reply{
      {"lease", leases["leases"][1]},
      {"queue", leases["leases"][1]["queue"]},
      {"reasons",
       json::array({{{"at", "2026-11-21T11:58:00.000Z"}, {"code", "Memory"}, {"text", "1.0 GiB short on gpu0"}},
                    {{"at", "2026-11-21T11:58:00.000Z"}, {"code", "queued"}, {"text", "queued at place 1 of 1"}}})},
      {"helps", json::array({"ask for at most 3.0 GiB"})}};
  EXPECT_EQ(
      render_why(reply, at_noon()),
      "lease-2 (eval, ben) is queued. It waits for 4.0 GiB at place 1; 1.0 GiB are missing on gpu0. It was requested 2 "
      "min ago. The memory is held by lease-1 (train, ana) 8.0 GiB, firefox, pid 9 (without a lease) 200 MiB. It "
      "should start in about 5 min (lease-1 expires).\n"
      "\n"
      "What happened, oldest first:\n"
      "    2m ago  Memory: 1.0 GiB short on gpu0\n"
      "    2m ago  queued at place 1 of 1\n"
      "\n"
      "What would help:\n"
      "  - ask for at most 3.0 GiB\n");
}

TEST(Why, TheLongestWait) {
  json lease = leases["leases"][1];
  lease["queue"]["bound_seconds"] = 840;
  lease["queue"]["bound_from"] = "2 time slices of 4 min before its own";
  lease["queue"]["bound_unless"] = "a lease of a higher tier comes";
  json reply{{"lease", lease}, {"queue", lease["queue"]}};
  EXPECT_NE(render_why(reply, at_noon())
                .find("(lease-1 expires). By rule it waits 14 min at most, unless a lease of a higher tier comes "
                      "(2 time slices of 4 min before its own).\n"),
            std::string::npos);
  reply["queue"]["bound_unless"] = nullptr;
  EXPECT_NE(render_why(reply, at_noon()).find("waits 14 min at most (2 time slices"), std::string::npos);
}

TEST(Why, OtherStates) {
  const auto first_line = [&](int i) {
    const std::string text = render_why({{"lease", leases["leases"][static_cast<std::size_t>(i)]}}, at_noon());
    return text.substr(0, text.find('\n'));
  };
  EXPECT_EQ(
      first_line(0),
      "lease-1 (train, ana) is active. It has held 8.0 GiB on gpu0 for 59 min 30 s, and uses 6.0 GiB. It expires in "
      "5 min.");
  json paused_before = leases["leases"][0];
  paused_before["paused_seconds"] = 600;
  EXPECT_TRUE(render_why({{"lease", paused_before}}, at_noon())
                  .starts_with("lease-1 (train, ana) is active. It has held 8.0 GiB on gpu0 for 49 min 30 s, plus "
                               "10 min paused, and uses 6.0 GiB."));
  EXPECT_EQ(first_line(2),
            "lease-3 (web, ana) is offered. 1.0 GiB on gpu0 are reserved for it; its owner must claim them within 8 s: "
            "sublet claim "
            "lease-3");
  EXPECT_EQ(first_line(3), "lease-4 (old, ana) ended 1 d 23 h ago (released); its program's exit status was 3.");
}

// The first line that `why` says of the lease.
std::string why_of(const json& lease) {
  Look look = at_noon();
  look.device_names["GPU-2222"] = "gpu1";
  const std::string text = render_why({{"lease", lease}}, look);
  return text.substr(0, text.find('\n'));
}

TEST(Why, OneThatWaitsToGrow) {
  json lease = leases["leases"][0];
  lease["resize"] = {{"vram_bytes", 10LL << 30}, {"since", "2026-11-21T11:59:00.000Z"}};
  lease["queue"] = leases["leases"][1]["queue"];
  EXPECT_EQ(
      why_of(lease),
      "lease-1 (train, ana) is active. It has held 8.0 GiB on gpu0 for 59 min 30 s, and uses 6.0 GiB. It waits "
      "to grow to 10.0 GiB at place 1; 1.0 GiB are missing on gpu0. It was requested 1 min ago. The memory is "
      "held by lease-1 (train, ana) 8.0 GiB, firefox, pid 9 (without a lease) 200 MiB. It should have them in about "
      "5 min (lease-1 expires). It expires in 5 min.");
}

TEST(Why, OnSeveralDevicesASizeIsThatOnEach) {
  json lease = leases["leases"][0];
  lease["devices"] = {"GPU-1111", "GPU-2222"};
  lease["device_count"] = 2;
  lease["reserved_bytes"] = 16LL << 30;
  EXPECT_NE(why_of(lease).find("has held 8.0 GiB on each of gpu0 and gpu1 for 59 min 30 s, and uses 6.0 GiB in total."),
            std::string::npos);
  lease["queue"] = leases["leases"][1]["queue"];
  lease["resize"] = {{"vram_bytes", 10LL << 30}, {"since", "2026-11-21T11:59:00.000Z"}};
  EXPECT_NE(why_of(lease).find(" It waits to grow to 10.0 GiB on each of its devices at place 1;"), std::string::npos);
  lease.erase("resize");
  lease["state"] = "paused";
  lease["pause"] = {{"method", "driver"}, {"reason", "requested by its owner"}, {"since", "2026-11-21T11:59:00.000Z"}};
  EXPECT_NE(why_of(lease).find(" It waits for 8.0 GiB on each of its devices at place 1; 1.0 GiB are missing on gpu0. "
                               "The memory is held by "),
            std::string::npos);
  EXPECT_NE(why_of(lease).find(" It should resume in about 5 min"), std::string::npos);
  json queued = leases["leases"][1];
  queued["device_count"] = 2;
  EXPECT_NE(why_of(queued).find(" It waits for 4.0 GiB on each of 2 devices at place 1;"), std::string::npos);
  json offered = leases["leases"][2];
  offered["devices"] = lease["devices"];
  offered["reserved_bytes"] = 2LL << 30;
  EXPECT_NE(why_of(offered).find(" 1.0 GiB on each of gpu0 and gpu1 are reserved for it;"), std::string::npos);
}

TEST(Why, TheJobOfAnEngine) {
  json lease = leases["leases"][3];
  lease["command"] = "ray job 01000000, task step 16310a0f, namespace team, node 4f2c";
  EXPECT_EQ(why_of(lease),
            "lease-4 (old, ana) ended 1 d 23 h ago (released); its program's exit status was 3. Its work is ray job "
            "01000000, task step 16310a0f, namespace team, node 4f2c.");
  lease["command"] = "python ray job.py";
  EXPECT_EQ(why_of(lease).find("Its work"), std::string::npos);
}

}  // namespace
}  // namespace sublet::cli
