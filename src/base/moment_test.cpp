// SPDX-License-Identifier: Apache-2.0
#include "base/moment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace sublet {
namespace {

using namespace std::chrono_literals;

constexpr Time now{1'795'852'205'000'000'000};  // 2026-11-28T07:50:05Z

std::string utc(std::string_view text, Tense tense = Tense::past) {
  const auto moment = parse_moment(text, now, tense, Zone::utc);
  return moment ? format_rfc3339(moment->at) : moment.error().detail;
}

// The zone of this process, until the end of the test.
class InZone {
 public:
  explicit InZone(const char* zone) { ::setenv("TZ", zone, 1), ::tzset(); }
  ~InZone() { ::unsetenv("TZ"), ::tzset(); }
  InZone(const InZone&) = delete;
  InZone& operator=(const InZone&) = delete;
};

TEST(ParseMoment, KnowsTheFormsThatPeopleWrite) {
  ASSERT_EQ(format_rfc3339(now), "2026-11-28T07:50:05.000Z");
  const struct {
    const char *text, *means;
  } cases[] = {
      {"2026-11-27", "2026-11-27T00:00:00.000Z"},
      {"2026-11-27 07:50", "2026-11-27T07:50:00.000Z"},
      {"2026-11-27T07:50", "2026-11-27T07:50:00.000Z"},
      {"2026-11-27T07:50:05.25Z", "2026-11-27T07:50:05.250Z"},
      {"2026-11-27T07:50:00+01:00", "2026-11-27T06:50:00.000Z"},
      {"2026-11-27 07:50 -0230", "not"},
      {"2026-11-27 07:50-0230", "2026-11-27T10:20:00.000Z"},
      {"now", "2026-11-28T07:50:05.000Z"},
      {"today", "2026-11-28T00:00:00.000Z"},
      {"yesterday", "2026-11-27T00:00:00.000Z"},
      {"tomorrow", "2026-11-29T00:00:00.000Z"},
      {"2w", "2026-11-14T07:50:05.000Z"},
      {"1h30m", "2026-11-28T06:20:05.000Z"},
  };
  for (const auto& [text, means] : cases) EXPECT_NE(utc(text).find(means), std::string::npos) << text << utc(text);
  EXPECT_EQ(utc("36h", Tense::future), "2026-11-29T19:50:05.000Z");
  EXPECT_EQ(to_query(*parse_moment("90m", now, Tense::past, Zone::utc)), "5400000ms");
  EXPECT_EQ(to_query(*parse_moment("today", now, Tense::past, Zone::utc)), "2026-11-28T00:00:00.000Z");
}

TEST(ParseMoment, ReadsATimeWithoutAZoneInTheZoneOfTheProcess) {
  const InZone zone("CET-1CEST,M3.5.0,M10.5.0/3");
  const auto local = [](std::string_view text) {
    return format_rfc3339(parse_moment(text, now, Tense::past, Zone::local)->at);
  };
  EXPECT_EQ(local("2026-11-27 07:50"), "2026-11-27T06:50:00.000Z");
  EXPECT_EQ(local("2026-07-01"), "2026-06-30T22:00:00.000Z") << "summer time";
  EXPECT_EQ(local("today"), "2026-11-27T23:00:00.000Z");
  EXPECT_EQ(local("2026-11-27T07:50Z"), "2026-11-27T07:50:00.000Z") << "it has a zone";
}

TEST(ParseMoment, RefusesOtherTextsAndNamesThem) {
  for (const char* text : {"", "monday", "2026-11-31", "2026-13-01", "2026-1-1", "2026-11-27T25:00", "2026-11-27 07",
                           "2026-11-27T07:50:00.", "2026-11-27T07:50Zz", "1969-12-31", "-5m", "5y", "2026-11-27x",
                           "+026-11-27", "2026-11-27T07:50:00+25:00"}) {
    const auto refused = parse_moment(text, now, Tense::past, Zone::utc);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().detail.find(text), std::string::npos) << refused.error().detail;
    EXPECT_NE(refused.error().hint.find("yesterday"), std::string::npos);
  }
}

}  // namespace
}  // namespace sublet
