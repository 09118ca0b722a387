// SPDX-License-Identifier: Apache-2.0
// What the service manager is told (docs/decisions/0007), and how it learns that the loop still turns.
#pragma once

#include "base/units.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <optional>
#include <string_view>

namespace sublet::daemon {

// sd_notify(3): one datagram to the socket that the service manager names, if it does.
void tell_service_manager(std::string_view message);

// Says that it is alive from the loop itself, twice in each interval that the service manager allows for
// (sd_watchdog_enabled(3)): a loop that hangs says nothing. Nothing at all where none is wanted.
class Watchdog {
 public:
  explicit Watchdog(boost::asio::io_context& io);

 private:
  void beat();

  boost::asio::steady_timer timer_;
  std::optional<std::chrono::microseconds> interval_;
};

}  // namespace sublet::daemon
