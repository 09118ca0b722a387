// SPDX-License-Identifier: Apache-2.0
#include "machine/card_lock.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <unistd.h>

namespace sublet::machine {
namespace {

TEST(CardLocks, OneDaemonACard) {
  const std::string card = fmt::format("GPU-test-{}", ::getpid());
  CardLocks first;
  EXPECT_TRUE(first.acquire(card));
  EXPECT_TRUE(first.acquire(card)) << "it has it already";
  {
    CardLocks second;
    const Status refused = second.acquire(card);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::InUse);
    EXPECT_NE(refused.error().detail.find(std::to_string(::getpid())), std::string::npos)
        << "names who has it: " << refused.error().detail;
    EXPECT_TRUE(second.acquire(card + "-other"));
  }
}

TEST(CardLocks, TheKernelGivesItBack) {
  const std::string card = fmt::format("GPU-test-{}-again", ::getpid());
  { EXPECT_TRUE(CardLocks().acquire(card)); }
  EXPECT_TRUE(CardLocks().acquire(card));
}

}  // namespace
}  // namespace sublet::machine
