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
    EXPECT_EQ(judge({.used = one.used, .device_free = one.free}, one.limits, Stage::runs), one.act)
        << one.used.count << " of " << one.limits.ceiling.count;
}

TEST(Ceiling, EndsTheGraceOfAProgramThatTakesMemoryInIt) {
  const Limits limits{4 * GiB, 3 * GiB};
  const Bytes over = 4 * GiB + 10 * MiB;
  struct Case {
    Reading reading;
    Stage stage;
    Act act;
  };
  const Case cases[] = {
      // It grows so fast that SIGTERM comes too late.
      {{.used = over, .coming = 200 * MiB}, Stage::runs, Act::kill},
      {{.used = over, .coming = 100 * MiB}, Stage::runs, Act::end},
      // It was asked to end.
      {{.used = over, .due = over, .held = over}, Stage::ending, Act::none},
      {{.used = over + MiB, .due = over, .held = over + MiB}, Stage::ending, Act::none},  // before the signal came
      {{.used = over + MiB, .due = over, .held = over}, Stage::ending, Act::kill},
      {{.used = 4 * GiB + 210 * MiB, .due = over, .held = 5 * GiB}, Stage::ending, Act::kill},
      {{.used = over, .coming = 300 * MiB, .due = over, .held = over}, Stage::ending, Act::kill},
      {{.used = over, .due = over, .held = over, .device_free = MiB}, Stage::ending, Act::kill},
      {{.used = over, .due = GiB, .held = GiB}, Stage::ending, Act::kill},  // stopped for another reason, and leaks
      {{.used = 4 * GiB, .due = GiB, .held = GiB}, Stage::ending, Act::none},
      // Its ceiling was lowered below its use.
      {{.used = 9 * GiB, .lowered = true}, Stage::runs, Act::end},
      {{.used = 9 * GiB, .due = 9 * GiB, .held = 9 * GiB, .device_free = MiB, .lowered = true},
       Stage::ending,
       Act::none},
      {{.used = 9 * GiB + MiB, .due = 9 * GiB, .held = 9 * GiB, .lowered = true}, Stage::ending, Act::kill},
      // It is paused or comes back.
      {{.used = over}, Stage::away, Act::none},
      {{.used = 5 * GiB}, Stage::away, Act::kill},
      {{.used = 5 * GiB, .due = 5 * GiB}, Stage::away, Act::none},  // the ceiling was lowered meanwhile
      {{.used = over, .device_free = MiB}, Stage::away, Act::kill},
      {{.used = 4 * GiB}, Stage::away, Act::none},  // a soft limit is for running programs
  };
  for (const Case& one : cases)
    EXPECT_EQ(judge(one.reading, limits, one.stage), one.act)
        << one.reading.used.count << " at " << static_cast<int>(one.stage);
}

TEST(Ceiling, ASingleAllocationIsNoGrowth) {
  const double fast = static_cast<double>((6 * GiB).count);
  EXPECT_EQ(growth_until_signal(fast, 0), Bytes{}) << "120 MiB between two readings";
  EXPECT_EQ(growth_until_signal(0, fast), Bytes{});
  EXPECT_EQ(growth_until_signal(fast, 2 * fast), Bytes{(6 * GiB).count / 25}) << "it goes on for 40 ms";
}

TEST(Ceiling, TheGraceOfALoweredCeilingBeginsWhenTheProgramRuns) {
  const Time noon{1'764'158'400'000'000'000};
  Lowering lowering{noon, false};
  lowering.it_runs(noon + 1s);
  EXPECT_TRUE(lowering.is_recent(noon + 1s, 2s));
  EXPECT_FALSE(lowering.is_recent(noon + 2s, 2s));
  lowering = {noon, true};  // while it was paused
  lowering.it_runs(noon + 10s);
  EXPECT_TRUE(lowering.is_recent(noon + 11s, 2s));
  lowering.it_runs(noon + 12s);
  EXPECT_FALSE(lowering.is_recent(noon + 12s, 2s));
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
