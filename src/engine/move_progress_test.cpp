// SPDX-License-Identifier: Apache-2.0
#include "engine/move_progress.h"

#include <gtest/gtest.h>

namespace sublet::engine {
namespace {

using namespace std::chrono_literals;

core::Moving move_of(core::Move move) { return {move, 2 * GiB, {}, {2s, 10s, 60s, 0}}; }

TEST(MoveProgress, APredictionIsATimeAndNoBytes) {
  const auto progress = measure_progress(move_of(core::Move::pause), {{}, 1500ms, 1500ms, false, true});
  EXPECT_EQ(progress.moved, Bytes{});
  EXPECT_EQ(progress.per_second, Bytes{});
  EXPECT_FALSE(progress.measured);
  EXPECT_EQ(progress.left, Duration(500ms));
  EXPECT_EQ(progress.total, 2 * GiB);
}

TEST(MoveProgress, SmallChangesAndGrowthOfTheProgramAreNoProgress) {
  for (const Bytes seen : {20 * MiB, Bytes{} - GiB}) {
    const auto progress = measure_progress(move_of(core::Move::pause), {seen, 3s, 3s, false, true});
    EXPECT_EQ(progress.moved, Bytes{});
    EXPECT_FALSE(progress.measured);
    EXPECT_EQ(progress.left, Duration{}) << "any moment";
  }
}

TEST(MoveProgress, MeasuredBytesGiveARateAndARest) {
  const auto progress = measure_progress(move_of(core::Move::resume), {512 * MiB, 1s, 1s, false, true});
  EXPECT_TRUE(progress.measured);
  EXPECT_EQ(progress.moved, 512 * MiB);
  EXPECT_EQ(progress.per_second, 512 * MiB);
  EXPECT_EQ(progress.left, Duration(3s));
  EXPECT_EQ(measure_progress(move_of(core::Move::resume), {5 * GiB, 1s, 1s, false, true}).moved, 2 * GiB);
}

TEST(MoveProgress, NothingMovesBeforeTheProgramIsAtRest) {
  const auto progress = measure_progress(move_of(core::Move::pause), {GiB, 1s, 1s, false, false});
  EXPECT_EQ(progress.moved, Bytes{});
  EXPECT_FALSE(progress.under_way);
  EXPECT_EQ(progress.left, Duration(2s));
}

TEST(MoveProgress, IsLateWhenStuckOrBeyondTheLimit) {
  EXPECT_TRUE(measure_progress(move_of(core::Move::pause), {{}, 1s, 1s, true, true}).late);
  EXPECT_TRUE(measure_progress(move_of(core::Move::pause), {{}, 11s, 1s, false, true}).late);
  EXPECT_EQ(measure_progress(move_of(core::Move::pause), {{}, 11s, 1s, false, true}).left, Duration{});
}

// The program says that its bytes are free, and a reading tells how many are.
TEST(MoveProgress, SettlesByReadingsAlone) {
  EXPECT_EQ(measure_progress(move_of(core::Move::settle), {{}, 1s, 1s, false, true}).moved, Bytes{});
  EXPECT_EQ(measure_progress(move_of(core::Move::settle), {GiB, 1s, 1s, false, true}).moved, GiB);
  EXPECT_EQ(measure_progress(move_of(core::Move::settle), {GiB, 1s, 1s, false, true}).left, Duration(1s));
}

}  // namespace
}  // namespace sublet::engine
