// SPDX-License-Identifier: Apache-2.0
// Limits of processor time, on a directory that looks like the hierarchies of both versions.
#include "actor/cpu_limits.h"

#include "actor/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

namespace sublet::actor {
namespace {

struct CpuLimitsTest : ::testing::Test {
  // The groups exist, as if the kernel had made them, since a plain directory has no files by itself.
  CpuLimitsTest() {
    dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("v2") + " rw - cgroup2 none rw\n" + "31 1 0:27 / " +
                                    dir.path("v1") + " rw - cgroup none rw,cpu\n");
    for (const char* file : {"v2/unit/sublet/cgroup.subtree_control", "v2/unit/sublet/lease-7/cgroup.procs",
                             "v1/unit/sublet/lease-7/cgroup.procs"})
      dir.write(file, "");
    dir.write(fmt::format("{}/cgroup", child.pid()), "1:cpu:/unit\n0::/unit/sublet/lease-7\n");
    const auto real = *proc::ProcRoot::open();
    member = real.read(child.pid())->ref;
    dir.write(fmt::format("{}/stat", member.pid),
              fmt::format("{} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n", member.pid, member.start_ticks));
    root.emplace(std::move(*proc::ProcRoot::open(dir.path())));
    limits.emplace(*root, "sublet");
    limits->open();
    group.emplace();
    group->ref.path = dir.path("v2/unit/sublet/lease-7");
  }
  std::string read(const std::string& file) const {
    std::ifstream text(dir.path(file));
    std::string line;
    std::getline(text, line);
    return line;
  }
  std::string limit(int percent) { return limits->limit(LeaseId{7}, group, {&member, 1}, percent); }

  proc::TempDir dir;
  const proc::Child child{proc::sleep_for_ever};
  ProcessRef member;
  std::optional<proc::ProcRoot> root;
  std::optional<CpuLimits> limits;
  std::optional<proc::LeaseGroup> group;
};

TEST_F(CpuLimitsTest, UseTheLeasesGroupOfTheUnifiedHierarchy) {
  dir.write("v2/unit/sublet/lease-7/cpu.max", "max 100000");
  EXPECT_EQ(limit(25), "");
  EXPECT_EQ(read("v2/unit/sublet/lease-7/cpu.max"), "25000 100000");
  EXPECT_EQ(read("v2/unit/sublet/cgroup.subtree_control"), "+cpu");
  EXPECT_EQ(limits->lift(LeaseId{7}), "");
  EXPECT_EQ(read("v2/unit/sublet/lease-7/cpu.max").substr(0, 10), "max 100000");
  EXPECT_EQ(limits->lift(LeaseId{7}), "") << "nothing is left to lift";
}

TEST_F(CpuLimitsTest, LiftAgainWhatWasNotLifted) {
  const std::string file = dir.path("v2/unit/sublet/lease-7/cpu.max");
  dir.write("v2/unit/sublet/lease-7/cpu.max", "max 100000");
  EXPECT_EQ(limit(25), "");
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_NE(limits->lift(LeaseId{7}), "");
  std::filesystem::remove(file);
  dir.write("v2/unit/sublet/lease-7/cpu.max", "25000 100000");
  EXPECT_EQ(limits->lift(LeaseId{7}), "");
  EXPECT_EQ(read("v2/unit/sublet/lease-7/cpu.max").substr(0, 10), "max 100000");
}

TEST_F(CpuLimitsTest, MoveTheProgramToAGroupOfVersion1) {
  dir.write("v1/unit/sublet/lease-7/cpu.cfs_period_us", "");
  dir.write("v1/unit/sublet/lease-7/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(limit(10), "");
  EXPECT_EQ(read("v1/unit/sublet/lease-7/cpu.cfs_quota_us"), "10000");
  EXPECT_EQ(read("v1/unit/sublet/lease-7/cgroup.procs"), std::to_string(member.pid));
  EXPECT_EQ(limits->lift(LeaseId{7}), "");
  EXPECT_EQ(read("v1/unit/sublet/lease-7/cpu.cfs_quota_us").substr(0, 2), "-1");
}

TEST_F(CpuLimitsTest, SayWhyNothingIsLimited) {
  std::filesystem::remove_all(dir.path("v1"));
  EXPECT_EQ(limit(25),
            "cannot make the control group " + dir.path("v1/unit/sublet/lease-7") + ": No such file or directory");
  dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("v2") + " rw - cgroup2 none rw\n");
  limits->open();
  EXPECT_EQ(limit(25), "no control group there can limit processor time");
  group.reset();
  EXPECT_EQ(limit(25), "the program has no control group of its own");
}

TEST_F(CpuLimitsTest, TakeNoGroupThatAnotherUserMade) {
  NEEDS_ROOT();
  dir.write("v1/unit/sublet/lease-7/cpu.cfs_quota_us", "-1");
  ASSERT_EQ(::chown(dir.path("v1/unit/sublet").c_str(), ana, ana), 0);
  EXPECT_NE(limit(25), "");
  EXPECT_EQ(read("v1/unit/sublet/lease-7/cpu.cfs_quota_us"), "-1");
}

TEST_F(CpuLimitsTest, LiftWhatAnEarlierActorLeft) {
  dir.write("v1/unit/sublet/lease-7/cpu.cfs_quota_us", "10000");
  dir.write("v2/unit/sublet/lease-7/cpu.max", "10000 100000");
  CpuLimits next(*root, "sublet");
  next.open();
  EXPECT_EQ(read("v1/unit/sublet/lease-7/cpu.cfs_quota_us").substr(0, 2), "-1");
  EXPECT_EQ(read("v2/unit/sublet/lease-7/cpu.max").substr(0, 10), "max 100000");
}

}  // namespace
}  // namespace sublet::actor
