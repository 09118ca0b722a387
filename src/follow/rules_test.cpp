// SPDX-License-Identifier: Apache-2.0
#include "follow/rules.h"

#include <gtest/gtest.h>

#include <vector>

namespace sublet::follow {
namespace {

using namespace std::chrono_literals;

TEST(FollowRules, AProgramIsToldBeforeItIsEnded) {
  struct Row {
    const char* what;
    Sightings seen;
    Treatment treatment;
    bool may_end;
    Act act;
  };
  const Row rows[] = {
      {"two sightings", {2, {}, false}, Treatment::end, true, Act::none},
      {"three sightings", {3, {}, false}, Treatment::end, true, Act::tell},
      {"told", {3, {}, true}, Treatment::end, true, Act::end},
      {"told, and the policy only warns", {9, {}, true}, Treatment::tell, true, Act::none},
      {"told, and the policy observes", {9, {}, true}, Treatment::observe, true, Act::none},
      {"observed", {3, {}, false}, Treatment::observe, true, Act::tell},
      {"approved", {9, {}, false}, Treatment::ignore, true, Act::none},
      {"it may not be ended now", {9, {}, true}, Treatment::end, false, Act::none},
  };
  for (const Row& row : rows) EXPECT_EQ(judge(row.seen, row.treatment, row.may_end), row.act) << row.what;
}

TEST(FollowRules, AProgramIsEndedForItsOwnWorkAlone) {
  constexpr Bytes slack = 64 * MiB;
  const StrayProcess work{Treatment::end, GiB}, approved{Treatment::ignore, GiB};
  const StrayProcess window{.treatment = Treatment::end, .used = GiB, .draws = true};
  const StrayProcess attached{.treatment = Treatment::end, .used = GiB, .booked = true};
  const auto judged = [&](std::vector<StrayProcess> all) { return treatment_of(all, slack); };
  EXPECT_EQ(judged({work}), Treatment::end);
  EXPECT_EQ(judged({work, window, attached}), Treatment::end);
  EXPECT_EQ(judged({work, approved}), Treatment::ignore);
  EXPECT_EQ(judged({window}), Treatment::tell) << "the display hangs on that device";
  EXPECT_EQ(judged({attached}), Treatment::tell) << "the end of the program would not end it";
  EXPECT_EQ(judged({window, {Treatment::end, 10 * MiB}}), Treatment::tell);
  EXPECT_EQ(judged({{Treatment::observe, GiB}, window}), Treatment::observe);
}

TEST(FollowRules, AnotherUserDoesNotDoTheWorkOfALease) {
  EXPECT_TRUE(may_do_work_of(1000, 1000));
  EXPECT_TRUE(may_do_work_of(0, 1000)) << "a container engine";
  EXPECT_FALSE(may_do_work_of(1001, 1000));
}

TEST(FollowRules, CloseReadingsCountOnce) {
  Sightings seen;
  const Time start{1'000'000'000'000};
  for (const Duration after : {0s, 1s, 7s, 8s, 15s, 16s}) see(seen, 15s, start + after);
  EXPECT_EQ(seen.count, 3);
}

}  // namespace
}  // namespace sublet::follow
