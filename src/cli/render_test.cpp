// SPDX-License-Identifier: Apache-2.0
// The rendered text of literal replies of the API.
#include "cli/render_test.h"

#include "cli/checks.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(Ps, ShowsLeasesWithWhatTheirStateDoesNotTell) {
  EXPECT_EQ(
      *render_leases(leases, Common{}, at_noon()),
      "ID       NAME   TAG  USER  STATE    TIER         PRIO  GPU              VRAM     USED  AGE  REASON\n"
      "lease-1  train  -    ana   active   standard        0  gpu0          8.0 GiB  6.0 GiB   1h  expires in 5m\n"
      "lease-2  eval   e    ben   queued   batch          -5  -             4.0 GiB      0 B   2m  place 1, 1.0 GiB "
      "short on gpu0; starts in about 5 min\n"
      "lease-3  web    -    ana   offered  interactive    10  gpu0          1.0 GiB      0 B   1m  to be claimed "
      "within 8s: sublet claim lease-3\n"
      "lease-4  old    -    ana   ended    standard        0  GPU-2222-333  1.0 GiB      0 B   2d  released, exit "
      "status 3\n");
}

TEST(Ps, OnANarrowTerminalTheReasonIsReadWhole) {
  json two = {{"leases", {leases["leases"][0], leases["leases"][1]}}};
  two["leases"][0]["consumer"] = "a-very-long-name-of-a-program";
  two["leases"][0]["expires_at"] = nullptr;
  two["leases"][1]["tier"] = "standard";
  two["leases"][1]["priority"] = 0;
  Look look = at_noon();
  look.width = 80;
  EXPECT_EQ(*render_leases(two, Common{}, look),
            "ID       NAME          TAG  USER  STATE   GPU      VRAM     USED  AGE\n"
            "lease-1  a-very-long…  -    ana   active  gpu0  8.0 GiB  6.0 GiB   1h\n"
            "lease-2  eval          e    ben   queued  -     4.0 GiB      0 B   2m\n"
            "    place 1, 1.0 GiB short on gpu0; starts in about 5 min\n");
  look.width = 40;
  const char* lines = "    place 1, 1.0 GiB short on gpu0;\n    starts in about 5 min\n";
  EXPECT_NE(render_leases(two, Common{}, look)->find(lines), std::string::npos);
  look.width = 200;
  EXPECT_NE(render_leases(two, Common{}, look)->find("TIER"), std::string::npos);
  two["leases"][1]["tag"] = nullptr;
  EXPECT_EQ(render_leases(two, Common{}, look)->find("TAG"), std::string::npos);
}

TEST(Ps, NothingIsWiderThanTheTerminal) {
  for (std::size_t width = 1; width < 130; ++width) {
    Look look = at_noon();
    look.width = width;
    const std::string table = *render_leases(leases, Common{}, look);
    for (std::size_t at = 0; at < table.size(); at = table.find('\n', at) + 1)
      EXPECT_LE(display_width(table.substr(at, table.find('\n', at) - at)), width) << table;
  }
}

TEST(Ps, SaysWhoUsesMoreThanItLeased) {
  json lease = leases["leases"][0];
  lease["over_bytes"] = 1395864371;
  Common common;
  common.columns = {"reason"};
  EXPECT_EQ(*render_leases({{"leases", {lease}}}, common, at_noon()), "REASON\nuses 1.3 GiB more than it leased\n");
}

TEST(Ps, SaysThatAProgramIsStopped) {
  json lease = leases["leases"][0];
  lease["stopped_since"] = "2026-11-21T11:55:00.000Z";
  lease["stopped_by"] = "signal";
  Common common;
  common.columns = {"reason"};
  EXPECT_EQ(*render_leases({{"leases", {lease}}}, common, at_noon()), "REASON\nstopped for 5 min by a signal\n");
  EXPECT_NE(render_why({{"lease", lease}}, at_noon()).find(" Its program is stopped for 5 min by a signal."),
            std::string::npos);
}

