// SPDX-License-Identifier: Apache-2.0
#include "engine/patience.h"

#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

using namespace std::chrono_literals;

struct PatienceTest : testing::Test {
  bool over_after(Duration passed) { return now += passed.count(), patience.over(now); }
  // The first look that finds it over.
  Duration looks_until_over() {
    while (!over_after(Patience::interval)) {
    }
    return Duration(now - patience.began_ns());
  }
  std::int64_t now = 7'000'000'000;
  Patience patience{now, 10s};
};

TEST_F(PatienceTest, IsOverOneLookAfterItsTime) { EXPECT_EQ(looks_until_over(), 10s + Patience::interval); }

TEST_F(PatienceTest, ALoopThatIsOnlySlowTakesNothingFromAnybodyAndGivesNothing) {
  for (int look = 0; look < 10; ++look) EXPECT_FALSE(over_after(900ms));
  EXPECT_FALSE(over_after(1s)) << "what was said meanwhile is heard first";
  EXPECT_TRUE(over_after(Patience::interval));
  EXPECT_EQ(patience.given(), 10s);
}

TEST_F(PatienceTest, TimeInWhichTheLoopStoodStillDoesNotCount) {
  const std::int64_t began = now;
  EXPECT_FALSE(over_after(2s + Patience::interval));
  EXPECT_FALSE(over_after(1h + Patience::interval));
  EXPECT_EQ(Duration(patience.until_ns() - began), 1h + 12s);
  EXPECT_EQ(patience.given(), 10s) << "as it is told";
  EXPECT_EQ(looks_until_over(), 10s + Patience::interval);
}

TEST_F(PatienceTest, AStandstillRightAtItsEndLeavesALookForWhatWasSaid) {
  for (int look = 0; look < 199; ++look) EXPECT_FALSE(over_after(Patience::interval));
  EXPECT_FALSE(over_after(1h));
  EXPECT_TRUE(over_after(Patience::interval));
}

}  // namespace
}  // namespace sublet::engine
