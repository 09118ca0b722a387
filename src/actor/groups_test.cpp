// SPDX-License-Identifier: Apache-2.0
// Keeping groups from swap, on a directory that looks like a hierarchy.
#include "actor/groups.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

namespace sublet::actor {
namespace {

constexpr LeaseId one{1}, two{2};

class Swap : public ::testing::Test {
 protected:
  Swap() {
    dir.write("self/mountinfo", "30 1 0:26 / " + dir.path("groups") + " rw - cgroup2 none rw\n");
    limit("/session", "max");
    process(42, "/session/sublet/lease-1", 7);
    process(43, "/session/sublet/lease-2", 7);
    auto opened = proc::ProcRoot::open(dir.path());
    EXPECT_TRUE(opened);
    root.emplace(std::move(*opened));
    fresh();
  }
  void fresh() {
    groups.emplace(*root, "sublet");
    groups->open();
  }
  void process(int pid, const std::string& group, int uid) {
    const std::string name = std::to_string(pid), user = std::to_string(uid);
    dir.write(name + "/cgroup", "0::" + group + "\n");
    dir.write(name + "/stat", name + " (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0\n");
    dir.write(name + "/status", "Name:\tx\nUid:\t" + user + "\t" + user + "\t" + user + "\t" + user + "\n");
    dir.write("groups" + group + "/cgroup.procs", name + "\n");
  }
  void limit(const std::string& group, const std::string& value) {
    dir.write("groups" + group + "/memory.swap.max", value + "\n");
  }
  std::string limit(const std::string& group) const {
    std::ifstream file(dir.path("groups" + group + "/memory.swap.max"));
    std::string word;
    file >> word;
    return word;
  }

  proc::TempDir dir;
  std::optional<proc::ProcRoot> root;
  std::optional<Groups> groups;
};

TEST_F(Swap, IsStoppedForAsLongAsAnyLeaseNeedsIt) {
  EXPECT_EQ(groups->keep_from_swap(one, 42, 7), "");
  EXPECT_EQ(limit("/session"), "0");
  EXPECT_EQ(groups->keep_from_swap(two, 43, 7), "");
  groups->let_swap(one);
  EXPECT_EQ(limit("/session"), "0") << "the other is still parked";
  groups->let_swap(one);
  groups->let_swap(two);
  EXPECT_EQ(limit("/session"), "max");
  groups->let_swap(two);
  EXPECT_EQ(limit("/session"), "max");
}

TEST_F(Swap, ALimitThatWasThereComesBackOverARestart) {
  limit("/session", "1048576");
  EXPECT_EQ(groups->keep_from_swap(one, 42, 7), "");
  fresh();  // it knows nothing, and is told again who is parked
  EXPECT_EQ(groups->keep_from_swap(one, 42, 7), "");
  EXPECT_EQ(limit("/session"), "0");
  groups->let_swap(one);
  EXPECT_EQ(limit("/session"), "1048576");
}

TEST_F(Swap, OthersAreNotKeptFromIt) {
  process(44, "/session/other", 8);
  EXPECT_NE(groups->keep_from_swap(one, 42, 7).find("pid 44"), std::string::npos);
  EXPECT_EQ(limit("/session"), "max");
  process(44, "/session/other", 0);
  EXPECT_EQ(groups->keep_from_swap(one, 42, 7), "") << "root's are there for the user's";
  groups->let_swap(one);
  limit("/session", "0");
  EXPECT_EQ(groups->keep_from_swap(one, 42, 7), "") << "it is kept already";
  groups->let_swap(one);
  EXPECT_EQ(limit("/session"), "0") << "and not by us";
}

TEST_F(Swap, WithoutALimitThereIsNothingToStop) {
  std::filesystem::remove(dir.path("groups/session/memory.swap.max"));
  EXPECT_NE(groups->keep_from_swap(one, 42, 7).find("memory.swap.max"), std::string::npos);
  EXPECT_NE(groups->keep_from_swap(one, 99, 7), "") << "it has ended";
}

}  // namespace
}  // namespace sublet::actor
