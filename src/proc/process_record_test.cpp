// SPDX-License-Identifier: Apache-2.0
// Records about processes: texts that a hostile process chose, units, and ancestors in torn tables.
#include "proc/process_record.h"

#include "proc/test_support.h"

#include <fmt/format.h>

#include <sys/prctl.h>

namespace sublet::proc {
namespace {

// A process in a test tree.
struct Fake {
  std::int32_t pid = 100;
  std::int32_t ppid = 1;
  std::uint64_t start = 1000;
  std::string comm = "train";
  std::string cgroup = "0::/user.slice/user-1000.slice/session-3.scope\n";
  std::string command = std::string("python\0train.py\0", 16);
};

struct Tree {
  void add(const Fake& fake) const {
    const std::string at = fmt::format("proc/{}/", fake.pid);
    dir.write(at + "stat", fmt::format("{} ({}) S {} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0\n", fake.pid, fake.comm,
                                       fake.ppid, fake.start));
    dir.write(at + "status", "Name:\tx\nUid:\t1000\t0\t0\t0\n");
    dir.write(at + "cgroup", fake.cgroup);
    dir.write(at + "cmdline", fake.command);
  }
  Result<ProcessRecord> describe(std::int32_t pid = 100, std::uint64_t start = 1000) const {
    return describe_process(*ProcRoot::open(dir.path("proc")), {pid, start});
  }
  TempDir dir;
};

TEST(ProcessRecord, DescribesAProcess) {
  const Tree tree;
  tree.add({.pid = 1, .ppid = 0, .start = 1, .comm = "systemd"});
  tree.add({.pid = 50, .ppid = 1, .start = 500, .comm = "bash"});
  tree.add({.ppid = 50});
  const auto record = tree.describe();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->process, (ProcessRef{100, 1000}));
  EXPECT_EQ(record->uid, 1000u);
  EXPECT_EQ(record->name, "train");
  EXPECT_EQ(record->command, "python train.py");
  EXPECT_EQ(record->cgroup, "/user.slice/user-1000.slice/session-3.scope");
  EXPECT_EQ(record->unit, "session-3.scope");
  EXPECT_FALSE(record->system_unit);
  EXPECT_EQ(record->container, "");
  ASSERT_EQ(record->ancestry.size(), 2u);
  EXPECT_EQ(record->ancestry[0].process, (ProcessRef{50, 500}));
  EXPECT_EQ(record->ancestry[0].name, "bash");
  EXPECT_EQ(record->ancestry[1].process.pid, 1);
}

TEST(ProcessRecord, MakesHostileNamesPrintable) {
  const struct {
    const char* comm;
    const char* shown;
  } names[] = {
      {"x) Z 1 1", "x) Z 1 1"},   {"a\nb", "a\\x0ab"}, {"\x1b[2J", "\\x1b[2J"},
      {"\xff\xfe", "\\xff\\xfe"}, {"(((", "((("},      {") R 0 (", ") R 0 ("},
  };
  for (const auto& [comm, shown] : names) {
    SCOPED_TRACE(shown);
    const Tree tree;
    tree.add({.comm = comm, .command = std::string(comm) + std::string("\0", 1)});
    const auto record = tree.describe();
    ASSERT_TRUE(record);
    EXPECT_EQ(record->name, shown);
    EXPECT_EQ(record->command, shown);
    EXPECT_EQ(record->process, (ProcessRef{100, 1000}));
  }
}

TEST(ProcessRecord, BoundsLongTexts) {
  const Tree tree;
  tree.add({.comm = std::string(64, '\x01'), .command = std::string(100'000, '\n')});
  const auto record = tree.describe();
  ASSERT_TRUE(record);
  EXPECT_LE(record->name.size(), 210u);
  EXPECT_LE(record->command.size(), 4100u);
  EXPECT_EQ(record->command.find('\n'), std::string::npos);
}

TEST(ProcessRecord, ShowsTheNameOfAProcessWithoutArguments) {
  const Tree tree;
  tree.add({.cgroup = "", .command = ""});
  const auto record = tree.describe();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->command, "[train]");
  EXPECT_EQ(record->cgroup, "");
  EXPECT_EQ(record->unit, "");
  EXPECT_FALSE(record->system_unit);
}

TEST(ProcessRecord, DoesNotDescribeAnotherProcessWithTheSamePid) {
  const Tree tree;
  tree.add({.start = 1001});
  for (const auto& [pid, start] : {std::pair{100, 1000u}, {101, 1001u}, {0, 0u}, {-1, 0u}}) {
    const auto record = tree.describe(pid, start);
    ASSERT_FALSE(record);
    EXPECT_EQ(record.error().code, Code::NotFound);
  }
}

TEST(ProcessRecord, EndsTheAncestryAtALoop) {
  const Tree tree;
  tree.add({.pid = 60, .ppid = 50, .start = 500});
  tree.add({.pid = 50, .ppid = 60, .start = 500});
  tree.add({.ppid = 50});
  EXPECT_EQ(tree.describe()->ancestry.size(), 2u);
  tree.add({.ppid = 100});
  EXPECT_TRUE(tree.describe()->ancestry.empty());
}

TEST(ProcessRecord, EndsTheAncestryAtAYoungerParentAndAtAHiddenOne) {
  const Tree tree;
  tree.add({.pid = 50, .start = 1001});
  tree.add({.ppid = 50});
  EXPECT_TRUE(tree.describe()->ancestry.empty());
  tree.add({.ppid = 51});
  EXPECT_TRUE(tree.describe()->ancestry.empty());
}

TEST(ProcessRecord, BoundsALongAncestry) {
  const Tree tree;
  for (std::int32_t pid = 101; pid < 400; ++pid) tree.add({.pid = pid, .ppid = pid + 1});
  tree.add({.ppid = 101});
  EXPECT_EQ(tree.describe()->ancestry.size(), 128u);
}

TEST(ProcessRecord, ReadsTheGroupOfTheManagerWithoutAUnifiedHierarchy) {
  const Tree tree;
  tree.add({.cgroup = "4:memory:/other\n1:name=systemd:/system.slice/ssh.service\n0::/\n"});
  const auto record = tree.describe();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->cgroup, "/system.slice/ssh.service");
  EXPECT_EQ(record->unit, "ssh.service");
  EXPECT_TRUE(record->system_unit);
}

TEST(ProcessRecord, DescribesARealProcessWithAHostileName) {
  const Child child([] {
    ::prctl(PR_SET_NAME, "x) Z 1 1\n");
    return sleep_for_ever();
  });
  const auto root = *ProcRoot::open();
  const auto info = root.read(child.pid());
  ASSERT_TRUE(info);
  const auto record = describe_process(root, info->ref);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->uid, ::getuid());
  ASSERT_FALSE(record->ancestry.empty());
  EXPECT_EQ(record->ancestry[0].process.pid, ::getpid());
  EXPECT_EQ(record->name.find('\n'), std::string::npos);
}

TEST(UnitOfPath, FollowsTheServiceManagers) {
  const std::string id(64, 'a');
  const std::string longest = std::string(300, 'x') + ".service";
  const std::pair<std::string, std::string> paths[] = {
      {"", ""},
      {"/", ""},
      {"/init.scope", "init.scope"},
      {"/system.slice/ssh.service", "ssh.service"},
      {"/system.slice", ""},
      {"/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"},
      {"/user.slice/user-1000.slice/session-3.scope", "session-3.scope"},
      {"/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service", "foo.service"},
      {"/user.slice/user-1000.slice/user@1000.service", "user@1000.service"},
      {"/user.slice/user-1000.slice/user@1000.service/app.slice", "user@1000.service"},
      {"/user.slice/user-1000.slice/user@1000.service/init.scope", "init.scope"},
      {"/system.slice/docker-" + id + ".scope", "docker-" + id + ".scope"},
      {"/system.slice/docker-" + id + ".scope/system.slice/ssh.service", "docker-" + id + ".scope"},
      {"/docker/" + id, ""},
      {"/docker/" + id + "/system.slice/ssh.service", ""},
      {"/system.slice/jupyter.service/ssh.service", "jupyter.service"},
      {"/system.slice/ssh.service/sublet/lease-7", "ssh.service"},
      {"/system.slice/.service", ""},
      {"/system.slice/a b.service", ""},
      {"/system.slice/" + longest, ""},
      {"//system.slice//dev-hugepages.mount", "dev-hugepages.mount"},
  };
  for (const auto& [path, unit] : paths) EXPECT_EQ(unit_of_path(path), unit) << path;
}

TEST(SystemPath, ExcludesAllThatAUserCanMake) {
  const std::string id(64, 'a');
  const std::pair<std::string, bool> paths[] = {
      {"", false},
      {"/", true},
      {"relative", false},
      {"/../other", false},
      {"/init.scope", true},
      {"/system.slice/ssh.service", true},
      {"/system.slice/docker-" + id + ".scope", true},
      {"/docker/" + id, true},
      {"/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope", true},
      {"/user.slice/user-1000.slice/session-3.scope", false},
      {"/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service", false},
      {"/user.slice/user-1000.slice/user@1000.service/system.slice/ssh.service", false},
      {"/user@1000.service/system.slice/ssh.service", false},
      {"/user-1000.slice/x.scope", false},
      {"/user.slice", false},
  };
  for (const auto& [path, system] : paths) EXPECT_EQ(is_system_path(path), system) << path;
}

}  // namespace
}  // namespace sublet::proc
