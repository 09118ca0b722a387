// SPDX-License-Identifier: Apache-2.0
#include "net/connect.h"

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/core/error.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace sublet::net {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using Steady = std::chrono::steady_clock;

struct Found {
  boost::system::error_code error;
  std::vector<Stream::endpoint_type> endpoints;
};

Steady::duration to_steady(Duration d) { return std::chrono::duration_cast<Steady::duration>(d); }

// A lookup cannot be ended. When the time is over, its answer is left to itself.
asio::awaitable<Found> look_up(const Address& address, std::optional<Duration> at_most) {
  struct Asked {
    explicit Asked(const asio::any_io_executor& executor) : resolver(executor), timer(executor) {}
    tcp::resolver resolver;
    asio::steady_timer timer;
    std::optional<Found> found;
  };
  auto asked = std::make_shared<Asked>(co_await asio::this_coro::executor);
  asked->timer.expires_at(at_most ? Steady::now() + to_steady(*at_most) : Steady::time_point::max());
  asked->resolver.async_resolve(
      address.host, std::to_string(address.port),
      [asked](const boost::system::error_code& error, const tcp::resolver::results_type& all) {
        asked->found.emplace(Found{error, {}});
        for (const auto& each : all) asked->found->endpoints.emplace_back(each.endpoint());
        asked->timer.cancel();
      });
  co_await asked->timer.async_wait(quiet);
  if (!asked->found) co_return Found{beast::error::timeout, {}};
  co_return std::move(*asked->found);
}

}  // namespace

std::string Address::shown() const {
  if (!socket.empty()) return socket;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string Address::host_header() const {
  if (!socket.empty()) return "localhost";
  const std::string all = shown();
  return port == (tls ? 443 : 80) ? all.substr(0, all.rfind(':')) : all;
}

bool Address::is_loopback() const {
  return !socket.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

void set_limit(Stream& stream, std::optional<Duration> at_most) {
  if (at_most) stream.expires_after(to_steady(*at_most));
  else stream.expires_never();
}

asio::awaitable<boost::system::error_code> connect(Stream& stream, Address address, std::optional<Duration> at_most) {
  boost::system::error_code no_number;
  Found found;
  if (!address.socket.empty()) {
    found.endpoints.emplace_back(asio::local::stream_protocol::endpoint(address.socket));
  } else {
    const auto number = asio::ip::make_address(address.host == "localhost" ? "127.0.0.1" : address.host, no_number);
    if (!no_number) found.endpoints.emplace_back(tcp::endpoint(number, address.port));
    else found = co_await look_up(address, at_most ? std::optional(*at_most / 2) : std::nullopt);
  }
  if (found.error) co_return found.error;
  // One after the other, each with its share of the time: a blocked address family must not use all of it.
  const int shares = (no_number ? 2 : 1) * static_cast<int>(std::max<std::size_t>(found.endpoints.size(), 1));
  boost::system::error_code last = asio::error::host_not_found;
  for (const auto& endpoint : found.endpoints) {
    set_limit(stream, at_most ? std::optional(*at_most / shares) : std::nullopt);
    auto [error] = co_await stream.async_connect(endpoint, quiet);
    last = error;
    if (!error) break;
    stream.close();  // another endpoint may be of another family
  }
  if (!last) set_limit(stream, at_most);
  co_return last;
}

}  // namespace sublet::net