TEST(Output, WrapsBetweenWordsWhereThereAreSome) {
  EXPECT_EQ(wrapped("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrapped("ab€defgh ij", 4), (std::vector<std::string>{"ab€d", "efgh", "ij"}));
  EXPECT_EQ(wrapped("", 4), std::vector<std::string>{""});
}

TEST(Ps, OtherColumns) {
  Common common;
  common.columns = {"id", "pid", "waited", "expires", "exit", "command"};
  EXPECT_EQ(*render_leases(leases, common, at_noon()),
            "ID       PID  WAITED  EXPIRES  EXIT  COMMAND\n"
            "lease-1   77     30s       5m     -  python train.py\\x1b[2J\n"
            "lease-2    -      2m        -     -  -\n"
            "lease-3    -      1m        -     -  -\n"
            "lease-4    -      1h        -     3  -\n");
}

TEST(Ps, SaysWhoParkedIt) {
  json lease = leases["leases"][0];
  lease["state"] = "paused";
  lease["parked_bytes"] = 595 << 20;
  Common common;
  common.columns = {"reason"};
  for (const auto& [method, whom] : {std::pair("driver", "the driver"), std::pair("cooperative", "the program")}) {
    lease["pause"] = {{"method", method}, {"reason", "requested by its owner"}};
    EXPECT_EQ(*render_leases({{"leases", {lease}}}, common, at_noon()),
              "REASON\n595 MiB parked: requested by its owner\n");
    EXPECT_EQ(whole_reason(lease, at_noon()), std::string("595 MiB parked by ") + whom + ": requested by its owner");
  }
}

TEST(Ps, SurvivesAReplyThatIsNone) {
  const auto rendered = [](const char* text) { return *render_leases(json::parse(text), Common{}, at_noon()); };
  EXPECT_EQ(rendered(R"({"leases": [7, null, {}, {"devices": [3], "queue": []}]})"),
            rendered(R"({"leases": [{}, {}, {}, {}]})"));
  for (const Column& column : ps_columns()) {
    EXPECT_NO_THROW(column.cell(json(), at_noon())) << column.name;
    EXPECT_NO_THROW(column.cell(json::parse(R"({"state": 3, "queue": 1, "owner": []})"), at_noon())) << column.name;
  }
}

TEST(Queue, ShowsPlaceShortageAndHolders) {
  const json queue = {{"queue", json::array({leases["leases"][1]})}};
  EXPECT_EQ(*render_queue(queue, Common{}, at_noon()),
            "PLACE  ID       NAME  TAG  USER  TIER   PRIO     VRAM    SHORT  WAITED  START  HELD BY\n"
            "    1  lease-2  eval  e    ben   batch    -5  4.0 GiB  1.0 GiB      2m    ~5m  lease-1 (train, ana) 8.0 "
            "GiB, firefox, pid 9 (without a lease) 200 MiB\n");
  Look look = at_noon();
  look.width = 80;
  EXPECT_EQ(*render_queue(queue, Common{}, look),
            "PLACE  ID       NAME  TAG  USER  TIER   PRIO     VRAM    SHORT  WAITED  START\n"
            "    1  lease-2  eval  e    ben   batch    -5  4.0 GiB  1.0 GiB      2m    ~5m\n"
            "    lease-1 (train, ana) 8.0 GiB, firefox, pid 9 (without a lease) 200 MiB\n");
  look.width = 70;
  EXPECT_EQ(render_queue(queue, Common{}, look)->find("TIER"), std::string::npos) << "left out before what is cut";
}

TEST(Queue, ShowsWhatOneWantsThatWaitsToGrow) {
  json lease = leases["leases"][1];
  lease["state"] = "active";
  lease["resize"] = {{"vram_bytes", 6LL << 30}, {"since", "2026-11-21T11:59:15.000Z"}};
  lease["granted_at"] = lease["created_at"];
  Common common;
  common.columns = {"id", "vram", "short", "waited"};
  EXPECT_EQ(*render_queue({{"queue", {lease}}}, common, at_noon()),
            "ID                  VRAM    SHORT  WAITED\n"
            "lease-2  4.0 GiB→6.0 GiB  1.0 GiB     45s\n");
}

TEST(Queue, WithoutADeviceSaysWhyInstead) {
  json lease = leases["leases"][1];
  lease["queue"] = json::parse(R"({"place": 2, "short_bytes": 4294967296, "device": null, "eta_seconds": null,
                                   "basis": "gpu1 has been gone for 5 min: lost", "holders": []})");
  EXPECT_EQ(queue_phrase(lease, at_noon()), "place 2; gpu1 has been gone for 5 min: lost");
  EXPECT_NE(render_queue({{"queue", {lease}}}, Common{}, at_noon())->find("unknown  gpu1 has been gone"),
            std::string::npos);
}

const json device = json::parse(R"json(
  {"id": "gpu0", "index": 0, "uuid": "GPU-1111", "name": "Card (simulated)", "pci_bus_id": "0000:01:00.0",
   "total_bytes": 25769803776, "driver_reserved_bytes": 536870912, "used_bytes": 7516192768, "leased_bytes": 8589934592,
   "other_bytes": 1073741824, "effective_free_bytes": 15300820992, "snapshot_age_ms": 350, "simulated": true,
   "state": "ok", "problem": null})json");

TEST(Gpus, ShowsMemory) {
  EXPECT_EQ(*render_devices({{"devices", json::array({device})}}, Common{}, at_noon()),
            "GPU   NAME                 TOTAL     USED   LEASED    OTHER      FREE  STATE   SEEN  PROBLEM\n"
            "gpu0  Card (simulated)  24.0 GiB  7.0 GiB  8.0 GiB  1.0 GiB  14.2 GiB  ok     350ms  -\n");
}

TEST(Gpus, OnANarrowTerminalTheProblemIsReadWhole) {
  json away = device;
  away["state"] = "unknown";
  away["problem"] = "the last reading is too old";
  Look look = at_noon();
  look.width = 80;
  EXPECT_EQ(*render_devices({{"devices", json::array({away})}}, Common{}, look),
            "GPU   NAME             TOTAL  USED   LEASED  OTHER  FREE  STATE     SEEN\n"
            "gpu0  Card (simul…  24.0 GiB     -  8.0 GiB      -     -  unknown  350ms\n"
            "    the last reading is too old\n");
}

TEST(Gpus, WhatIsNotKnownIsNotZero) {
  json away = device;
  away["state"] = "lost";
  Common common;
  common.columns = {"total", "used", "leased", "other", "free"};
  EXPECT_EQ(*render_devices({{"devices", json::array({away})}}, common, at_noon()),
            "   TOTAL  USED   LEASED  OTHER  FREE\n"
            "24.0 GiB     -  8.0 GiB      -     -\n");
}

TEST(Proclist, NamesThoseUnderNoLease) {
  const json list = json::parse(R"json({"processes": [
    {"pid": 42, "start_ticks": 1, "user": "ana", "uid": 1000, "command": "python train.py", "device": "GPU-1111",
     "used_bytes": 1073741824, "lease": "lease-1", "link": "owner"},
    {"pid": 7, "start_ticks": 2, "user": null, "uid": null, "command": null, "device": "GPU-1111", "used_bytes": null,
     "lease": null, "link": "none"}]})json");
  EXPECT_EQ(*render_processes(list, Common{}, at_noon()),
            "PID  USER  GPU      USED  LEASE    LINK   COMMAND\n"
            " 42  ana   gpu0  1.0 GiB  lease-1  owner  python train.py\n"
            "  7  -     gpu0        -  none     none   -\n");
}

