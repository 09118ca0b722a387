// SPDX-License-Identifier: Apache-2.0
#include "enforcer/budget.h"

#include "enforcer/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;

// The end of another process of ana.
Kill of(const char* program, Bytes used = GiB) {
  static std::int32_t pid = 1000;
  return {.at = noon,
          .process = {++pid, 60},
          .used = used,
          .unit = "",
          .container = "",
          .program = program,
          .parent = {},
          .uid = 1000,
          .user = "ana"};
}

std::string group_of(const std::deque<Kill>& kills, const Kill& next) {
  const auto found = find_exhausted(kills, next);
  return found ? fmt::format("{} {}", found->kills, found->group) : "";
}

TEST(Budget, BoundsTheEndsOfOneProgram) {
  std::deque<Kill> kills{of("/opt/app"), of("/opt/app")};
  EXPECT_EQ(group_of(kills, of("/opt/app")), "");
  kills.push_back(of("/opt/app"));
  EXPECT_EQ(group_of(kills, of("/opt/app")), "3 of /opt/app of user ana");
  EXPECT_EQ(group_of(kills, of("/opt/other")), "");
  Kill bobs = of("/opt/app");
  bobs.uid = 1001;
  EXPECT_EQ(group_of(kills, bobs), "");
  Kill later = of("/opt/app");
  later.at = noon + kill_window;
  EXPECT_EQ(group_of(kills, later), "") << "the hour is over";
}

TEST(Budget, BoundsAUnitWhateverItRuns) {
  std::deque<Kill> kills;
  for (const char* program : {"/a", "/b", "/c"}) {
    kills.push_back(of(program));
    kills.back().unit = "llm.service";
  }
  Kill next = of("/d");
  EXPECT_EQ(group_of(kills, next), "");
  next.unit = "llm.service";
  EXPECT_EQ(group_of(kills, next), "3 of unit llm.service of user ana");
  next.uid = 1001;
  EXPECT_EQ(group_of(kills, next), "") << "a unit that many users share is no budget of all";
}

TEST(Budget, TellsContainersApartThatRunTheSameProgram) {
  std::deque<Kill> kills;
  for (int run = 0; run < most_of_program; ++run) {
    kills.push_back(of("/usr/bin/python3.11 main.py"));
    kills.back().container = "0123456789ab";
  }
  Kill next = of("/usr/bin/python3.11 main.py");
  EXPECT_EQ(group_of(kills, next), "");
  next.container = "0123456789ab";
  EXPECT_NE(group_of(kills, next), "");
}

// A program that handles SIGTERM lives, and may get more of them.
TEST(Budget, CountsOneProcessOnce) {
  std::deque<Kill> kills{of("/opt/app")};
  const ProcessRef living = kills[0].process;
  for (int round = 1; round < most_of_program; ++round) {
    Kill again = of("/opt/app");
    again.process = living;
    again.at = noon + round * 1min;
    add_kill(kills, again);
  }
  EXPECT_EQ(kills.size(), 1u);
  EXPECT_EQ(kills[0].at, noon + 2min);
  for (int others = 1; others < most_of_program; ++others) add_kill(kills, of("/opt/app"));
  Kill again = of("/opt/app");
  EXPECT_NE(group_of(kills, again), "");
  again.process = living;
  EXPECT_EQ(group_of(kills, again), "") << "its own end does not count against it";
  again.at = noon + kill_window + 1min;
  add_kill(kills, again);
  EXPECT_EQ(kills.size(), 1u) << "the hour of the others is over";
}

// A loop that copies its program to a new path for each run.
TEST(Budget, BoundsTheChildrenOfOneParent) {
  std::deque<Kill> kills;
  Kill next;
  for (int run = 0; run <= most_of_parent; ++run) {
    next = of(fmt::format("/tmp/m.{}/app", run).c_str());
    next.parent = {400, 7};
    next.parent_name = "bash";
    if (run == most_of_parent) break;
    EXPECT_EQ(group_of(kills, next), "");
    kills.push_back(next);
  }
  EXPECT_EQ(group_of(kills, next), "5 started by bash (pid 400)");
  next.parent.start_ticks = 8;
  EXPECT_EQ(group_of(kills, next), "") << "another process with its pid";
}

TEST(Budget, BoundsTheEndsOfOneUser) {
  std::deque<Kill> kills;
  for (int run = 0; run < most_of_user; ++run) {
    EXPECT_EQ(group_of(kills, of(fmt::format("/tmp/m.{}/app", run).c_str())), "");
    kills.push_back(of(fmt::format("/tmp/m.{}/app", run).c_str()));
    kills.back().parent = {500 + run, 7};
  }
  EXPECT_EQ(group_of(kills, of("/tmp/another")), "10 of user ana");
}

TEST(Budget, OfALargeProcessIsNotSpentBySmallOnes) {
  std::deque<Kill> kills;
  for (int run = 0; run < 100; ++run) kills.push_back(of("/opt/app", 40 * MiB));
  EXPECT_EQ(group_of(kills, of("/opt/app", 1536 * MiB)), "");
  EXPECT_EQ(group_of(kills, of("/opt/app", 80 * MiB)), "3 of /opt/app of user ana");
  for (int run = 0; run < most_of_program; ++run) kills.push_back(of("/opt/app", 768 * MiB));
  EXPECT_EQ(group_of(kills, of("/opt/app", 1536 * MiB)), "3 of /opt/app of user ana") << "half of its size counts";
}

TEST(Budget, TellsTheScriptsOfAnInterpreterApart) {
  const struct {
    const char *exe, *command, *program;
  } rows[] = {
      {"/usr/bin/python3.11", "python3 train.py --seed 1", "/usr/bin/python3.11 train.py"},
      {"/usr/bin/python3.11", "python3 -u train.py", "/usr/bin/python3.11 train.py"},
      {"/usr/bin/python3.11", "python3 -m vllm.serve a", "/usr/bin/python3.11 -m vllm.serve"},
      {"/usr/bin/python3.11", "python3 -c import_x", "/usr/bin/python3.11 -c"},
      {"/usr/bin/python3.11", "python3", "/usr/bin/python3.11"},
      {"/usr/bin/python3.11", "", "/usr/bin/python3.11"},
      {"/opt/app", "app one two", "/opt/app"},
  };
  for (const auto& row : rows) EXPECT_EQ(program_of(row.exe, row.command), row.program) << row.command;
}

TEST(Budget, CountsNothingForInitAndUnknownParents) {
  Verdict verdict;
  verdict.exe = "/opt/app";
  EXPECT_EQ(kill_of(verdict, noon).parent.pid, 0);
  verdict.record.ancestry = {{{1, 1}, 0, "systemd"}};
  EXPECT_EQ(kill_of(verdict, noon).parent.pid, 0) << "it takes the children of everybody";
  verdict.record.ancestry = {{{400, 7}, 1000, "bash"}, {{1, 1}, 0, "systemd"}};
  EXPECT_EQ(kill_of(verdict, noon).parent, (ProcessRef{400, 7}));
}

}  // namespace
}  // namespace sublet::enforcer
