// SPDX-License-Identifier: Apache-2.0
#include "cli/render_subject.h"
#include "cli/render_test.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

json program() {
  return json::parse(R"json({"tag": "serve", "user": "ana", "state": "running", "since": "2026-11-21T10:00:00.000Z",
    "why": "", "restart": "on-failure", "starts": 3, "restarts": 2, "lease": "lease-7", "lease_state": "active",
    "pid": 42, "memory_bytes": 8589934592, "soft_bytes": 4294967296, "vram_bytes": 6442450944,
    "used_bytes": 5368709120, "tier": "standard", "priority": 0, "command": "python3 serve.py",
    "directory": "/home/ana", "exit_status": null, "end_reason": null, "next_start_at": null,
    "log_path": "/var/lib/sublet/logs/1000/program-7.log", "created_at": "2026-11-21T09:00:00.000Z",
    "warning": null})json");
}

json lease() {
  return json::parse(R"json({"id": "lease-7", "state": "active", "consumer": "serve.py", "tag": "serve", "user": "ana",
    "tier": "standard", "priority": 0, "devices": ["GPU-1111"], "vram_bytes": 6442450944, "used_bytes": 5368709120,
    "granted_at": "2026-11-21T10:00:00.000Z", "created_at": "2026-11-21T09:59:00.000Z",
    "owner": {"kind": "process", "pid": 42}, "command": "python3 serve.py"})json");
}

TEST(Programs, AreATable) {
  json waiting = program();
  waiting.update(json{{"tag", "later"},
                      {"state", "backoff"},
                      {"why", "exit status 1"},
                      {"next_start_at", "2026-11-21T12:00:08.000Z"},
                      {"lease", nullptr},
                      {"lease_state", nullptr},
                      {"pid", nullptr},
                      {"used_bytes", 0},
                      {"memory_bytes", nullptr}});
  json paused = program();
  paused["lease_state"] = "paused";
  json stopping = program();
  stopping.update(json{{"stopping", true},
                       {"vram_bytes", 3919000000},  // 3.65 GiB, as in `ps`
                       {"warning", "its program uses 5.0 GiB on gpu0, more than its soft limit of 4.0 GiB"}});
  json ending = stopping;
  ending.update(json{{"lease_state", nullptr}, {"warning", nullptr}, {"why", "over its ceiling"}});
  paused["stopping"] = true;
  const json list{{"programs", {program(), waiting, paused, stopping, ending}}};
  EXPECT_EQ(*render_programs(list, Common{}, at_noon()),
            "TAG    USER  STATE                       SINCE  RESTARTS     USED     VRAM  CEILING  LEASE    PID  WHY\n"
            "serve  ana   running                        2h         2  5.0 GiB  6.0 GiB  8.0 GiB  lease-7   42  -\n"
            "later  ana   backoff                        2h         2      0 B  6.0 GiB        -  -          -  "
            "exit status 1; next start in about 8 s\n"
            "serve  ana   running (paused, stopping)     2h         2  5.0 GiB  6.0 GiB  8.0 GiB  lease-7   42  -\n"
            "serve  ana   running (stopping)             2h         2  5.0 GiB  3.6 GiB  8.0 GiB  lease-7   42  "
            "its program uses 5.0 GiB on gpu0, more than its soft limit of 4.0 GiB\n"
            "serve  ana   running (stopping)             2h         2  5.0 GiB  3.6 GiB  8.0 GiB  lease-7   42  "
            "over its ceiling\n");
}

TEST(Subject, OfAProgramIsOneScreen) {
  Subject subject;
  subject.program = program();
  subject.lease = lease();
  subject.processes = {{{"pid", 42}, {"device", "GPU-1111"}, {"used_bytes", 5368709120}}};
  subject.tree = {{42, 0, "5.0 GiB", "python3 serve.py"}, {43, 1, "", "python3 worker"}, {44, 2, "1.0 GiB", "w"}};
  subject.output = {"2026-11-21T11:59:59.000Z ready\x1b[2J"};
  EXPECT_EQ(
      render_subject(subject, at_noon()),
      "serve (ana): running for 2 h, since 2026-11-21T10:00:00.000Z\n"
      "    command  python3 serve.py\n"
      "  directory  /home/ana\n"
      "    restart  on-failure; 3 starts, 2 by the policy\n"
      "      lease  lease-7 (active), 6.0 GiB on gpu0, tier standard, priority 0\n"
      "       gpu0  [####################|####...............] 5.0 GiB used, soft limit 4.0 GiB, ceiling 8.0 GiB\n"
      "   main pid  42\n"
      "  processes  42  5.0 GiB  python3 serve.py\n"
      "             └ 43  -  python3 worker\n"
      "               └ 44  1.0 GiB  w\n"
      "        log  /var/lib/sublet/logs/1000/program-7.log\n"
      "\n"
      "2026-11-21T11:59:59.000Z ready\\x1b[2J\n");
}