json status_reply() {
  return {{"daemon",
           {{"version", "0.1.0"},
            {"since", "2026-11-21T10:00:00.000Z"},
            {"mode", "dir"},
            {"pid", 5},
            {"dir", "/tmp/d"},
            {"store", "ok"}}},
          {"devices", json::array({device})},
          {"leases", {{"queued", 1}, {"offered", 0}, {"active", 2}}},
          {"waiting_bytes", 4294967296},
          {"warnings", json::array()}};
}

TEST(Gpus, FreeIsNeverMoreThanCanBeHad) {
  json reply = status_reply();
  reply["devices"][0]["effective_free_bytes"] = 3'919'157'658;  // 3.65 GiB
  Common common;
  common.columns = {"free"};
  EXPECT_EQ(*render_devices(reply, common, at_noon()), "   FREE\n3.6 GiB\n");
  EXPECT_NE(render_status(reply, json(), at_noon()).find("free 3.6 GiB "), std::string::npos);
}

TEST(Status, TheWholeAtAGlance) {
  json two = leases;
  two["leases"].erase(3);
  two["leases"].erase(2);
  two["leases"].erase(1);
  EXPECT_EQ(render_status(status_reply(), two, at_noon()),
            "subletd 0.1.0 in /tmp/d, up 2 h, pid 5\n"
            "\n"
            "gpu0  Card (simulated)  24.0 GiB  (simulated)\n"
            "  [#############====xx.............................. ]\n"
            "  free 14.2 GiB   leased 8.0 GiB   used 7.0 GiB   unleased 1.0 GiB\n"
            "  # leased, used  = leased, unused  x unleased  . free  blank: driver, headroom\n"
            "\n"
            "leases: 2 active, 1 queued, 4.0 GiB requested by waiting leases\n"
            "ID       NAME   USER  STATE   TIER      PRIO  GPU      VRAM     USED  AGE  REASON\n"
            "lease-1  train  ana   active  standard     0  gpu0  8.0 GiB  6.0 GiB   1h  expires in 5m\n");
}

