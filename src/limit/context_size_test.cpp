// SPDX-License-Identifier: Apache-2.0
#include "limit/context_size.h"

#include <gtest/gtest.h>

namespace sublet::limit {
namespace {

TEST(ContextSize, TwoEqualSightsTellIt) {
  ContextSize size;
  std::optional<Sight> last;
  EXPECT_EQ(size.learn(last, {20 * MiB, 320 * MiB}, {}), std::nullopt);
  EXPECT_EQ(size.learn(last, {40 * MiB, 320 * MiB}, {}), std::nullopt) << "it allocates meanwhile";
  EXPECT_EQ(size.learn(last, {40 * MiB, 340 * MiB}, {}), std::nullopt);
  EXPECT_EQ(size.learn(last, {40 * MiB, 340 * MiB}, {}), 300 * MiB);
  EXPECT_EQ(size.learn(last, {40 * MiB, 340 * MiB}, {}), std::nullopt) << "it is known";
  EXPECT_EQ(size.bytes(), 300 * MiB);
}

// Two sights of a process that are alike.
struct Learning : ContextSize {
  std::optional<Bytes> twice(Bytes charged, Bytes used, Bytes given) {
    std::optional<Sight> last;
    (void)learn(last, {charged, used}, given);
    return learn(last, {charged, used}, given);
  }
};

TEST(ContextSize, TheSmallestSizeCounts) {
  Learning size;
  EXPECT_EQ(size.twice(20 * MiB, 620 * MiB, {}), 600 * MiB) << "two contexts";
  EXPECT_EQ(size.twice(600 * MiB, 300 * MiB, 600 * MiB), 300 * MiB) << "it was charged for too much";
  EXPECT_EQ(size.twice(300 * MiB, 900 * MiB, 300 * MiB), std::nullopt);
  EXPECT_EQ(size.twice(500 * MiB, 100 * MiB, {}), std::nullopt) << "managed memory that is not on the card";
  EXPECT_EQ(size.twice(0 * MiB, 100 * GiB, {}), std::nullopt) << "no context is as large";
  EXPECT_EQ(size.bytes(), 300 * MiB);
}

TEST(ContextSize, AProcessWithMoreThanItsContextMakesNoKnownSizeSmaller) {
  Learning size;
  EXPECT_EQ(size.twice(600 * MiB - Bytes{1}, 600 * MiB, {}), std::nullopt) << "no context is as small";
  EXPECT_EQ(size.twice({}, 300 * MiB, {}), 300 * MiB);
  EXPECT_EQ(size.twice(500 * MiB, 300 * MiB, 300 * MiB), std::nullopt) << "managed memory that is not on the card";
  EXPECT_EQ(size.twice(500 * MiB, 400 * MiB, 300 * MiB), std::nullopt);
  EXPECT_EQ(size.twice(300 * MiB, 149 * MiB, 300 * MiB), std::nullopt) << "less than half";
  EXPECT_EQ(size.twice(300 * MiB, 280 * MiB, 300 * MiB), 280 * MiB);
}

TEST(ContextSize, AnotherDriverIsLearnedAnew) {
  ContextSize size;
  size.set(300 * MiB, "570.86");
  size.check_driver("");
  size.check_driver("570.86");
  EXPECT_EQ(size.bytes(), 300 * MiB);
  size.check_driver("580.1");
  EXPECT_EQ(size.bytes(), Bytes{});
}

}  // namespace
}  // namespace sublet::limit
