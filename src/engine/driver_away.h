// SPDX-License-Identifier: Apache-2.0
// Whether no driver is there for good. One that is being installed is there in a moment; one that each of many tries
// has found away for minutes is not. Of one thread.
#pragma once

#include "engine/parker.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>

namespace sublet::engine {

class DriverAway {
 public:
  static constexpr Duration installed_in = std::chrono::minutes(2);

  // What came of an order to park by the driver. True: it has been away for long by now. `cooldown`: after which who
  // was not parked for that is tried again. What does not come as far as asking the driver says nothing of it.
  bool lasts(const ParkOutcome& outcome, Duration cooldown, Time now) {
    if (outcome.code != "no_driver") {
      if (std::ranges::find(unasked, outcome.code) == unasked.end()) found_.reset();
      return false;
    }
    if (!found_ || now - found_->last > std::chrono::minutes(1) + 2 * cooldown) found_ = {now, now};
    found_->last = now;
    return now - found_->first >= installed_in;
  }

 private:
  // With these an order has ended before it came to a driver.
  static constexpr std::array<std::string_view, 11> unasked{
      "stopped", "traced",   "helper",   "withdrawn",    "host_memory",     "measure_timeout",
      "gone",    "no_right", "internal", "not_dumpable", "owner_must_vouch"};
  struct Found {
    Time first, last;  // in a row of tries
  };
  std::optional<Found> found_;
};

}  // namespace sublet::engine
