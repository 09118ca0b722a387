// SPDX-License-Identifier: Apache-2.0
// Decides whether the driver is missing for good. A driver that is being installed returns soon; a driver that many
// tries over minutes did not find is missing. One thread.
#pragma once

#include "pause/parker.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>

namespace sublet::pause {

class DriverAway {
 public:
  static constexpr Duration installed_in = std::chrono::minutes(2);

  // Takes the outcome of an order to park by the driver. True: the driver has been missing for long. `cooldown`: time
  // until the next try of the same lease. An order that ended before it reached the driver says nothing.
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
  // Codes of orders that ended before they reached the driver.
  static constexpr std::array<std::string_view, 11> unasked{
      "stopped", "traced",   "helper",   "withdrawn",    "host_memory",     "measure_timeout",
      "gone",    "no_right", "internal", "not_dumpable", "owner_must_vouch"};
  struct Found {
    Time first, last;  // of a series of tries
  };
  std::optional<Found> found_;
};

}  // namespace sublet::pause
