// SPDX-License-Identifier: Apache-2.0
// Moving processes into groups, on a directory that looks like a hierarchy.
#include "actor/groups.h"

#include "actor/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <atomic>
#include <thread>

namespace sublet::actor {
namespace {

struct Tree {
  Tree() {
    dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("groups") + " rw - cgroup2 none rw\n");
    for (const char* group : {"/session", "/session/sublet/lease-1", "/elsewhere"})
      dir.write(fmt::format("groups{}/cgroup.procs", group), "");
    root.emplace(std::move(*proc::ProcRoot::open(dir.path())));
    groups.emplace(*root, "sublet");
    groups->open();
    place.group.emplace();
    place.group->ref.path = dir.path("groups/session/sublet/lease-1");
    place.from = "/session";
  }
  void process(pid_t pid, pid_t parent, const std::string& group) {
    dir.write(fmt::format("{}/cgroup", pid), "0::" + group + "\n");
    dir.write(fmt::format("{}/stat", pid),
              fmt::format("{} (x) S {} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0\n", pid, parent));
  }
  std::string written(const std::string& group) const {
    std::ifstream file(dir.path("groups" + group + "/cgroup.procs"));
    std::string word;
    file >> word;
    return word;
  }

  proc::TempDir dir;
  std::optional<proc::ProcRoot> root;
  std::optional<Groups> groups;
  Groups::Place place;
};

TEST(Groups, TakeWhoIsStillWhereItsProgramWas) {
  Tree tree;
  const proc::Child child(proc::sleep_for_ever);
  tree.process(child.pid(), 1, "/elsewhere");
  tree.groups->follow_into(tree.place, child.pid(), pidfd_of(child.pid()).get());
  EXPECT_EQ(tree.written("/session/sublet/lease-1"), "");
  tree.process(child.pid(), 1, "/session");
  tree.groups->follow_into(tree.place, child.pid(), pidfd_of(child.pid()).get());
  EXPECT_EQ(tree.written("/session/sublet/lease-1"), std::to_string(child.pid()));
}

TEST(Groups, LetTheGroupsBesideAKeeperLimitProcessorTime) {
  Tree tree;
  tree.dir.write("groups/unit/sublet-keeper/cgroup.procs", "");
  tree.dir.write("groups/unit/cgroup.subtree_control", "");
  tree.process(::getpid(), 1, "/unit");
  enter_keeper_group(*tree.root);
  EXPECT_EQ(tree.written("/unit/sublet-keeper"), std::to_string(::getpid()));
  std::ifstream control(tree.dir.path("groups/unit/cgroup.subtree_control"));
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(control), {}), "+cpu");
}

bool sleeps(pid_t thread) {
  std::ifstream file(fmt::format("/proc/self/task/{}/stat", thread));
  std::string text;
  std::getline(file, text);
  return text.find(") S ") != std::string::npos;
}

// The process ends between the check and the write, and a foreign process gets its pid. The foreign process must return
// to the group where it was born.
TEST(Groups, GiveAStrangerBackToItsOwnGroup) {
  Tree tree;
  // Opening the FIFO for writing waits for a reader.
  const std::string procs = tree.dir.path("groups/session/sublet/lease-1/cgroup.procs");
  std::filesystem::remove(procs);
  ASSERT_EQ(::mkfifo(procs.c_str(), 0600), 0);
  tree.process(77, 1, "/elsewhere");
  std::string gone;
  // Repeated if the sleep was too long, so that the process was seen dead.
  for (bool moved = false; !moved;) {
    proc::Child child(proc::sleep_for_ever);
    const pid_t pid = child.pid();
    gone = std::to_string(pid);
    const Fd pidfd = pidfd_of(pid);
    tree.process(pid, 1, "/session");
    std::atomic<pid_t> mover = 0;
    std::thread moves([&] {
      mover = static_cast<pid_t>(::syscall(SYS_gettid));
      tree.groups->follow_into(tree.place, pid, pidfd.get());
    });
    while (mover == 0 || !sleeps(mover)) std::this_thread::yield();
    (void)proc::send_signal(pidfd.get(), SIGKILL);
    ASSERT_TRUE(ends(pidfd));
    tree.process(pid, 77, "/session/sublet/lease-1");
    const Fd reader(::open(procs.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    moves.join();
    char byte = 0;
    moved = ::read(reader.get(), &byte, 1) == 1;
  }
  EXPECT_EQ(tree.written("/session"), "");
  EXPECT_EQ(tree.written("/elsewhere"), gone);
}

}  // namespace
}  // namespace sublet::actor