TEST(Status, LeasedIsWithoutWhatPausedProgramsKeep) {
  json reply = status_reply();
  reply["devices"][0]["leased_bytes"] = (2LL << 30) + (64LL << 20);
  reply["devices"][0]["residue_bytes"] = 64LL << 20;
  const std::string text = render_status(reply, json(), at_noon());
  const char* sizes = "leased 2.0 GiB   used 7.0 GiB   kept for paused programs 64.0 MiB   unleased";
  EXPECT_NE(text.find(sizes), std::string::npos) << text;
  Common common;
  common.columns = {"leased", "residue"};
  EXPECT_EQ(*render_devices(reply, common, at_noon()), " LEASED   RESIDUE\n2.0 GiB  64.0 MiB\n");
}

TEST(Status, WhatIsWrongIsLoudAndLast) {
  json reply = status_reply();
  reply["daemon"]["store"] = "failed: disk full";
  reply["devices"][0]["state"] = "unknown";
  reply["devices"][0]["snapshot_age_ms"] = 20000;
  reply["devices"][0]["problem"] = "the last reading is too old";
  reply["warnings"] = json::array(
      {{{"code", "gpu"}, {"text", "NVML hangs\n"}, {"hint", "see dmesg"}, {"since", "2026-11-21T11:59:00.000Z"}}});
  const std::string text = render_status(reply, nullptr, at_noon());
  EXPECT_NE(text.find("! store failed: disk full\n"), std::string::npos) << text;
  EXPECT_NE(text.find("UNKNOWN, last read 20s ago\n  the last reading is too old\n"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("! gpu: NVML hangs\\x0a (for 1m)\n  hint: see dmesg\n")) << text;
}

TEST(Status, EveryPartMayBeMissing) {
  for (const json& reply : {json(), json::object(), json{{"daemon", 3}, {"devices", {json(), json::object()}}}}) {
    EXPECT_NO_THROW(render_status(reply, json(), at_noon()));
  }
}

TEST(Doctor, JudgesTheDaemonsWords) {
  json reply = status_reply();
  reply["daemon"]["version"] = "0.0.9";
  reply["daemon"]["store"] = "failed: disk full";
  reply["devices"][0]["state"] = "lost";
  const Checks checks = judge_status(reply, "0.1.0");
  EXPECT_EQ(render_checks(checks, Look{}),
            "warn  the daemon has version 0.0.9, this command line 0.1.0\n"
            "      hint: restart the daemon after an upgrade\n"
            "fail  the daemon's store: failed: disk full\n"
            "      hint: no lease is granted until the store works; the daemon's log says what failed\n"
            "fail  gpu0 Card (simulated), 24.0 GiB (simulated) [lost]: no lease is granted on it\n"
            "      hint: look for Xid messages in the kernel's log\n"
            "2 failures, 1 warning\n");
  EXPECT_EQ(checks_json(checks)["failures"], 2);
}

TEST(Doctor, AllIsWell) {
  EXPECT_EQ(failures(judge_status(status_reply(), "0.1.0")), 0);
  EXPECT_EQ(failures(judge_status(json::object(), "0.1.0")), 2);  // no store, no device: not well
}

TEST(Doctor, SaysWhoseProgramsCanBeParked) {
  json actor{{"ready", true}, {"socket", "/run/a.sock"}, {"uid", 0}, {"signals_others", true}, {"groups", "/g"}};
  const auto said = [&](const char* mode, bool others, bool roots) {
    json reply = status_reply();
    reply["daemon"]["mode"] = mode;
    actor["parks_others"] = others;
    actor["parks_roots"] = roots;
    reply["daemon"]["actor"] = actor;
    for (const Check& check : judge_status(reply, "0.1.0")) {
      if (check.name == "parking") return check;
    }
    return Check{};
  };
  EXPECT_EQ(said("system", true, true).level, Check::Level::ok);
  EXPECT_EQ(said("system", true, false).level, Check::Level::note);
  EXPECT_NE(said("system", true, false).hint.find("CapabilityBoundingSet"), std::string::npos);
  EXPECT_EQ(said("system", false, false).level, Check::Level::warn);
  EXPECT_NE(said("system", false, false).hint.find("try-restart sublet-actor.service"), std::string::npos);
  EXPECT_EQ(said("dir", false, false).level, Check::Level::warn) << "it is the actor that parks, wherever it listens";
  actor["uid"] = 1000;
  EXPECT_NE(said("dir", false, false).text.find("uid 1000, not as root"), std::string::npos);
  actor["ready"] = false;
  actor["uid"] = nullptr;
  EXPECT_NE(said("system", false, false).text.find("the actor, which starts the parking helpers, does not run"),
            std::string::npos);
  EXPECT_NE(said("system", false, false).hint.find("sublet-actor.socket"), std::string::npos);
  actor["socket"] = nullptr;
  EXPECT_NE(said("system", false, false).hint.find("the daemon retries"), std::string::npos);
  EXPECT_EQ(said("dir", false, false).level, Check::Level::ok) << "its own user's are all there are";
}

TEST(Doctor, JudgesWhatTheDriverCan) {
  const Check can = judge_support(R"({"supported": true, "version": 13000, "library": "/l", "problem": ""})", 0);
  EXPECT_EQ(can.level, Check::Level::ok);
  EXPECT_EQ(can.text, "the driver can park programs (CUDA 13.0, /l)");
  const Check cannot = judge_support(R"({"supported": false, "version": 0, "library": "", "problem": "too old"})", 1);
  EXPECT_EQ(cannot.level, Check::Level::warn);
  EXPECT_EQ(cannot.text, "the driver cannot park programs: too old");
  EXPECT_EQ(judge_support("Segmentation fault", 139).level, Check::Level::warn);
  EXPECT_EQ(judge_support("{}", 0).level, Check::Level::warn);
}

TEST(Doctor, JudgesThePtraceScope) {
  EXPECT_EQ(judge_ptrace_scope("0\n").level, Check::Level::ok);
  EXPECT_EQ(judge_ptrace_scope("").level, Check::Level::ok);
  for (const char* scope : {"1\n", "2\n", "3\n"}) {
    EXPECT_EQ(judge_ptrace_scope(scope).level, Check::Level::note);
    EXPECT_NE(judge_ptrace_scope(scope).text.find(std::string("scope ") + scope[0]), std::string::npos);
  }
}

TEST(Doctor, JudgesTheSnapshot) {
  EXPECT_EQ(judge_snapshot("", 1).at(0).level, Check::Level::fail);
  EXPECT_EQ(judge_snapshot(R"({"problem": "no library", "devices": []})", 0).at(0).text, "NVML: no library");
  EXPECT_EQ(judge_snapshot(R"({"devices": []})", 0).at(0).level, Check::Level::fail);
  const Checks blind = judge_snapshot(R"({"devices": [{"name": "x", "used_bytes": 7, "total_bytes": 10}]})", 0);
  EXPECT_EQ(blind.at(1).level, Check::Level::warn);
  EXPECT_EQ(blind.at(1).text, "x: 7 B of 10 B are used, but the driver lists no process");
  const Checks simulated =
      judge_snapshot(R"({"devices": [{"name": "x", "simulated": true}], "driver_version": "1", "library": "/l"})", 0);
  EXPECT_EQ(simulated.at(0).level, Check::Level::note);
  EXPECT_EQ(simulated.at(0).text, "NVML sees 1 device, driver 1, by /l: SIMULATED, not a real GPU");
  const Checks hangs = judge_snapshot(R"({"devices": [{"name": "x"}], "driver_version": "595.71.05"})", 0);
  EXPECT_EQ(hangs.at(1).level, Check::Level::warn);
  EXPECT_EQ(hangs.at(1).text, "driver 595.71.05 has a known fault: ending a restored process can hang the whole host");
  EXPECT_EQ(judge_snapshot(R"({"devices": [{"name": "x"}], "driver_version": "580.159.04"})", 0).size(), 1U);
}

const json room = json::parse(R"json({"found": true, "why_not": "", "devices": ["GPU-1111"], "in_progress": false,
  "pause_ms": 6300, "cost_ms": 69000, "short_bytes": 0, "ineligible": [], "victims": [
  {"lease": "lease-1", "consumer": "train", "user": "ana", "tier": "batch", "method": "driver", "bytes": 6442450944,
   "freed_bytes": 8589934592, "pause_ms": 6300, "pause_p95_ms": 61000, "resume_ms": 850, "cost_ms": 7150,
   "samples": 3},
  {"lease": "lease-2", "consumer": "eval", "user": "ben", "tier": "spot", "method": "end", "bytes": 0,
   "freed_bytes": 1073741824, "pause_ms": 0, "pause_p95_ms": 0, "resume_ms": 0, "cost_ms": 61000,
   "samples": 0}]})json");

