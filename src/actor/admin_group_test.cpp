// SPDX-License-Identifier: Apache-2.0
// Admins by an account database that hangs or fails.
#include "actor/roles.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace sublet::actor {
namespace {

constexpr std::uint32_t carol = 54390, mallory = 54391;

TEST(AdminGroup, HasWhomTheDatabaseNames) {
  std::atomic<int> asked = 0;
  AdminGroup admins([&asked](std::uint32_t uid) {
    ++asked;
    return uid == carol;
  });
  while (!admins.has(carol)) std::this_thread::yield();
  EXPECT_FALSE(admins.has(mallory));
  EXPECT_TRUE(admins.has(carol));
  EXPECT_EQ(asked, 2) << "each once";
}

TEST(AdminGroup, HasNobodyWhileTheDatabaseHangsAndDoesNotHangWithIt) {
  std::promise<void> over;
  AdminGroup admins([end = over.get_future().share()](std::uint32_t uid) {
    end.wait();
    return uid == carol;
  });
  EXPECT_FALSE(admins.has(carol));
  EXPECT_FALSE(admins.has(carol));
  over.set_value();
  while (!admins.has(carol)) std::this_thread::yield();
}

TEST(AdminGroup, AsksAgainWhereItCouldNot) {
  std::atomic<int> asked = 0;
  AdminGroup admins([&asked](std::uint32_t) -> Result<bool> {
    if (++asked == 1) return unavailable("there are no descriptors");
    return true;
  });
  while (!admins.has(carol)) std::this_thread::yield();
  EXPECT_EQ(asked, 2);
}

}  // namespace
}  // namespace sublet::actor
