// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace sublet {
namespace {

TEST(SystemClock, NeverGoesBack) {
  const SystemClock clock;
  Time before = clock.now();
  for (int i = 0; i < 10'000; ++i) {
    const Time now = clock.now();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(SystemClock, StartsAtTheWallClock) {
  timespec wall{};
  clock_gettime(CLOCK_REALTIME, &wall);
  const Time now = SystemClock().now();
  EXPECT_GE(now.ns / 1'000'000'000, wall.tv_sec);
  EXPECT_LT(now.ns / 1'000'000'000, wall.tv_sec + 3600) << "in the same hour: the same time line";
}

TEST(SystemClock, GoesOnFromTheLastStoredTimeWhenTheWallClockWasSetBack) {
  const Time future = SystemClock().now() + std::chrono::hours(1000);
  const SystemClock clock(future);
  EXPECT_GE(clock.now(), future);
  EXPECT_LT(clock.now(), future + std::chrono::hours(1));
  const Time past{1'000};
  EXPECT_GT(SystemClock(past).now(), past + std::chrono::hours(1)) << "an old one does not hold it back";
}

TEST(SystemClock, GoesOnFromALaterTimeAndNeverBack) {
  SystemClock clock;
  const Time future = clock.now() + std::chrono::hours(1000);
  clock.go_on_from(future);
  EXPECT_GE(clock.now(), future);
  clock.go_on_from({1'000});
  EXPECT_GE(clock.now(), future);
}

TEST(ManualClock, MovesWhenTold) {
  ManualClock clock({100}, 7);
  EXPECT_EQ(clock.now(), Time{100});
  clock.advance(Duration(5));
  EXPECT_EQ(clock.now(), Time{105});
  EXPECT_EQ(clock.at_monotonic(7), Time{100});
  clock.go_on_from({200});
  clock.go_on_from({50});
  EXPECT_EQ(clock.now(), Time{200});
  EXPECT_EQ(clock.monotonic_ns(), 12);
}

TEST(KernelClocks, MonotonicNeverGoesBack) {
  const std::int64_t monotonic = monotonic_ns();
  EXPECT_GT(monotonic, 0);
  EXPECT_GE(monotonic_ns(), monotonic);
}

}  // namespace
}  // namespace sublet
