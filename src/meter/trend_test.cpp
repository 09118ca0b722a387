// SPDX-License-Identifier: Apache-2.0
#include "meter/trend.h"
#include "meter/test_support.h"

#include <gtest/gtest.h>

namespace sublet::meter {
namespace {

std::vector<WaitSample> waits(int count, Ms from, std::int64_t wanted, Ms waited, const std::string& user) {
  std::vector<WaitSample> made;
  for (int i = 0; i < count; ++i) made.push_back({from + i * minute, wanted, waited, user});
  return made;
}

std::vector<WaitSample> operator+(std::vector<WaitSample> a, const std::vector<WaitSample>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Trend, AWeekBeginsOnMonday) {
  EXPECT_EQ(monday_of(monday), monday);
  EXPECT_EQ(monday_of(monday + 7 * day - 1), monday);
  EXPECT_EQ(monday_of(monday - 1), monday - 7 * day);
}

TEST(Trend, Percentiles) {
  std::vector<Ms> none, values{5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(none, 50), 0);
  EXPECT_EQ(percentile(values, 50), 3);
  EXPECT_EQ(percentile(values, 95), 5);
  EXPECT_EQ(percentile(values, 1), 1);
}

TEST(Trend, Sentences) {
  const Ms before = monday - 6 * day, after = monday + hour, now = monday + 2 * day;
  struct Case {
    const char* what;
    std::vector<WaitSample> all;
    std::vector<std::string> sentences;
  };
  const Case cases[] = {
      {"nothing", {}, {"no lease waited since Monday"}},
      {"short waits do not count", waits(50, after, gib, 900, "ana"), {"no lease waited since Monday"}},
      {"the same",
       waits(10, before, gib, 5000, "ana") + waits(11, after, gib, 5000, "ana"),
       {"waiting did not change much since Monday"}},
      {"large ones doubled, for one user",
       waits(10, before, 20 * gib, 5000, "ana") + waits(14, after, 20 * gib, 5000, "ana") +
           waits(6, after, 20 * gib, 5000, "ben"),
       {"waits for more than 16 GiB doubled since Monday; 70 % of them were for user ana"}},
      {"fewer",
       waits(20, before, gib, 5000, "ana") + waits(10, after, gib, 5000, "ben"),
       {"waits halved since Monday"}},
      {"longer",
       waits(10, before, gib, 5000, "ana") + waits(10, after, gib, 60'000, "ana"),
       {"the longest waits (p95) rose tenfold or more since Monday, to 1 min"}},
  };
  for (const Case& each : cases) EXPECT_EQ(trend_sentences(each.all, now), each.sentences) << each.what;
  EXPECT_EQ(trend_sentences({}, monday + hour), std::vector<std::string>{"no lease waited since Monday a week ago"});
  EXPECT_EQ(trend_sentences({}, now, 0, true), std::vector<std::string>{"no lease waited since 2025-11-24"});
  const auto weekend = waits(3, monday - 2 * day, gib, 5000, "ana") + waits(30, after, gib, 5000, "ana");
  const auto same_days = weekend + waits(30, before, gib, 5000, "ana");
  EXPECT_EQ(trend_sentences(same_days, now), std::vector<std::string>{"waiting did not change much since Monday"});
  EXPECT_EQ(trend_sentences(weekend, now, monday - 3 * day),
            std::vector<std::string>{"there are not enough weeks of data to tell how waiting changes"});
}

}  // namespace
}  // namespace sublet::meter
