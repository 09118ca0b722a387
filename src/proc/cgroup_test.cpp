// SPDX-License-Identifier: Apache-2.0
#include "proc/cgroup.h"

#include "proc/test_support.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sublet::proc {
namespace {

constexpr const char* unified_alone =
    "21 26 0:20 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n"
    "30 21 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    "26 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n";

constexpr const char* two_mounts =
    "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/x,name=systemd\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
    "23 27 0:22 / /sys rw - sysfs sysfs rw\n";

TEST(Mountinfo, UnifiedAlone) {
  const auto found = parse_mountinfo(unified_alone);
  EXPECT_EQ(found.layout, CgroupLayout::v2);
  ASSERT_NE(found.v2(), nullptr);
  EXPECT_EQ(found.v2()->path, "/sys/fs/cgroup");
  EXPECT_EQ(found.v1("memory"), nullptr);
}

TEST(Mountinfo, HybridHasTheUnifiedOneBeside) {
  const auto found = parse_mountinfo(two_mounts);
  EXPECT_EQ(found.layout, CgroupLayout::hybrid);
  EXPECT_EQ(found.v2()->path, "/sys/fs/cgroup/unified");
  EXPECT_EQ(found.v1("cpuacct")->path, "/sys/fs/cgroup/cpu,cpuacct");
  EXPECT_EQ(found.v1("name=systemd")->controllers, std::vector<std::string>{"name=systemd"});
  EXPECT_EQ(found.v1("freezer"), nullptr);
}

TEST(Mountinfo, NothingOrOnlyTheOldOnes) {
  EXPECT_EQ(parse_mountinfo("").layout, CgroupLayout::none);
  EXPECT_EQ(parse_mountinfo("26 1 8:1 / / rw - ext4 /dev/sda1 rw\nnonsense\n1 2 3\n").layout, CgroupLayout::none);
  EXPECT_EQ(parse_mountinfo("35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n").layout, CgroupLayout::v1);
}

TEST(Mountinfo, CoveredMountsAreLeftOut) {
  const std::string covered = std::string(unified_alone) + "50 30 0:40 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n";
  EXPECT_EQ(parse_mountinfo(covered).layout, CgroupLayout::none);
  const std::string again = covered + "51 50 0:26 /part /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  const auto found = parse_mountinfo(again);
  ASSERT_EQ(found.mounts.size(), 1u);
  EXPECT_EQ(found.v2()->root, "/part");
  const std::string above = std::string(unified_alone) + "50 21 0:40 / /sys ro - tmpfs tmpfs ro\n";
  EXPECT_EQ(parse_mountinfo(above).layout, CgroupLayout::none);
}

TEST(Mountinfo, OptionalFieldsAndEscapes) {
  const auto found = parse_mountinfo("30 1 0:26 / /my\\040groups\\134x rw a:1 b:2 c - cgroup2 none rw\n");
  ASSERT_NE(found.v2(), nullptr);
  EXPECT_EQ(found.v2()->path, "/my groups\\x");
}

TEST(ProcessCgroups, OfEachHierarchy) {
  const auto found = parse_process_cgroups(
      "12:cpu,cpuacct:/a\n3:name=systemd:/user.slice/x:y\n1:memory:/\n0::/user.slice/user-1000.slice/"
      "x:1.scope\n");
  EXPECT_EQ(found.v2, "/user.slice/user-1000.slice/x:1.scope");
  EXPECT_EQ(found.v1.at("cpuacct"), "/a");
  EXPECT_EQ(found.v1.at("name=systemd"), "/user.slice/x:y");
  EXPECT_FALSE(found.removed);
  const auto removed = parse_process_cgroups("0::/gone (deleted)\n");
  EXPECT_EQ(removed.v2, "/gone");
  EXPECT_TRUE(removed.removed);
  EXPECT_EQ(parse_process_cgroups("").v2, "");
}

TEST(ProcessCgroups, HaveADirectoryInEachHierarchyThatShowsThem) {
  const auto mounts = parse_mountinfo(two_mounts);
  const auto groups = parse_process_cgroups("12:cpu,cpuacct:/a\n3:name=systemd:/../x\n1:memory:/\n0::/b/c\n");
  EXPECT_EQ(directories_of(mounts, groups),
            (std::vector<std::string>{"/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/memory",
                                      "/sys/fs/cgroup/unified/b/c"}));
  EXPECT_TRUE(directories_of(mounts, parse_process_cgroups("")).empty());
  EXPECT_TRUE(directories_of(mounts, parse_process_cgroups("0::/b/c (deleted)\n")).empty()) << "that of another group";
}

TEST(MountedHierarchies, AreReadAgainAfterAMount) {
  const TempDir top;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto root = ProcRoot::open();
    MountedHierarchies mounted;
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) ::_exit(2);
    const Hierarchies* before = mounted.now(*root);
    if (before == nullptr || before != mounted.now(*root)) ::_exit(1);
    const std::size_t count = before->mounts.size();
    if (::mount("none", top.path().c_str(), "cgroup2", 0, nullptr) != 0) ::_exit(2);
    ::_exit(mounted.now(*root)->mounts.size() == count + 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "may not mount";
  EXPECT_EQ(status, 0);
}

TEST(ProcessesBelow, WalksTheTreeAndOrders) {
  const TempDir tree;
  tree.write("g/cgroup.procs", "30\n20\n");
  tree.write("g/a/cgroup.procs", "");
  tree.write("g/a/b/cgroup.procs", "7\n0\n0\n20\nrubbish\n");
  tree.write("other/cgroup.procs", "99\n");
  const auto found = processes_below(tree.path("g"));
  ASSERT_TRUE(found) << found.error().detail;
  EXPECT_EQ(found->pids, (std::vector<std::int32_t>{7, 20, 30}));
  EXPECT_EQ(found->outside, 2);
  EXPECT_EQ(processes_below(tree.path("none")).error().code, Code::NotFound);
}

TEST(ProcessesBelow, DepthIsBounded) {
  const TempDir tree;
  std::string path = "d";
  for (int i = 0; i < 40; ++i) path += "/d";
  tree.write(path + "/cgroup.procs", "1\n");
  EXPECT_EQ(processes_below(tree.path("d")).error().code, Code::Unavailable);
}

TEST(CheckCgroup, RefusesWhatIsNoGroup) {
  const auto root = ProcRoot::open();
  const auto found = find_hierarchies(*root);
  ASSERT_TRUE(found);
  const TempDir dir;
  dir.write("file", "");
  for (const std::string& path :
       {std::string(), std::string("relative/path"), dir.path(), dir.path("file"), dir.path("missing"),
        std::string("/sys/fs"), std::string(5000, '/'), std::string("/\0/x", 4)}) {
    const auto checked = check_cgroup(*found, path);
    ASSERT_FALSE(checked) << path;
    EXPECT_EQ(checked.error().code, Code::BadRequest) << path;
    EXPECT_FALSE(checked.error().hint.empty());
  }
  for (const CgroupMount& mount : found->mounts) {
    EXPECT_FALSE(check_cgroup(*found, mount.path)) << "the root of " << mount.path;
  }
}

TEST(GroupDirectory, AGroupThatIsNotThereYetHasItsPlaceInAHierarchy) {
  const auto root = ProcRoot::open();
  const auto found = find_hierarchies(*root);
  ASSERT_TRUE(found);
  for (const std::string& path : {std::string(), std::string("relative"), std::string("/"), std::string("/a/../b"),
                                  std::string("/a//b"), std::string(5000, 'x'), std::string("/\0/x", 4)})
    EXPECT_FALSE(group_directory(*found, path)) << path;
  if (found->mounts.empty()) GTEST_SKIP() << "no cgroup hierarchy here";
  for (const CgroupMount& mount : found->mounts) {
    EXPECT_FALSE(group_directory(*found, mount.path)) << "the root holds every process";
    if (mount.root != "/") continue;
    EXPECT_EQ(*group_directory(*found, mount.path + "/no-such-job/"), mount.path + "/no-such-job");
  }
  if (found->mounts[0].root != "/") return;
  EXPECT_TRUE(group_directory(*found, "/no-such-job")->ends_with("/no-such-job"));
}

TEST(LookAtGroup, ADirectoryThatIsGoneIsNoErrorAndAnotherDirectoryIs) {
  const TempDir dir;
  EXPECT_EQ(look_at_group(dir.path("none"))->inode, 0U);
  EXPECT_FALSE(look_at_group(dir.path())) << "no control group";
}

TEST(CheckCgroup, HoldsAGroupOfThisMachineByItsInode) {
  const auto root = ProcRoot::open();
  const auto found = find_hierarchies(*root);
  ASSERT_TRUE(found);
  if (found->v2() == nullptr) GTEST_SKIP() << "no unified cgroup hierarchy here";
  const std::string path = found->v2()->path + "/sublet-test-" + std::to_string(::getpid());
  if (::mkdir(path.c_str(), 0755) != 0) GTEST_SKIP() << "may not make a cgroup in " << found->v2()->path;
  Child child(sleep_for_ever);
  std::ofstream(path + "/cgroup.procs") << child.pid();
  const TempDir dir;
  std::filesystem::create_symlink(path, dir.path("link"));
  const auto group = check_cgroup(*found, path);
  ASSERT_TRUE(group) << group.error().detail;
  EXPECT_TRUE(group->v2);
  EXPECT_EQ(*check_cgroup(*found, dir.path("link")), *group) << "links are followed once and not kept";
  EXPECT_EQ(processes_in(*group)->pids, std::vector<std::int32_t>{child.pid()});
  const auto own = cgroups_of(*root, child.pid());
  ASSERT_TRUE(own);
  EXPECT_TRUE(own->v2.ends_with("/sublet-test-" + std::to_string(::getpid()))) << own->v2;
  EXPECT_TRUE(look_at_group(path)->populated);
  EXPECT_EQ(look_at_group(path)->inode, group->inode);
  ASSERT_EQ(::mkdir((path + "/empty").c_str(), 0755), 0);
  EXPECT_FALSE(look_at_group(path + "/empty")->populated);
  EXPECT_TRUE(look_at_group(path + "/empty")->certain) << "version 2 tells it";
  ASSERT_EQ(::rmdir((path + "/empty").c_str()), 0);
  ::kill(child.pid(), SIGKILL);
  child.reap();
  // The kernel empties a group a moment after its last process was reaped.
  while (::rmdir(path.c_str()) != 0 && errno == EBUSY) {
  }
  EXPECT_EQ(processes_in(*group).error().code, Code::NotFound);
  ASSERT_EQ(::mkdir(path.c_str(), 0755), 0);
  EXPECT_EQ(processes_in(*group).error().code, Code::NotFound) << "a new group of the old name";
  ::rmdir(path.c_str());
}

}  // namespace
}  // namespace sublet::proc
