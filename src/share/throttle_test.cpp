// SPDX-License-Identifier: Apache-2.0
#include "share/throttle.h"

#include <gtest/gtest.h>

namespace sublet::share {
namespace {

using namespace std::chrono_literals;

// A lease with a share of 30 %.
class ThrottleTest : public testing::Test {
 protected:
  int look(std::optional<double> used, bool exceeded = false) {
    now = now + window;
    throttle.look(now, used, exceeded, 30);
    return throttle.percent();
  }
  Throttle throttle;
  Time now{1'000'000'000};
};

TEST_F(ThrottleTest, OnlyALastingExcessIsSlowedDown) {
  EXPECT_EQ(look(90), 0);
  EXPECT_EQ(look(90, true), 50);
}

TEST_F(ThrottleTest, MoreIsTakenWhileTheUseIsAboveTheShare) {
  look(90, true);
  EXPECT_EQ(look(90), 25);
  EXPECT_EQ(look(50), 15) << "in proportion";
  EXPECT_EQ(look(40), 15) << "within the tolerance";
  for (int i = 0; i < 20; ++i) look(100);
  EXPECT_EQ(throttle.percent(), 1);
}

TEST_F(ThrottleTest, TimeIsGivenBackStepByStepWithinTheShare) {
  look(90, true), look(90);
  EXPECT_EQ(look(30), 32);
  EXPECT_EQ(look(20), 40);
  EXPECT_EQ(look(10), 79) << "faster far below the share";
  look(0);
  EXPECT_EQ(throttle.percent(), 0);
  EXPECT_EQ(look(90), 0) << "it begins anew";
}

TEST_F(ThrottleTest, AnUnknownUseHoldsNobodyBack) {
  look(90, true);
  EXPECT_EQ(look(std::nullopt), 0);
}

TEST_F(ThrottleTest, AWindowCountsOnce) {
  look(90, true);
  for (int i = 0; i < 9; ++i) throttle.look(now + i * 100ms, 90, true, 30);
  EXPECT_EQ(throttle.percent(), 50);
}

}  // namespace
}  // namespace sublet::share