TEST(Subject, OfAProgramThatDoesNotRunSaysWhy) {
  Subject subject;
  subject.program = program();
  subject.program.update(json{{"state", "backoff"},
                              {"why", "its program ended with exit status 1"},
                              {"exit_status", 1},
                              {"end_reason", "released"},
                              {"pid", nullptr},
                              {"next_start_at", "2026-11-21T12:00:08.000Z"},
                              {"warning", "cannot write the log"}});
  const std::string text = render_subject(subject, at_noon());
  EXPECT_NE(text.find("        why  its program ended with exit status 1; the next start is in about 8 s\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("   last end  exit status 1, released\n"), std::string::npos) << text;
  EXPECT_NE(text.find("    warning  cannot write the log\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("main pid"), std::string::npos) << text;
  subject.lease = leases.at("leases").at(3);
  EXPECT_EQ(render_subject(subject, at_noon()).find("status 1; "), text.find("status 1; ")) << "no end is told twice";
  EXPECT_EQ(render_subject(subject, at_noon()).find("released, exit status 3"), std::string::npos);
}

TEST(Subject, OfALeaseIsOneScreen) {
  Subject subject;
  subject.lease = lease();
  EXPECT_EQ(render_subject(subject, at_noon()),
            "lease-7 (serve, ana): active for 2 h, since 2026-11-21T10:00:00.000Z\n"
            "    command  python3 serve.py\n"
            "      lease  6.0 GiB on gpu0, tier standard, priority 0\n"
            "       gpu0  [#################################.......] 5.0 GiB used, leased 6.0 GiB\n"
            "   main pid  42\n");
  subject.lease = leases.at("leases").at(3);
  const std::string text = render_subject(subject, at_noon());
  EXPECT_NE(text.find("lease-4 (old, ana): ended for 1 d 23 h"), std::string::npos) << text;
  EXPECT_NE(text.find("exit status 3, released"), std::string::npos) << text;
}

TEST(Subject, TheBarShowsEverySmallUse) {
  EXPECT_EQ(limit_bar(0, 0, 100, 10), "[..........]");
  EXPECT_EQ(limit_bar(1, 0, 100, 10), "[#.........]");
  EXPECT_EQ(limit_bar(50, 80, 100, 10), "[#####...|.]");
  EXPECT_EQ(limit_bar(500, 100, 100, 10), "[#########|]");
  EXPECT_EQ(limit_bar(5, 5, 0, 10), "[..........]");
}

proc::ProcessInfo process(std::int32_t pid, std::int32_t parent) {
  proc::ProcessInfo info;
  info.ref.pid = pid;
  info.ppid = parent;
  info.state = 'S';
  info.threads = 1;
  return info;
}

TEST(ProcessTree, HasTheProgramAndAllThatHoldsMemory) {
  const json rows{{{"pid", 30}, {"device", "GPU-1111"}, {"used_bytes", GiB.count}, {"command", "worker"}},
                  {{"pid", 30}, {"device", "GPU-2222-3333"}, {"used_bytes", MiB.count}, {"command", "worker"}},
                  {{"pid", 99}, {"device", "GPU-1111"}, {"used_bytes", MiB.count}, {"command", nullptr}}};
  proc::ProcessInfo dead = process(31, 20);
  dead.state = 'Z';
  const auto command_of = [](std::int32_t pid) { return "p" + std::to_string(pid); };
  const auto tree =
      process_tree(10, {process(1, 0), process(10, 1), process(20, 10), process(30, 20), dead, process(99, 1)}, rows,
                   at_noon(), command_of);
  ASSERT_EQ(tree.size(), 4u);
  EXPECT_EQ(tree[0].command, "p10");
  EXPECT_EQ(tree[1].depth, 1);
  EXPECT_EQ(tree[2].command, "worker");
  EXPECT_EQ(tree[2].used, "gpu0 1.0 GiB, GPU-2222-333 1.0 MiB");
  EXPECT_EQ(tree[3].pid, 99);
  EXPECT_EQ(tree[3].depth, 0);
  EXPECT_EQ(process_tree(10, {}, rows, at_noon(), command_of).size(), 2u) << "of another machine";
}

}  // namespace
}  // namespace sublet::cli
