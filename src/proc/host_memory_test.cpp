// SPDX-License-Identifier: Apache-2.0
#include "proc/host_memory.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

namespace sublet::proc {
namespace {

HostFigures of(const ProcRoot& root, std::vector<std::int32_t> pids, std::optional<SwapStopper> by = {}) {
  return host_figures(root, pids, by);
}

TEST(HostMemory, ReadsMeminfo) {
  const Meminfo meminfo = parse_meminfo("MemTotal:  100 kB\nMemAvailable:   2048 kB\nSwapTotal:      16 kB\n");
  EXPECT_EQ(meminfo.available, 2 * MiB);
  EXPECT_EQ(meminfo.swap, 16 * KiB);
  EXPECT_EQ(parse_meminfo("XMemAvailable: 7 kB\n").available, Bytes{});
  EXPECT_EQ(parse_meminfo("MemAvailable:\n").available, Bytes{});
  EXPECT_EQ(parse_meminfo("").swap, Bytes{});
}

TEST(HostMemory, TheTightestGroupAboveDecides) {
  TempDir dir;
  const std::string groups = dir.path() + "/groups";
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir.path() + "/" + name).parent_path());
    std::ofstream(dir.path() + "/" + name) << text;
  };
  write("meminfo", "MemAvailable: 1024 kB\nSwapTotal: 1 kB\n");
  write("self/mountinfo", "30 1 0:26 / " + groups + " rw - cgroup2 none rw\n");
  write("42/cgroup", "0::/a/b\n");
  write("groups/a/memory.max", "1000000\n");
  write("groups/a/memory.current", "300000\n");
  write("groups/a/b/memory.max", "max\n");
  write("groups/a/b/memory.current", "200000\n");
  const auto root = ProcRoot::open(dir.path());
  ASSERT_TRUE(root);
  EXPECT_EQ(of(*root, {42}).headroom, Bytes{700000});
  EXPECT_TRUE(of(*root, {42}).may_swap);
  write("groups/a/b/memory.max", "250000\n");
  write("groups/a/b/memory.swap.max", "0\n");
  EXPECT_EQ(of(*root, {42}).headroom, Bytes{50000});
  EXPECT_FALSE(of(*root, {42}).may_swap);
  write("groups/a/memory.current", "1200000\n");
  EXPECT_EQ(of(*root, {42}).headroom, Bytes{}) << "over its limit already";
}

TEST(HostMemory, PressureIsThatOfTheMachineOrOfAGroupWhereItIsMost) {
  EXPECT_EQ(parse_pressure("some avg10=9.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=12.50 avg60=0.00 total=1\n"),
            0.125);
  EXPECT_EQ(parse_pressure("some avg10=9.00 avg60=0.00\n"), std::nullopt);
  EXPECT_EQ(parse_pressure("full avg10=x\n"), std::nullopt);
  EXPECT_EQ(parse_pressure("full avg10=-1\n"), std::nullopt);
  EXPECT_EQ(parse_pressure("full avg10=1e9\n"), std::nullopt);
  TempDir dir;
  dir.write("meminfo", "MemAvailable: 1024 kB\nSwapTotal: 0 kB\n");
  dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("groups") + " rw - cgroup2 none rw\n");
  dir.write("42/cgroup", "0::/a\n");
  const auto root = ProcRoot::open(dir.path());
  ASSERT_TRUE(root);
  EXPECT_EQ(of(*root, {42}).pressure, std::nullopt) << "the kernel does not tell";
  dir.write("groups/a/memory.pressure", "full avg10=30.00 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(of(*root, {42}).pressure, 0.3);
  dir.write("pressure/memory", "full avg10=5.00 avg60=0.00 avg300=0.00 total=1\n");
  EXPECT_EQ(of(*root, {42}).pressure, 0.3);
  EXPECT_EQ(of(*root, {}).pressure, 0.05) << "of no process: the machine's";
}

// The processes of a program may be in several groups, for example in containers with their own limits.
struct Groups {
  TempDir dir;
  std::optional<ProcRoot> root;
  Groups() {
    dir.write("meminfo", "MemAvailable: 1024 kB\nSwapTotal: 1 kB\n");
    dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("groups") + " rw - cgroup2 none rw\n");
    auto opened = ProcRoot::open(dir.path());
    EXPECT_TRUE(opened);
    root.emplace(std::move(*opened));
  }
  void process(int pid, const std::string& group, int uid) {
    const std::string name = std::to_string(pid);
    dir.write(name + "/cgroup", "0::" + group + "\n");
    dir.write(name + "/stat", name + " (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0\n");
    dir.write(name + "/status", "Name:\tx\nUid:\t" + std::to_string(uid) + "\t" + std::to_string(uid) + "\t0\t0\n");
    const std::string procs = "groups" + group + "/cgroup.procs";
    std::ofstream(dir.path(procs), std::ios::app) << name << "\n";
  }
  void limit(const std::string& group, const std::string& name, const std::string& value) {
    dir.write("groups" + group + "/" + name, value + "\n");
  }
};

