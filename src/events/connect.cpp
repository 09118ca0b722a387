// SPDX-License-Identifier: Apache-2.0
#include "events/connect.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/this_coro.hpp>
// The rest of Asio is compiled in cmake/asio.cpp. Only this folder needs TLS.
#include <boost/asio/ssl/impl/src.hpp>

namespace sublet::events {

namespace asio = boost::asio;
using asio::ip::tcp;

asio::awaitable<std::variant<boost::beast::tcp_stream, boost::system::error_code>> connect(Address address,
                                                                                           Duration at_most) {
  const auto executor = co_await asio::this_coro::executor;
  boost::beast::tcp_stream stream(executor);
  stream.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(at_most));
  boost::system::error_code no_number;
  const auto number = asio::ip::make_address(address.host == "localhost" ? "127.0.0.1" : address.host, no_number);
  boost::system::error_code error;
  if (!no_number) {
    std::tie(error) = co_await stream.async_connect(tcp::endpoint(number, address.port), quiet);
  } else {
    tcp::resolver resolver(executor);
    auto [unknown, found] = co_await resolver.async_resolve(address.host, std::to_string(address.port), quiet);
    if (unknown) co_return unknown;
    boost::system::error_code failed;
    tcp::endpoint used;
    std::tie(failed, used) = co_await stream.async_connect(found, quiet);
    error = failed;
  }
  if (error) co_return error;
  co_return stream;
}

}  // namespace sublet::events
