// SPDX-License-Identifier: Apache-2.0
#include "base/aside.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>

namespace sublet {
namespace {

constexpr std::int64_t long_enough_ns = 60'000'000'000;
constexpr auto for_ever = [](const std::string&, std::int64_t) { return true; };
constexpr auto never = [](const std::string&, std::int64_t) { return false; };

TEST(Aside, AnswersAndRemembers) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, {.patience_ns = long_enough_ns});
  int times = 0;
  const auto ask = [&times] { return "answer " + std::to_string(++times); };
  EXPECT_EQ(asked.get(1, for_ever, ask), "answer 1");
  EXPECT_EQ(asked.get(1, for_ever, ask), "answer 1");
  EXPECT_EQ(asked.get(1, never, ask), "answer 2");
  EXPECT_EQ(asked.get(2, for_ever, ask), "answer 3");
}

TEST(Aside, WhileAQuestionHangsWhatWasKnownServesOn) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, {.patience_ns = 1'000'000});
  const auto old = [] { return std::string("old"); };
  while (asked.get(1, for_ever, old) != "old") std::this_thread::yield();
  std::promise<void> over;
  const auto hang = [end = over.get_future().share()] {
    end.wait();
    return std::string("late");
  };
  EXPECT_EQ(asked.get(1, never, hang), "old");
  EXPECT_EQ(asked.get(2, for_ever, old), std::nullopt) << "it comes behind that";
  EXPECT_EQ(asked.get(1, never, hang), "old") << "asked once, however often it is wanted";
  over.set_value();
  while (asked.get(1, for_ever, hang) != "late") std::this_thread::yield();
  while (asked.get(2, for_ever, hang) != "old") std::this_thread::yield();
}

TEST(Aside, AFailureChangesNothingAndIsAskedAgainSoon) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, {.patience_ns = long_enough_ns});
  int times = 0;
  bool fails = true;
  const auto ask = [&]() -> Result<std::string> {
    ++times;
    if (times == 1) throw std::bad_alloc();
    if (fails) return unavailable("there are no descriptors");
    return std::string("answer");
  };
  EXPECT_EQ(asked.get(1, for_ever, ask), std::nullopt);
  EXPECT_EQ(asked.get(1, for_ever, ask), std::nullopt);
  EXPECT_EQ(times, 1) << "not a thousand times a second";
  EXPECT_EQ(asked.get(2, for_ever, [] { return std::string("known"); }), "known");
  EXPECT_EQ(asked.get(2, never, ask), "known");
  EXPECT_EQ(times, 2);
  fails = false;
  while (asked.get(1, for_ever, ask) != "answer") std::this_thread::yield();
  while (asked.get(2, never, ask) != "answer") std::this_thread::yield();
}

TEST(Aside, WhatIsTooOldServesNoMore) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, {.patience_ns = 1'000'000, .serves_ns = 50'000'000});
  while (asked.get(1, for_ever, [] { return std::string("old"); }) != "old") std::this_thread::yield();
  std::promise<void> over;
  const auto hang = [end = over.get_future().share()] {
    end.wait();
    return std::string("late");
  };
  while (asked.get(1, never, hang)) std::this_thread::yield();
  over.set_value();
  while (asked.get(1, for_ever, hang) != "late") std::this_thread::yield();
}

TEST(Aside, WhatNobodyAskedForLongestMakesRoom) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, {.patience_ns = long_enough_ns, .most_known = 3});
  int times = 0;
  const auto ask = [&times] { return "answer " + std::to_string(++times); };
  for (int key = 1; key <= 3; ++key) asked.get(key, for_ever, ask);
  for (int key = 4; key <= 100; ++key) {
    EXPECT_EQ(asked.get(1, for_ever, ask), "answer 1") << "it is asked for all the time";
    asked.get(key, for_ever, ask);
  }
  EXPECT_EQ(asked.get(2, for_ever, ask), "answer 101") << "it was forgotten";
}

TEST(Aside, MayBeGivenUpWhileItHangs) {
  const auto over = std::make_shared<std::promise<void>>();
  {
    AsideThread thread;
    AskedAside<int, int> asked(thread, {.patience_ns = 1'000'000});
    const auto fresh = [](int, std::int64_t) { return true; };
    EXPECT_EQ(asked.get(1, fresh, [over] { return over->get_future().wait(), 1; }), std::nullopt);
  }
  over->set_value();
}

}  // namespace
}  // namespace sublet
