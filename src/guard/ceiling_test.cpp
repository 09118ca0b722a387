// SPDX-License-Identifier: Apache-2.0
#include "guard/ceiling.h"

#include <gtest/gtest.h>

namespace sublet::guard {
namespace {

using namespace std::chrono_literals;

TEST(Ceiling, SaysWhatToDoAboutAReading) {
  const Limits both{4 * GiB, 3 * GiB}, ceiling{4 * GiB, {}}, soft{{}, 3 * GiB}, none;
  struct Case {
    Bytes used;
    Limits limits;
    Bytes free;
    Act act;
  };
  const Case cases[] = {
      {3 * GiB, both, 8 * GiB, Act::none},
      {3 * GiB + Bytes{1}, both, 8 * GiB, Act::warn},
      {4 * GiB, both, 8 * GiB, Act::warn},
      {4 * GiB + Bytes{1}, both, 8 * GiB, Act::end},
      {4 * GiB + 192 * MiB, both, 8 * GiB, Act::end},
      {4 * GiB + 193 * MiB, both, 8 * GiB, Act::kill},
      {4 * GiB + Bytes{1}, both, 63 * MiB, Act::kill},  // others run out of memory
      {4 * GiB, both, {}, Act::warn},                   // a program within its ceiling is not to blame
      {4 * GiB, ceiling, 8 * GiB, Act::none},
      {40 * GiB, soft, 8 * GiB, Act::warn},
      {40 * GiB, none, {}, Act::none},
  };
  for (const Case& one : cases)
    EXPECT_EQ(judge(one.used, one.limits, one.free), one.act) << one.used.count << " of " << one.limits.ceiling.count;
}

TEST(Ceiling, LooksBeforeTheProgramCanBeThere) {
  struct Case {
    Bytes used;
    std::int64_t rate;
    Duration wait;
  };
  const Case cases[] = {
      {0 * GiB, 0, 1s},                     // 16 GiB at 8 GiB/s would take 2 s
      {12 * GiB, 0, 500ms},                 // 4 GiB at 8 GiB/s
      {12 * GiB, (16 * GiB).count, 250ms},  // it was seen to be faster
      {12 * GiB, (1 * GiB).count, 500ms},   // a slow program may become fast
      {16 * GiB - 16 * MiB, 0, 20ms},       // near
      {17 * GiB, 0, 20ms},                  // over
  };
  for (const Case& one : cases) EXPECT_EQ(next_sample(one.used, 16 * GiB, one.rate), one.wait) << one.used.count;
}

}  // namespace
}  // namespace sublet::guard
