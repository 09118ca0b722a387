// SPDX-License-Identifier: Apache-2.0
#include "base/failpoints.h"

#include <gtest/gtest.h>

#include <array>

namespace sublet {
namespace {

using Names = std::vector<std::string_view>;
constexpr std::array<std::string_view, 2> subjects{"granted", "re.granted"};

TEST(Failpoints, NothingHappensUnlessArmed) {
  Failpoints points;
  EXPECT_FALSE(points.at(Names{"granted"}, Failpoints::written));
}

TEST(Failpoints, AnErrorHappensOnceAndAtItsNameOnly) {
  Failpoints points;
  ASSERT_TRUE(points.arm("granted.written=error", subjects));
  EXPECT_FALSE(points.at(Names{"granted"}, Failpoints::writing));
  EXPECT_FALSE(points.at(Names{"re.granted"}, Failpoints::written));
  EXPECT_FALSE(points.at(Names{"queued", "re.granted"}, Failpoints::written));
  EXPECT_TRUE(points.at(Names{"queued", "granted"}, Failpoints::written));
  EXPECT_FALSE(points.at(Names{"granted"}, Failpoints::written));
}

TEST(Failpoints, TheTimeThatItIsReachedCanBeChosen) {
  Failpoints points;
  ASSERT_TRUE(points.arm("granted.written=error@2", subjects));
  EXPECT_FALSE(points.at(Names{"granted", "granted"}, Failpoints::written));  // counts as reached once
  EXPECT_TRUE(points.at(Names{"granted"}, Failpoints::written));
  EXPECT_FALSE(points.at(Names{"granted"}, Failpoints::written));
}

TEST(Failpoints, WhatIsReachedCanBeToldInstead) {
  Failpoints points;
  ASSERT_TRUE(points.arm("log", subjects));
  testing::internal::CaptureStderr();
  EXPECT_FALSE(points.at(Names{"re.granted", "granted", "granted"}, Failpoints::written));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "failpoint granted.written\nfailpoint re.granted.written\n");
}

TEST(Failpoints, AKillEndsTheProcess) {
  Failpoints points;
  ASSERT_TRUE(points.arm("granted.told=kill", subjects));
  EXPECT_EXIT(points.at(Names{"granted"}, Failpoints::told), testing::KilledBySignal(SIGKILL), "");
}

TEST(Failpoints, OnlyWhatIsListedCanBeArmed) {
  const auto all = Failpoints::list(subjects);
  EXPECT_EQ(all.size(), subjects.size() * 10);
  for (const std::string& text : all) EXPECT_TRUE(Failpoints().arm(text, subjects)) << text;
  for (const char* bad : {"", "granted", "granted.told", "granted.told=error", "granted.told=", "other.told=kill",
                          "granted.told=kill@", "granted.told=kill@0", "granted.told=kill@2x", "log@2"}) {
    EXPECT_FALSE(Failpoints().arm(bad, subjects)) << bad;
  }
}

}  // namespace
}  // namespace sublet