TEST(HostMemory, AProgramHasWhatTheTightestOfItsGroupsLeaves) {
  Groups g;
  for (const char* group : {"/wide", "/tight"}) g.limit(group, "memory.current", "100000");
  g.limit("/wide", "memory.max", "900000");
  g.limit("/tight", "memory.max", "150000");
  g.process(42, "/wide", 7);
  g.process(43, "/tight", 7);
  g.process(44, "/tight", 7);
  EXPECT_EQ(of(*g.root, {42}).headroom, Bytes{800000});
  EXPECT_EQ(of(*g.root, {42, 43, 44}).headroom, Bytes{50000});
  EXPECT_EQ(of(*g.root, {42, 99}).headroom, Bytes{800000}) << "one that has ended is charged nothing";
}

// The page cache of a program that has read its weights from files is charged to its group, up to the limit.
TEST(HostMemory, FilesThatWereReadOnceLeaveTheirRoom) {
  Groups g;
  g.limit("/read", "memory.max", "1000000");
  g.limit("/read", "memory.current", "990000");
  g.limit("/read", "memory.stat", "anon 10000\ninactive_file 700000\nactive_file 280000");
  g.process(42, "/read/deeper", 7);
  EXPECT_EQ(of(*g.root, {42}).headroom, Bytes{710000});
  g.limit("/read/deeper", "memory.max", "800000");
  g.limit("/read/deeper", "memory.current", "600000");
  g.limit("/read/deeper", "memory.stat", "anon 400000\ninactive_file 200000");
  EXPECT_EQ(of(*g.root, {42}).headroom, Bytes{400000}) << "each by its own figures";
  g.limit("/read/deeper", "memory.stat", "inactive_file 700000");
  EXPECT_EQ(of(*g.root, {42}).headroom, Bytes{710000}) << "read at different moments: never more than the limit";
}

TEST(HostMemory, OfVersion1WhatIsBelowCountsToo) {
  TempDir dir;
  dir.write("meminfo", "MemAvailable: 1024 kB\n");
  dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("groups") + " rw - cgroup none rw,memory\n");
  dir.write("42/cgroup", "5:memory:/read\n");
  dir.write("groups/read/memory.limit_in_bytes", "1000000\n");
  dir.write("groups/read/memory.usage_in_bytes", "990000\n");
  dir.write("groups/read/memory.stat", "inactive_file 1000\ntotal_cache 980000\ntotal_inactive_file 700000\n");
  const auto root = ProcRoot::open(dir.path());
  ASSERT_TRUE(root);
  EXPECT_EQ(of(*root, {42}).headroom, Bytes{710000});
}

TEST(HostMemory, IsKeptFromSwapByAnyGroupAbove) {
  Groups g;
  g.limit("/user/session", "memory.swap.max", "max");
  g.limit("/user", "memory.swap.max", "max");
  g.process(42, "/user/session/deeper", 7);
  EXPECT_TRUE(of(*g.root, {42}).may_swap);
  g.limit("/user", "memory.swap.max", "0");
  EXPECT_FALSE(of(*g.root, {42}).may_swap) << "a limit holds for all that is below it";
  g.process(43, "/elsewhere", 7);
  EXPECT_TRUE(of(*g.root, {42, 43}).may_swap) << "one of them may be";
  EXPECT_TRUE(of(*g.root, {}).may_swap) << "of the machine";
}

TEST(HostMemory, CountsAsKeptFromSwapWhereThatCanBeDone) {
  Groups g;
  g.limit("/session", "memory.swap.max", "max");
  g.process(42, "/session", 7);
  EXPECT_FALSE(of(*g.root, {42}, SwapStopper{7, true}).may_swap);
  EXPECT_TRUE(of(*g.root, {42}, SwapStopper{8, true}).may_swap) << "it is another user's";
  g.process(43, "/session", 0);
  EXPECT_FALSE(of(*g.root, {42}, SwapStopper{7, true}).may_swap) << "root's are there for the user's";
  EXPECT_FALSE(of(*g.root, {42}, SwapStopper{7, false}).may_swap) << "by ourselves: the file may be written";
  g.process(44, "/session", 9);
  EXPECT_TRUE(of(*g.root, {42}, SwapStopper{7, true}).may_swap) << "others' would be kept from swap with it";
  g.process(45, "/nothing", 7);
  EXPECT_TRUE(of(*g.root, {45}, SwapStopper{7, true}).may_swap) << "no group there has such a limit";
}

TEST(HostMemory, OfThisMachine) {
  const auto root = ProcRoot::open();
  ASSERT_TRUE(root);
  const HostFigures figures = of(*root, {::getpid()});
  EXPECT_GT(figures.available, 16 * MiB);
  if (figures.headroom) {
    EXPECT_GE(*figures.headroom, Bytes{});
  }
  EXPECT_GT(of(*root, {}).available, Bytes{}) << "of no process: the machine's figures are told all the same";
}

}  // namespace
}  // namespace sublet::proc
