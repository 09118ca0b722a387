// SPDX-License-Identifier: Apache-2.0
#include "share/audit.h"

#include <gtest/gtest.h>

namespace sublet::share {
namespace {

using namespace std::chrono_literals;

// A lease with a share of 30 %, read ten times a second.
class AuditTest : public testing::Test {
 protected:
  // The processes are charged `charged` percent of the device, and the card shows `shown`.
  void pass(Duration time, double charged, std::optional<int> shown) {
    for (const Time until = now + time; now < until;) {
      now = now + step;
      busy += charged * 1e4 * static_cast<double>(step / 1ms);
      audit.look(now, static_cast<std::int64_t>(busy), shown, held.value_or(shown.value_or(0)), 30);
    }
  }
  Audit audit{5s};
  Duration step = 100ms;
  std::optional<int> held{};  // of the held processes; unset: all are
  Time now{1'000'000'000};
  double busy = 0;
};

TEST_F(AuditTest, GainFollowsTheCard) {
  pass(1s, 30, 30);
  EXPECT_EQ(audit.gain(), usual_gain);
  pass(20s, 30, 30);
  EXPECT_NEAR(audit.gain(), 1000, 10);
  // The library measures half of what the card shows, and multiplies its time by the gain.
  for (int i = 0; i < 40; ++i) pass(1s, 15 * audit.gain() / 1000.0, 30);
  EXPECT_NEAR(audit.gain(), 2000, 20);
  for (int i = 0; i < 40; ++i) pass(1s, 60 * audit.gain() / 1000.0, 30);
  EXPECT_NEAR(audit.gain(), 500, 20);
}

TEST_F(AuditTest, GainStaysInItsBounds) {
  for (int i = 0; i < 40; ++i) pass(1s, 6, 100);
  EXPECT_NEAR(audit.gain(), most_gain, 5);
  for (int i = 0; i < 80; ++i) pass(1s, 100, 6);
  EXPECT_NEAR(audit.gain(), least_gain, 5);
}

TEST_F(AuditTest, IdleWindowsAndUnknownFiguresLeaveTheGain) {
  pass(10s, 1, 30);
  pass(10s, 30, 1);
  pass(10s, 60, std::nullopt);
  EXPECT_EQ(audit.gain(), usual_gain);
}

TEST_F(AuditTest, UseIsThatOfTheLastWindow) {
  EXPECT_EQ(audit.used(), std::nullopt);
  pass(3s, 20, 28);
  EXPECT_NEAR(*audit.used(), 28, 0.1);
  pass(3s, 20, std::nullopt);
  EXPECT_NEAR(*audit.used(), 20, 0.1) << "as charged";
  pass(3s, 0, 0);
  EXPECT_EQ(audit.used(), 0);
}

TEST_F(AuditTest, MoreThanTheShareIsToldOnceItLasts) {
  pass(30s, 39, 39);
  EXPECT_FALSE(audit.excess()) << "within the tolerance";
  pass(4s, 40, 60);
  EXPECT_FALSE(audit.excess());
  pass(2s, 40, 60);
  ASSERT_TRUE(audit.excess());
  const double told = audit.excess()->percent;
  EXPECT_NEAR(told, 60, 5);
  pass(5s, 40, 90);
  EXPECT_EQ(audit.excess()->percent, told) << "its text stays the same";
  pass(2s, 30, 30);
  EXPECT_FALSE(audit.excess());
  pass(4s, 40, 60), pass(2s, 30, 30), pass(4s, 40, 60);
  EXPECT_FALSE(audit.excess()) << "it did not last";
}

// Kernels of 8 s, each charged at its beginning, which may be anywhere in a window.
TEST_F(AuditTest, LongKernelsThatAreChargedAreWithinTheShare) {
  pass(700ms, 0, 0);
  for (int i = 0; i < 5; ++i) {
    pass(100ms, 8000, 100);
    pass(7900ms, 0, 100);
    EXPECT_FALSE(audit.excess());
    pass(18700ms, 0, 0);
  }
  // Work beside them that nobody charges is told.
  pass(100ms, 8000, 100);
  pass(7900ms, 0, 100);
  pass(18700ms, 0, 60);
  EXPECT_TRUE(audit.excess());
}

TEST_F(AuditTest, NothingIsConcludedFromATimeWithoutReadings) {
  pass(4s, 40, 60);
  now = now + 60s;
  pass(2s, 40, 60);
  EXPECT_FALSE(audit.excess());
  EXPECT_EQ(audit.gain() > 0, true);
  pass(3s, 40, std::nullopt);
  EXPECT_FALSE(audit.excess());
  // Readings come again, and counts of another daemon begin at zero.
  busy = 0;
  pass(100ms, 40, 60);
  EXPECT_EQ(audit.used(), std::nullopt);
}

TEST_F(AuditTest, ReadingsOfAnIdleMachineAreEnough) {
  audit = Audit(15s), step = 5010ms;
  pass(60s, 40, 60);
  EXPECT_NEAR(*audit.used(), 60, 0.1);
  EXPECT_TRUE(audit.excess());
  EXPECT_GT(audit.gain(), 1200U);
  EXPECT_FALSE(audit.is_stale(now + 14s));
  EXPECT_TRUE(audit.is_stale(now + 16s));
}

TEST_F(AuditTest, GainFollowsHeldProcessesAlone) {
  held = 30;
  pass(20s, 30, 90);
  EXPECT_NEAR(audit.gain(), 1000, 10);
  EXPECT_TRUE(audit.excess());
  // Time that was charged while nobody looked is no measure.
  busy += 3600e9;
  pass(1s, 30, 90);
  EXPECT_NEAR(audit.gain(), 1000, 10);
}

TEST_F(AuditTest, AnOldReadingChangesNothing) {
  pass(3s, 30, 30);
  const auto used = audit.used();
  for (int i = 0; i < 100; ++i) audit.look(now, static_cast<std::int64_t>(busy) * 9, 100, 100, 30);
  EXPECT_EQ(audit.used(), used);
}

}  // namespace
}  // namespace sublet::share
