// SPDX-License-Identifier: Apache-2.0
#include "guard/forgotten_logs.h"

#include "base/fd.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <filesystem>
#include <fstream>

namespace sublet::guard {
namespace {

namespace fs = std::filesystem;

struct ForgottenLogs : ::testing::Test {
  proc::TempDir dir;

  void make(const std::string& name) const {
    fs::create_directories(fs::path(dir.path(name)).parent_path());
    std::ofstream(dir.path(name)) << "text\n";
  }
  bool has(const std::string& name) const { return fs::exists(fs::symlink_status(dir.path(name))); }
  // Programs 7 and 9 were removed.
  bool remove(const LogNumbers& known) const { return remove_forgotten_logs(dir.path("."), known, {7, 9}); }
};

TEST_F(ForgottenLogs, AreRemovedWithAllTheirFiles) {
  for (const char* suffix : {"", ".lock", ".1", ".12"}) make(std::string("1000/program-7.log") + suffix);
  make("1001/program-8.log");
  make("1001/program-9.log.1");
  EXPECT_FALSE(remove({8}));
  EXPECT_TRUE(fs::is_empty(dir.path("1000")));
  EXPECT_TRUE(has("1001/program-8.log"));
  EXPECT_FALSE(has("1001/program-9.log.1"));
}

TEST_F(ForgottenLogs, LeaveEveryOtherFileAlone) {
  const char* others[] = {"1000/program-7.log.txt", "1000/program-7.log.-1", "1000/program-7.log.1.gz",
                          "1000/program-x.log",     "1000/program-7.logs",   "1000/aprogram-7.log",
                          "1000/program-.log",      "ana/program-7.log",     "program-7.log"};
  for (const char* name : others) make(name);
  fs::create_directories(dir.path("elsewhere"));
  make("elsewhere/program-7.log");
  fs::create_symlink(dir.path("elsewhere"), dir.path("1001"));
  EXPECT_FALSE(remove({}));
  for (const char* name : others) EXPECT_TRUE(has(name)) << name;
  EXPECT_TRUE(has("elsewhere/program-7.log"));
  EXPECT_FALSE(remove_forgotten_logs(dir.path("nowhere"), {}, {}));
}

TEST_F(ForgottenLogs, StayWhileTheirKeeperLives) {
  make("1000/program-7.log");
  make("1000/program-7.log.lock");
  Fd keeper(::open(dir.path("1000/program-7.log.lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(keeper.get(), LOCK_EX | LOCK_NB), 0);
  EXPECT_TRUE(remove({}));
  EXPECT_TRUE(has("1000/program-7.log"));
  keeper.reset();
  EXPECT_FALSE(remove({}));
  EXPECT_FALSE(has("1000/program-7.log"));
}

TEST_F(ForgottenLogs, OfAnotherStoreStayForAWeek) {
  for (const char* name : {"1000/program-20.log", "1000/program-21.log", "1000/program-22.log"}) make(name);
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(8 * 24);
  for (const char* name : {"1000/program-21.log", "1000/program-22.log"}) fs::last_write_time(dir.path(name), before);
  EXPECT_FALSE(remove({22}));
  EXPECT_TRUE(has("1000/program-20.log")) << "its program may be of a store that comes back";
  EXPECT_FALSE(has("1000/program-21.log"));
  EXPECT_TRUE(has("1000/program-22.log")) << "its program is known";
}

}  // namespace
}  // namespace sublet::guard
