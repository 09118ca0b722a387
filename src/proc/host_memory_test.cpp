// SPDX-License-Identifier: Apache-2.0
#include "proc/host_memory.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sublet::proc {
namespace {

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
  EXPECT_EQ(host_figures(*root, 42).headroom, Bytes{700000});
  EXPECT_TRUE(host_figures(*root, 42).may_swap);
  write("groups/a/b/memory.max", "250000\n");
  write("groups/a/b/memory.swap.max", "0\n");
  EXPECT_EQ(host_figures(*root, 42).headroom, Bytes{50000});
  EXPECT_FALSE(host_figures(*root, 42).may_swap);
  write("groups/a/memory.current", "1200000\n");
  EXPECT_EQ(host_figures(*root, 42).headroom, Bytes{}) << "over its limit already";
}

TEST(HostMemory, OfThisMachine) {
  const auto root = ProcRoot::open();
  ASSERT_TRUE(root);
  const HostFigures figures = host_figures(*root, ::getpid());
  EXPECT_GT(figures.available, 16 * MiB);
  if (figures.headroom) { EXPECT_GE(*figures.headroom, Bytes{}); }
  EXPECT_GT(host_figures(*root, 0).available, Bytes{}) << "of no process: the machine's figures are told all the same";
}

}  // namespace
}  // namespace sublet::proc
