// SPDX-License-Identifier: Apache-2.0
#include "pause/deadline.h"

#include <gtest/gtest.h>

namespace sublet::pause {
namespace {

using namespace std::chrono_literals;

struct DeadlineTest : testing::Test {
  bool over_after(Duration passed) { return now += passed.count(), deadline.over(now); }
  // Returns the number of the first look at which the deadline is over.
  Duration looks_until_over() {
    while (!over_after(Deadline::interval)) {
    }
    return Duration(now - deadline.began_ns());
  }
  std::int64_t now = 7'000'000'000;
  Deadline deadline{now, 10s};
};

TEST_F(DeadlineTest, IsOverOneLookAfterItsTime) { EXPECT_EQ(looks_until_over(), 10s + Deadline::interval); }

TEST_F(DeadlineTest, ALoopThatIsOnlySlowTakesNothingFromAnybodyAndGivesNothing) {
  for (int look = 0; look < 10; ++look) EXPECT_FALSE(over_after(900ms));
  EXPECT_FALSE(over_after(1s)) << "what was said meanwhile is heard first";
  EXPECT_TRUE(over_after(Deadline::interval));
  EXPECT_EQ(deadline.given(), 10s);
}

TEST_F(DeadlineTest, TimeInWhichTheLoopStoodStillDoesNotCount) {
  const std::int64_t began = now;
  EXPECT_FALSE(over_after(2s + Deadline::interval));
  EXPECT_FALSE(over_after(1h + Deadline::interval));
  EXPECT_EQ(Duration(deadline.until_ns() - began), 1h + 12s);
  EXPECT_EQ(deadline.given(), 10s) << "as it is told";
  EXPECT_EQ(looks_until_over(), 10s + Deadline::interval);
}

TEST_F(DeadlineTest, AStandstillRightAtItsEndLeavesALookForWhatWasSaid) {
  for (int look = 0; look < 199; ++look) EXPECT_FALSE(over_after(Deadline::interval));
  EXPECT_FALSE(over_after(1h));
  EXPECT_TRUE(over_after(Deadline::interval));
}

}  // namespace
}  // namespace sublet::pause
