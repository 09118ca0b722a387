// SPDX-License-Identifier: Apache-2.0
// Keeps groups from swap, on a directory that looks like a hierarchy.
#include "actor/swap_keeper.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <sys/xattr.h>
#include <cerrno>

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
    EXPECT_EQ(keeper->let_others(), "");
  }
  // Starts a new actor.
  void fresh() {
    keeper.reset();
    records.emplace(dir.path("records"));
    keeper.emplace(*root, &*records);
    keeper->open();
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
  std::optional<Records> records;
  std::optional<SwapKeeper> keeper;
};

TEST_F(Swap, IsStoppedForAsLongAsAnyLeaseNeedsIt) {
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  EXPECT_EQ(limit("/session"), "0");
  EXPECT_EQ(keeper->keep(two, 43, 7), "");
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "0") << "the other is still parked";
  keeper->let(one);
  keeper->let(two);
  EXPECT_EQ(limit("/session"), "max");
  keeper->let(two);
  EXPECT_EQ(limit("/session"), "max");
}

TEST_F(Swap, ALimitThatWasThereComesBackOverARestart) {
  limit("/session", "1048576");
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  fresh();  // the new actor knows nothing, and is told again which processes are parked
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  EXPECT_EQ(keeper->let_others(), "");
  EXPECT_EQ(limit("/session"), "0");
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "1048576");
  EXPECT_TRUE(records->limits().empty());
}

// The program was resumed while there was no actor, or no daemon to tell it.
TEST_F(Swap, WhatNobodyNamesAnyMoreIsLetBe) {
  limit("/session", "1048576");
  limit("/other", "max");
  process(44, "/other/sublet/lease-2", 7);
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  EXPECT_EQ(keeper->keep(two, 44, 7), "");
  fresh();
  EXPECT_EQ(keeper->keep(two, 44, 7), "");
  EXPECT_EQ(keeper->let(one), "");
  EXPECT_EQ(limit("/session"), "0") << "others may still be named whom it is kept for";
  EXPECT_EQ(keeper->let_others(), "");
  EXPECT_EQ(limit("/session"), "1048576");
  EXPECT_EQ(limit("/other"), "0");
  fresh();
  keeper->open();  // opened twice
  EXPECT_EQ(keeper->let_others(), "");
  EXPECT_EQ(limit("/other"), "max");
}

// In a delegated group the directory belongs to the user, and the limit to an admin.
TEST_F(Swap, ItsUserCannotHaveALimitOfSomebodyElseLifted) {
  const auto claim = [&](const std::string& value) {
    return ::setxattr(dir.path("groups/session").c_str(), "user.sublet.swap_max", value.data(), value.size(), 0) == 0;
  };
  limit("/session", "1048576");
  EXPECT_TRUE(claim("max") || errno == ENOTSUP);
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "1048576");
  limit("/session", "0");
  EXPECT_TRUE(claim("max") || errno == ENOTSUP);
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  EXPECT_TRUE(records->limits().empty()) << "there is nothing to undo";
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "0") << "that is an admin's, too";
}

TEST_F(Swap, AGroupThatIsMadeAnewIsAnother) {
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  fresh();
  std::filesystem::rename(dir.path("groups/session"), dir.path("groups/gone"));  // so that its inode is not used again
  limit("/session", "0");
  process(42, "/session/sublet/lease-1", 7);
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  EXPECT_EQ(keeper->let_others(), "");
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "0");
  EXPECT_TRUE(records->limits().empty());
}

TEST_F(Swap, AGroupThatIsGoneIsForgotten) {
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  std::filesystem::remove_all(dir.path("groups/session"));
  EXPECT_EQ(keeper->let(one), "");
  EXPECT_TRUE(records->limits().empty());
}

// A limit that another program sets meanwhile is intended, and stays.
TEST_F(Swap, ALimitThatIsSetMeanwhileStays) {
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  limit("/session", "4096");
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "4096");
  EXPECT_EQ(keeper->keep(one, 42, 7), "");
  limit("/session", "8192");
  EXPECT_EQ(keeper->keep(two, 43, 7), "");
  EXPECT_EQ(limit("/session"), "0");
  keeper->let(two);
  EXPECT_EQ(limit("/session"), "0") << "the first is still parked";
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "8192");
}

// A limit without a record could not be restored.
TEST_F(Swap, WhatCannotBeWrittenDownIsNotDone) {
  std::filesystem::remove_all(dir.path("records"));  // the descriptor is of a removed directory
  EXPECT_NE(keeper->keep(one, 42, 7).find("cannot record"), std::string::npos);
  EXPECT_EQ(limit("/session"), "max");
}

TEST_F(Swap, OfWhatIsWrittenDownOnlyWhatMakesSenseIsBelieved) {
  const Records::Limit good{.path = "/groups/a b", .device = 1, .inode = 2, .before = "max"};
  EXPECT_TRUE(records->write(good));
  dir.write("records/swap-1-3", "max /cut short");
  dir.write("records/swap-1-4", "0x7 /a\n");
  dir.write("records/swap-1-05", "7 /a\n");
  dir.write("records/swap-1-6x", "7 /a\n");
  dir.write("records/swap-1-7", "7 a\n");
  dir.write("records/swap-1-8", " /a\n");
  dir.write("records/swap-1-9", "7 /a\n/b\n");
  EXPECT_EQ(records->limits(), std::vector<Records::Limit>{good});
  EXPECT_TRUE(records->read().empty());
  EXPECT_EQ(records->limits(), std::vector<Records::Limit>{good}) << "helpers are another thing";
  records->remove(good);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path("records"))) << "the rest was of no use";
}

TEST_F(Swap, OthersAreNotKeptFromIt) {
  process(44, "/session/other", 8);
  EXPECT_NE(keeper->keep(one, 42, 7).find("pid 44"), std::string::npos);
  EXPECT_EQ(limit("/session"), "max");
  process(44, "/session/other", 0);
  EXPECT_EQ(keeper->keep(one, 42, 7), "") << "root's are there for the user's";
  keeper->let(one);
  limit("/session", "0");
  EXPECT_EQ(keeper->keep(one, 42, 7), "") << "it is kept already";
  keeper->let(one);
  EXPECT_EQ(limit("/session"), "0") << "and not by us";
}

TEST_F(Swap, WithoutALimitThereIsNothingToStop) {
  std::filesystem::remove(dir.path("groups/session/memory.swap.max"));
  EXPECT_NE(keeper->keep(one, 42, 7).find("memory.swap.max"), std::string::npos);
  EXPECT_NE(keeper->keep(one, 99, 7), "") << "it has ended";
}

}  // namespace
}  // namespace sublet::actor
