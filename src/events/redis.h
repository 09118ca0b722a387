// SPDX-License-Identifier: Apache-2.0
// Publishes to a Redis server. hiredis writes and reads the protocol; the socket belongs to the daemon's loop.
#pragma once

#include "base/units.h"
#include "events/target.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::events {

// The result of some commands.
struct Published {
  std::size_t answered = 0;  // from the first
  std::size_t refused = 0;   // of those: answered with an error
  std::string problem{};     // the first refusal, or why the next is not answered; "": all are taken
  bool broken = false;       // the connection failed
};

class Redis {
 public:
  explicit Redis(Address address) : address_(std::move(address)) {}

  // Publishes each (channel, text) in order, over the connection of the last call or a new one. `at_most` is the time
  // for everything. Must not be called while a call runs.
  boost::asio::awaitable<Published> publish(std::vector<std::pair<std::string, std::string>> messages,
                                            Duration at_most);

 private:
  using Command = std::vector<std::string>;
  boost::asio::awaitable<Published> open(Duration at_most);
  boost::asio::awaitable<Published> send(const std::vector<Command>& commands, Duration at_most);

  Address address_;
  std::optional<net::Stream> stream_;
};

}  // namespace sublet::events
