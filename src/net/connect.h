// SPDX-License-Identifier: Apache-2.0
// Places of servers, and connections to them. Belongs to the loop thread.
#pragma once

#include "base/units.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::net {

struct Address {
  bool tls = false;
  std::string socket;  // path of a Unix socket; "": host and port count
  std::string host;    // name or number, without brackets
  std::uint16_t port = 0;
  std::string path = "/";  // with the query; HTTP only

  std::string shown() const;        // "ntfy.sh:443", "[::1]:80" or the socket; nothing that is a secret
  std::string host_header() const;  // for HTTP: without the usual port
  bool is_loopback() const;         // of this machine, by its number or as localhost
};

constexpr auto quiet = boost::asio::as_tuple(boost::asio::use_awaitable);

using Stream = boost::beast::basic_stream<boost::asio::generic::stream_protocol>;

// Sets the time limit of the stream's next operations. Unset: none.
void set_limit(Stream& stream, std::optional<Duration> at_most);

// Returns the last error, and none for a connection. It has the time limit `at_most` again. The path of a Unix socket
// must fit.
boost::asio::awaitable<boost::system::error_code> connect(Stream& stream, Address address,
                                                          std::optional<Duration> at_most);

}  // namespace sublet::net
