// SPDX-License-Identifier: Apache-2.0
#include "limit/control.h"

#include <gtest/gtest.h>

namespace sublet::limit {
namespace {

TEST(Control, AProcessWithoutALimitMayHoldLittle) {
  EXPECT_EQ(judge({.used = 64 * MiB}), std::nullopt);
  EXPECT_EQ(judge({.used = 65 * MiB}), Escape::never_asked);
  EXPECT_EQ(judge({.used = 65 * MiB, .is_others = true}), Escape::other_user);
  EXPECT_EQ(judge({.used = 65 * MiB, .is_bypassing = true}), Escape::bypassed);
  EXPECT_EQ(judge({.used = 65 * MiB, .is_traced = true, .is_bypassing = true}), Escape::debugger);
  EXPECT_EQ(judge({.used = 65 * MiB, .is_others = true, .name = "nvidia-cuda-mps"}), Escape::mps);
}

TEST(Control, AProcessWithALimitMayHoldItsCreditAndTheDriversSlack) {
  const auto look = [](Bytes used, std::optional<Bytes> context) {
    return judge({.used = used, .credit = 100 * MiB, .context = context});
  };
  EXPECT_EQ(look(356 * MiB, 50 * MiB), std::nullopt);
  EXPECT_EQ(look(357 * MiB, 50 * MiB), Escape::beyond_credit);
  EXPECT_EQ(look(1380 * MiB, Bytes{}), std::nullopt) << "its context was not charged";
  EXPECT_EQ(look(1381 * MiB, Bytes{}), Escape::beyond_credit);
  EXPECT_EQ(look(1380 * MiB, std::nullopt), std::nullopt) << "it began with an earlier daemon";
  EXPECT_EQ(judge({.used = 65 * MiB, .credit = 100 * MiB, .is_uncovered = true}), Escape::uncovered);
  EXPECT_EQ(judge({.used = 64 * MiB, .credit = 100 * MiB, .is_uncovered = true}), std::nullopt);
  EXPECT_EQ(judge({.used = 1381 * MiB, .credit = 100 * MiB, .is_traced = true, .is_bypassing = true}),
            Escape::bypassed);
  EXPECT_EQ(judge({.used = 300 * MiB, .credit = Bytes{}, .context = 50 * MiB, .is_others = true}),
            Escape::beyond_credit);
}

}  // namespace
}  // namespace sublet::limit