TEST(Room, SaysWhoYieldsForHowLongAndAtWhatCost) {
  EXPECT_EQ(*render_preview(room, Common{}, at_noon()),
            "LEASE    CONSUMER  USER  TIER   HOW       FREES    MOVES  PAUSE  AT MOST   BACK  KNOWN FROM\n"
            "lease-1  train     ana   batch  driver  8.0 GiB  6.0 GiB   6.3s       1m  850ms  3 earlier pauses\n"
            "lease-2  eval      ben   spot   ended   1.0 GiB        -      -        -      -  cannot be paused\n"
            "The memory is free on gpu0 after about 6.3s, and once the victims that cannot be paused have ended; "
            "pauses and resumes take 7.2s in total for the other victims.\n");
  json dearer = room;
  dearer["victims"].erase(1);
  for (const auto& [key, value] : {std::pair("cost_ms", 47150), {"penalty_ms", 40000}, {"tried", 4}, {"failed", 4}})
    dearer["victims"][0][key] = value;
  EXPECT_TRUE(render_preview(dearer, Common{}, at_noon())
                  ->ends_with("The memory is free on gpu0 after about 6.3s; pauses and resumes take 7.2s in total.\n"
                              "lease-1 counts as 40.0s more expensive: 4 of its last 4 pauses failed.\n"))
      << *render_preview(dearer, Common{}, at_noon());
  json spot = room;
  spot["victims"].erase(0);
  EXPECT_TRUE(
      render_preview(spot, Common{}, at_noon())->ends_with("The memory is free on gpu0 once the victim has ended.\n"));
  json nobody = room;
  nobody["victims"] = json::array();
  EXPECT_EQ(*render_preview(nobody, Common{}, at_noon()),
            "No lease has to be paused: memory is free, or becomes free without a pause.\n");
  nobody["in_progress"] = true;
  EXPECT_EQ(*render_preview(nobody, Common{}, at_noon()),
            "Victims are being paused already: no other lease has to be.\n");
}

