// SPDX-License-Identifier: Apache-2.0
// Publishes to a Redis server. hiredis writes and reads the protocol; the socket belongs to the daemon's loop.
#pragma once

#include "base/units.h"
#include "events/target.h"

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::events {

class Redis {
 public:
  explicit Redis(Address address) : address_(std::move(address)) {}

  // Publishes each (channel, text) in order, over the connection of the last call or a new one. Returns "", or why the
  // server has not taken all of them; then the connection is closed. `at_most` is the time for everything.
  boost::asio::awaitable<std::string> publish(std::vector<std::pair<std::string, std::string>> messages,
                                              Duration at_most);

 private:
  using Command = std::vector<std::string>;
  boost::asio::awaitable<std::string> open(Duration at_most);
  boost::asio::awaitable<std::string> send(const std::vector<Command>& commands, Duration at_most);

  Address address_;
  std::optional<boost::beast::tcp_stream> stream_;
};

}  // namespace sublet::events
