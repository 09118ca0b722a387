// SPDX-License-Identifier: Apache-2.0
// One POST to a server, over TCP or TLS. Never follows a redirect.
#pragma once

#include "base/units.h"
#include "events/message.h"

#include <boost/asio/awaitable.hpp>

namespace sublet::events {

struct Posted {
  int status = 0;       // 0: there was no answer
  std::string problem;  // why there was none, as a part of a sentence
  // 2xx.
  bool taken() const { return status >= 200 && status < 300; }
  // A repetition may help: no answer, 408, 429 or 5xx.
  bool passing() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

// The server's certificate must be valid for its host. `at_most` is the time for everything.
boost::asio::awaitable<Posted> post(Address address, Message message, Duration at_most);

// Describes an error of a connection; a refusal by the unit's IPAddressDeny= gets a remedy.
std::string problem_text(const boost::system::error_code& error, const Address& address);

}  // namespace sublet::events