const json no_room = json::parse(R"json({"found": false, "why_not": "nobody on gpu0 may be asked to yield",
  "devices": ["GPU-1111"], "short_bytes": 1073741824, "victims": [], "ineligible": [
  {"lease": "lease-1", "why": "it is pinned: it was started with --pausable no"}]})json");

TEST(Room, SaysWhyThereIsNone) {
  EXPECT_EQ(*render_preview(no_room, Common{}, at_noon()),
            "Memory cannot be freed on gpu0: nobody on gpu0 may be asked to yield; 1.0 GiB would be missing.\n"
            "  lease-1 is no victim: it is pinned: it was started with --pausable no\n");
  EXPECT_EQ(render_preview(json{}, Common{}, at_noon())->substr(0, 16), "Memory cannot be");
}

TEST(DryRun, SaysWhatWouldCome) {
  json reply{{"would", "start"}, {"devices", {"GPU-1111"}}, {"vram_bytes", 1 << 30}, {"queue", nullptr}};
  EXPECT_EQ(*render_dry_run(reply, Common{}, at_noon()), "The lease would start at once, with 1.0 GiB on gpu0.\n");
  reply["would"] = "preempt";
  reply["preemption"] = room;
  EXPECT_TRUE(
      render_dry_run(reply, Common{}, at_noon())
          ->starts_with("The lease would start with 1.0 GiB on gpu0, once these victims are paused or ended:\n"));
  reply["would"] = "wait";
  reply["queue"] = leases["leases"][1]["queue"];
  reply["preemption"] = no_room;
  EXPECT_EQ(*render_dry_run(reply, Common{}, at_noon()),
            "The lease would wait: place 1, 1.0 GiB short on gpu0; starts in about 5 min.\n"
            "The estimate: lease-1 expires.\n"
            "The memory is held by lease-1 (train, ana) 8.0 GiB, firefox, pid 9 (without a lease) 200 MiB.\n"
            "No lease is paused: nobody on gpu0 may be asked to yield.\n"
            "  lease-1 is no victim: it is pinned: it was started with --pausable no\n");
}

