// SPDX-License-Identifier: Apache-2.0
#include "events/connect.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
// The rest of Asio is compiled in cmake/asio.cpp. Only this folder needs TLS.
#include <boost/asio/ssl/impl/src.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace sublet::events {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using Steady = std::chrono::steady_clock;

struct Found {
  boost::system::error_code error;
  std::vector<tcp::endpoint> endpoints;
};

// A lookup cannot be ended. When the time is over, its answer is left to itself.
asio::awaitable<Found> look_up(const Address& address, Duration at_most) {
  struct Asked {
    explicit Asked(const asio::any_io_executor& executor) : resolver(executor), timer(executor) {}
    tcp::resolver resolver;
    asio::steady_timer timer;
    std::optional<Found> found;
  };
  auto asked = std::make_shared<Asked>(co_await asio::this_coro::executor);
  asked->timer.expires_after(std::chrono::duration_cast<Steady::duration>(at_most));
  asked->resolver.async_resolve(
      address.host, std::to_string(address.port),
      [asked](const boost::system::error_code& error, const tcp::resolver::results_type& all) {
        asked->found.emplace(Found{error, {all.begin(), all.end()}});
        asked->timer.cancel();
      });
  co_await asked->timer.async_wait(quiet);
  if (!asked->found) co_return Found{beast::error::timeout, {}};
  co_return std::move(*asked->found);
}

}  // namespace

asio::awaitable<std::variant<beast::tcp_stream, boost::system::error_code>> connect(Address address, Duration at_most) {
  boost::system::error_code no_number;
  const auto number = asio::ip::make_address(address.host == "localhost" ? "127.0.0.1" : address.host, no_number);
  Found found;
  if (!no_number) found.endpoints = {tcp::endpoint(number, address.port)};
  else found = co_await look_up(address, at_most / 2);
  if (found.error) co_return found.error;
  // One after the other, each with its share of the time: a blocked address family must not use all of it.
  const Duration share =
      at_most / (no_number ? 2 : 1) / static_cast<int>(std::max<std::size_t>(found.endpoints.size(), 1));
  boost::system::error_code last = asio::error::host_not_found;
  for (const tcp::endpoint& endpoint : found.endpoints) {
    beast::tcp_stream stream(co_await asio::this_coro::executor);
    stream.expires_after(std::chrono::duration_cast<Steady::duration>(share));
    auto [error] = co_await stream.async_connect(endpoint, quiet);
    last = error;
    if (error) continue;
    stream.expires_after(std::chrono::duration_cast<Steady::duration>(at_most));
    co_return stream;
  }
  co_return last;
}

}  // namespace sublet::events
