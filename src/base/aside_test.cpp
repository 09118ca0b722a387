// SPDX-License-Identifier: Apache-2.0
#include "base/aside.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

namespace sublet {
namespace {

constexpr std::int64_t long_enough_ns = 60'000'000'000;
constexpr auto for_ever = [](const std::string&, std::int64_t) { return true; };
constexpr auto never = [](const std::string&, std::int64_t) { return false; };

TEST(Aside, AnswersAndRemembers) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, long_enough_ns);
  int times = 0;
  const auto ask = [&times] { return "answer " + std::to_string(++times); };
  EXPECT_EQ(asked.get(1, for_ever, ask), "answer 1");
  EXPECT_EQ(asked.get(1, for_ever, ask), "answer 1");
  EXPECT_EQ(asked.get(1, never, ask), "answer 2");
  EXPECT_EQ(asked.get(2, for_ever, ask), "answer 3");
}

TEST(Aside, WhileAQuestionHangsWhatWasKnownServesOn) {
  AsideThread thread;
  AskedAside<int, std::string> asked(thread, 1'000'000);
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

TEST(Aside, MayBeGivenUpWhileItHangs) {
  const auto over = std::make_shared<std::promise<void>>();
  {
    AsideThread thread;
    AskedAside<int, int> asked(thread, 1'000'000);
    const auto fresh = [](int, std::int64_t) { return true; };
    EXPECT_EQ(asked.get(1, fresh, [over] { return over->get_future().wait(), 1; }), std::nullopt);
  }
  over->set_value();
}

}  // namespace
}  // namespace sublet
