// SPDX-License-Identifier: Apache-2.0
#include "daemon/crashes.h"

#include "base/clock.h"
#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace sublet::daemon {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr Time start{1'790'000'000'000'000'000};

std::vector<Crash> crashes_at(std::initializer_list<Duration> times) {
  std::vector<Crash> crashes;
  for (const Duration time : times) crashes.push_back({start + time, SIGSEGV});
  return crashes;
}

TEST(SafeModeAfter, ThreeWithinAMinute) {
  EXPECT_FALSE(safe_mode_after({}, start));
  EXPECT_FALSE(safe_mode_after(crashes_at({0s, 1s}), start + 2s));
  EXPECT_FALSE(safe_mode_after(crashes_at({0s, 30s, 61s}), start + 62s));
  EXPECT_TRUE(safe_mode_after(crashes_at({0s, 30s, 60s}), start + 61s));
  const auto safe = safe_mode_after(crashes_at({-1h, 0s, 40s, 80s, 90s}), start + 91s);
  ASSERT_TRUE(safe) << "the last three of them";
  EXPECT_EQ(safe->until, start + 90s + 10min);
  EXPECT_EQ(safe->why, "the daemon crashed 3 times within 1 min, last by SIGSEGV");
}

TEST(SafeModeAfter, NotForEver) {
  EXPECT_TRUE(safe_mode_after(crashes_at({0s, 1s, 2s}), start + 2s + 10min - 1ns));
  EXPECT_FALSE(safe_mode_after(crashes_at({0s, 1s, 2s}), start + 2s + 10min));
  const auto again = safe_mode_after(crashes_at({0s, 1s, 2s, 5min}), start + 5min);
  ASSERT_TRUE(again) << "it crashed in safe mode, too";
  EXPECT_EQ(again->until, start + 15min);
}

TEST(SafeModeAfter, WhatLiesInTheFutureSaysNothing) {
  EXPECT_FALSE(safe_mode_after(crashes_at({0s, 1s, 2s}), start + 1s)) << "the clock was set back";
  EXPECT_FALSE(safe_mode_after({{{INT64_MAX}, SIGABRT}, {{INT64_MIN}, SIGABRT}, {{-1}, SIGABRT}}, start));
}

struct Record : testing::Test {
  std::string bytes() const {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }

  // Ends a child with `crash`. Returns the signal that ended it.
  template <typename How>
  int ends(const How& crash) const {
    const pid_t child = ::fork();
    if (child == 0) {
      record_crashes(path);
      crash();
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  const proc::TempDir folder;
  const fs::path path = folder.path("store.db.crashes");
};

TEST_F(Record, NamesEachCrashAndNothingElse) {
  const Time before = wall_time();
  EXPECT_EQ(ends([] { std::abort(); }), SIGABRT);
  EXPECT_EQ(ends([] { std::thread(std::terminate).join(); }), SIGABRT);
  EXPECT_EQ(ends([] { ::kill(::getpid(), SIGSEGV); }), SIGSEGV);
  EXPECT_EQ(ends([] { ::raise(SIGFPE); }), SIGFPE);
  EXPECT_EQ(ends([] { ::kill(::getpid(), SIGKILL); }), SIGKILL);
  EXPECT_EQ(ends([] { ::raise(SIGTERM); }), SIGTERM);
  EXPECT_EQ(ends([] {}), 0);
  const auto crashes = parse_crashes(bytes());
  ASSERT_EQ(crashes.size(), 4U);
  EXPECT_EQ(crashes[1].signal, SIGABRT);
  EXPECT_EQ(crashes[2].signal, SIGSEGV);
  EXPECT_GE(crashes[0].at, before);
  EXPECT_TRUE(safe_mode_after(crashes, wall_time()));
  EXPECT_EQ(ends([this] { forget_crashes(path); }), 0);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Record, GarbageIsPassedOver) {
  for (int i = 0; i < 3; ++i) ends([] { std::abort(); });
  const std::string whole = bytes();
  const auto crashes = parse_crashes(whole);
  ASSERT_EQ(crashes.size(), 3U);
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    const auto left = parse_crashes(whole.substr(0, cut));
    EXPECT_EQ(left.size(), cut / (whole.size() / 3)) << "cut after " << cut;
  }
  // A disk that is full for a moment leaves a partial entry. Later entries still count.
  const std::size_t one = whole.size() / 3;
  EXPECT_EQ(parse_crashes(whole.substr(0, one) + whole.substr(one, 5) + whole.substr(2 * one)).size(), 2U);
  EXPECT_EQ(parse_crashes("no record at all" + whole).size(), 3U);
  std::string other = whole;
  other[16] = 99;  // not a signal of a crash
  EXPECT_EQ(parse_crashes(other).size(), 2U);
  EXPECT_TRUE(parse_crashes(std::string(10'000, '\0')).empty());
}

TEST_F(Record, StaysSmallAndKeepsTheNewest) {
  ends([] { std::abort(); });
  const std::string one = bytes();
  std::string many(100'000, 'x');
  for (int i = 0; i < 100; ++i) many += one;
  write(many);
  EXPECT_EQ(ends([] { std::abort(); }), SIGABRT);
  EXPECT_EQ(parse_crashes(bytes()).size(), 17U);
  EXPECT_EQ(bytes().size(), 17 * one.size());
}

TEST_F(Record, AFileThatCannotBeUsedKeepsNobodyFromStarting) {
  fs::create_directory(path);
  EXPECT_EQ(ends([] {}), 0);
  EXPECT_EQ(ends([] { std::abort(); }), SIGABRT);
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ends([] { std::abort(); }), SIGABRT);
  fs::remove(path);
  fs::create_symlink(folder.path("elsewhere"), path);
  EXPECT_EQ(ends([] { std::abort(); }), SIGABRT);
  EXPECT_FALSE(fs::exists(folder.path("elsewhere")));
}

}  // namespace
}  // namespace sublet::daemon
