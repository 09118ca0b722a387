// SPDX-License-Identifier: Apache-2.0
#include "pause/driver_away.h"

#include <gtest/gtest.h>

namespace sublet::pause {
namespace {

using namespace std::chrono_literals;
using Kind = ParkOutcome::Kind;

ParkOutcome refused(std::string code) { return {.kind = Kind::undone, .code = std::move(code)}; }

TEST(DriverAway, LastsOnceEachOfManyTriesHasFoundItSo) {
  for (const Duration cooldown : {Duration(10s), Duration(10min)}) {
    DriverAway away;
    Time now{};
    EXPECT_FALSE(away.lasts(refused("no_driver"), cooldown, now)) << "it may be on its way";
    Time tried = now;
    while (tried - now < DriverAway::installed_in) {
      tried = tried + cooldown;
      const bool long_enough = tried - now >= DriverAway::installed_in;
      // An order for a stopped program, or without a helper, does not reach the driver.
      EXPECT_FALSE(away.lasts(refused("stopped"), cooldown, tried));
      EXPECT_EQ(away.lasts(refused("no_driver"), cooldown, tried), long_enough);
    }
  }
}

TEST(DriverAway, BeginsAnewOnceItWasThereOrNobodyHasLooked) {
  for (const std::string was_there : {"", "timeout", "nobody looked"}) {
    DriverAway away;
    EXPECT_FALSE(away.lasts(refused("no_driver"), 10s, Time{}));
    const bool looked = was_there != "nobody looked";
    const Time later = Time{} + 1min + (looked ? 0s : 21s);
    if (looked) {
      const Kind kind = was_there.empty() ? Kind::done : Kind::undone;
      EXPECT_FALSE(away.lasts({.kind = kind, .code = was_there}, 10s, later));
    }
    EXPECT_FALSE(away.lasts(refused("no_driver"), 10s, later));
    EXPECT_FALSE(away.lasts(refused("no_driver"), 10s, later + 1min)) << "long since the first, not since this one";
    EXPECT_TRUE(away.lasts(refused("no_driver"), 10s, later + 2min));
  }
}

}  // namespace
}  // namespace sublet::pause
