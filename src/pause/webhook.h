// SPDX-License-Identifier: Apache-2.0
// Webhook calls to cooperative programs, by HTTP on this machine. The server must belong to the lease's user or to
// root: the daemon can reach sockets that the user may not reach, and must not lend this right.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "net/connect.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::pause {

// The address of a webhook: "http://127.0.0.1:8080/path", "http://[::1]:8080/path", "http://localhost:8080/path", or
// "unix:/run/app.sock:/path" (the path after the socket's name is optional).
// The host is 127.0.0.1 or ::1.
Result<net::Address> parse_webhook(std::string_view url);  // BadRequest: not on this machine, or not a valid URL

struct WebhookReply {
  int status = 0;  // 0: there was no answer
  std::string body{};
  std::string problem{};  // why there was no answer: a part of a sentence
  bool told = false;      // something was sent, so the server may know of the call
};

// POSTs the JSON body, and waits at most `at_most` for the complete answer (running time of this process, see
// Deadline). `url` must have been parsed before.
boost::asio::awaitable<WebhookReply> call_webhook(boost::asio::io_context& io, std::string url, std::uint32_t uid,
                                                  std::string body, Duration at_most);

}  // namespace sublet::pause
