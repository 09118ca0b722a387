// SPDX-License-Identifier: Apache-2.0
#include "state/lasting_use.h"

#include <gtest/gtest.h>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

const ProcessRef desktop{10, 1}, job{20, 2};

TEST(LastingUse, CountsAllOfTheFirstReadingAndLaterProcessesAfterAMinute) {
  LastingUse use;
  EXPECT_EQ(use.bytes(), Bytes{});
  const Time start{1000};
  use.note({{desktop, 300 * MiB}}, 50 * MiB, start);
  EXPECT_EQ(use.bytes(), 350 * MiB);
  use.note({{desktop, 310 * MiB}, {job, GiB}}, 50 * MiB, start + 1s);
  EXPECT_EQ(use.bytes(), 360 * MiB) << "the growth of an old process counts at once";
  use.note({{desktop, 310 * MiB}, {job, GiB}}, 50 * MiB, start + 60s);
  EXPECT_EQ(use.bytes(), 360 * MiB) << "59 s";
  use.note({{desktop, 310 * MiB}, {job, GiB}}, 50 * MiB, start + 61s);
  EXPECT_EQ(use.bytes(), 360 * MiB + GiB);
  use.note({}, {}, start + 62s);
  EXPECT_EQ(use.bytes(), Bytes{});
  use.note({{job, GiB}}, {}, start + 63s);
  EXPECT_EQ(use.bytes(), Bytes{}) << "a process that came back is new";
}

TEST(LastingUse, CountsTheLeastUnlistedBytesOfAMinute) {
  LastingUse use;
  const Time start{1000};
  use.note({}, 10 * MiB, start);
  for (int second = 1; second <= 60; ++second) {
    use.note({}, second == 30 ? 200 * MiB : 100 * MiB, start + second * 1s);
    EXPECT_EQ(use.bytes(), 10 * MiB) << second;
  }
  use.note({}, 100 * MiB, start + 61s);
  EXPECT_EQ(use.bytes(), 100 * MiB);
  use.note({}, 20 * MiB, start + 62s);
  EXPECT_EQ(use.bytes(), 20 * MiB);
}

TEST(LastingUse, AGapBetweenReadingsProvesNothing) {
  LastingUse use;
  const Time start{1000};
  use.note({}, {}, start);
  use.note({{job, GiB}}, GiB, start + 600s);
  EXPECT_EQ(use.bytes(), Bytes{});
}

}  // namespace
}  // namespace sublet::core
