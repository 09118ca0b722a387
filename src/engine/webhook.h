// SPDX-License-Identifier: Apache-2.0
// Calls of a program that yields by itself, by HTTP on this machine. Whoever serves them must be the lease's user (or
// root): the daemon may reach sockets that the user may not, and must not lend its reach to anybody.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::engine {

// Where it is served: "http://127.0.0.1:8080/path", "http://[::1]:8080/path", "http://localhost:8080/path", or
// "unix:/run/app.sock:/path" (the path after the socket's name may be missing).
struct WebhookAddress {
  std::string socket{};  // name of a Unix socket; "" for TCP
  std::string host{};    // 127.0.0.1 or ::1
  std::uint16_t port = 0;
  std::string path = "/";
};
Result<WebhookAddress> parse_webhook(std::string_view url);  // BadRequest: not on this machine, or no such URL

struct WebhookReply {
  int status = 0;  // 0: there was none
  std::string body{};
  std::string problem{};  // why there was none: a part of a sentence
  bool told = false;      // something was sent: whoever serves there may know of it
};

// POSTs the JSON body and waits at most so long for the whole answer (of the time in which this process runs, see
// Patience). `url` has been parsed before.
boost::asio::awaitable<WebhookReply> call_webhook(boost::asio::io_context& io, std::string url, std::uint32_t uid,
                                                  std::string body, Duration at_most);

}  // namespace sublet::engine