TEST(DryRun, NamesTheWayOutWhereUnleasedProcessesHoldTheMemory) {
  json reply{{"would", "wait"}, {"devices", json::array()}, {"vram_bytes", 3'919'157'658}, {"preemption", no_room}};
  reply["queue"] = leases["leases"][1]["queue"];
  reply["queue"]["free_bytes"] = 3'919'157'658 - (1LL << 30);
  reply["queue"]["unleased_bytes"] = 1LL << 30;
  EXPECT_NE(render_dry_run(reply, Common{}, at_noon())
                ->find("Unleased processes are in the way: --vram 2.6GiB or less would fit now"),
            std::string::npos);
}

// Free memory and the lease that takes all of it are the same figure.
TEST(DryRun, RoundsTheSizeOfTheLeaseDown) {
  const json reply{{"would", "start"}, {"devices", {"GPU-1111"}}, {"vram_bytes", 3'919'157'658}, {"queue", nullptr}};
  EXPECT_EQ(*render_dry_run(reply, Common{}, at_noon()), "The lease would start at once, with 3.6 GiB on gpu0.\n");
}

TEST(Consumers, ShowsWhatPausesTake) {
  json reply = json::parse(R"json({"consumers": [
    {"consumer": "eval", "user": "ana", "runs": 0, "peak_used_bytes": 0, "median_run_seconds": null, "moves": []},
    {"consumer": "train", "user": "ana", "runs": 3, "peak_used_bytes": 8589934592, "median_run_seconds": 7300,
     "moves": [
      {"method": "driver", "move": "pause", "samples": 5, "fixed_ms": 800, "bytes_per_second": 2147483648,
       "spread_ratio": 0.125},
      {"method": "driver", "move": "settle", "samples": 5, "fixed_ms": 40, "bytes_per_second": null,
       "spread_ratio": 0.5}]}],
    "devices": [
      {"uuid": "GPU-8f1c", "id": "gpu0", "moves": [
        {"method": "driver", "move": "pause", "samples": 4, "fixed_ms": 800, "bytes_per_second": 4294967296,
         "spread_ratio": 0.25}]},
      {"uuid": "GPU-9a2d", "id": null, "moves": [
        {"method": "driver", "move": "pause", "samples": 1, "fixed_ms": 800, "bytes_per_second": 1073741824,
         "spread_ratio": 0.25}]}],
    "moves": [
      {"method": "driver", "move": "pause", "samples": 5, "fixed_ms": 800, "bytes_per_second": 2147483648,
       "spread_ratio": 0.5}]})json");
  EXPECT_EQ(*render_consumers(reply, Common{}, at_noon()),
            "CONSUMER           RUNS  MEDIAN     PEAK  METHOD  PAUSES  PAUSE              SETTLE  RESUME  SPREAD\n"
            "eval                  0       -      0 B  -            -  -                  -       -            -\n"
            "train                 3      2h  8.0 GiB  driver       5  800ms + 2.0 GiB/s  40ms    -         12 %\n"
            "(all on gpu0)         -       -        -  driver       4  800ms + 4.0 GiB/s  -       -         25 %\n"
            "(all on GPU-9a2d)     -       -        -  driver       1  800ms + 1.0 GiB/s  -       -         25 %\n"
            "(all)                 -       -        -  driver       5  800ms + 2.0 GiB/s  -       -         50 %\n");
  // A consumer whose pauses were all undone has no durations.
  reply["consumers"][0]["pauses"] = json::parse(
      R"json([{"method": "driver", "tried": 2, "failed": 2, "penalty_ms": 20000, "reliability_ratio": 0.333}])json");
  const std::string failed = *render_consumers(reply, Common{}, at_noon());
  EXPECT_TRUE(failed.starts_with(
      "CONSUMER           RUNS  MEDIAN     PEAK  METHOD  PAUSES  PAUSE              SETTLE  RESUME  SPREAD  FAILED"
      "  PENALTY\n"
      "eval                  0       -      0 B  driver       -  -                  -       -            -  2 of 2"
      "    20.0s\n"))
      << failed;
  reply["consumers"][0]["user"] = "ben";
  EXPECT_TRUE(render_consumers(reply, Common{}, at_noon())->starts_with("CONSUMER           USER  RUNS"));
}

}  // namespace
}  // namespace sublet::cli
