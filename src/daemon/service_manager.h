// SPDX-License-Identifier: Apache-2.0
// Messages to the service manager (docs/decisions/0007), and the watchdog of the loop.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <optional>
#include <string_view>

namespace sublet::daemon {

// sd_notify(3): sends one datagram to the service manager's socket, if there is one.
void tell_service_manager(std::string_view message);

// The listening socket that the service manager passes (sd_listen_fds(3)); -1: none. Children do not inherit it. An
// error if it passes something else. Call once, before threads start.
Result<int> passed_socket();

// Reports from the loop that the daemon is alive, twice in each interval of the service manager
// (sd_watchdog_enabled(3)). A loop that hangs reports nothing. Does nothing without a watchdog.
class Watchdog {
 public:
  explicit Watchdog(boost::asio::io_context& io);

 private:
  void beat();

  boost::asio::steady_timer timer_;
  std::optional<std::chrono::microseconds> interval_;
};

}  // namespace sublet::daemon
