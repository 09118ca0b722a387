// SPDX-License-Identifier: Apache-2.0
// The common part of the listeners. Loop thread.
#pragma once

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "http/stream.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::http {

// Binds and listens. An error names the address and the key of the configuration that it comes from.
Status listen_on(boost::asio::ip::tcp::acceptor& acceptor, const std::string& host, std::uint16_t port,
                 std::string_view key);

// Calls `welcome` with each new connection, until the acceptor is closed. Its owner lives until then.
template <typename Acceptor, typename Welcome>
boost::asio::awaitable<void> accept_connections(Acceptor& acceptor, Welcome welcome) {
  boost::asio::steady_timer pause(acceptor.get_executor());
  std::optional<std::int64_t> said_ns;
  while (true) {
    auto [error, socket] = co_await acceptor.async_accept(quiet);
    if (error == boost::asio::error::operation_aborted || error == boost::asio::error::bad_descriptor) co_return;
    if (error) {  // out of descriptors, most likely: those who are connected go on, the others wait in the backlog
      const std::int64_t now_ns = monotonic_ns();
      // It may come and go with every connection that ends.
      if (!said_ns || now_ns - *said_ns >= Duration(std::chrono::minutes(1)).count()) {
        log::warn("cannot accept new connections: {}; open connections are served, new ones wait", error.message());
        said_ns = now_ns;
      }
      pause.expires_after(std::chrono::milliseconds(200));
      co_await pause.async_wait(quiet);
      continue;
    }
    welcome(std::move(socket));
  }
}

// The token after "Bearer" in any case (RFC 9110, 11.1); "" for another scheme.
std::string_view bearer_token(std::string_view authorization);

}  // namespace sublet::http
