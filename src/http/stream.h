// SPDX-License-Identifier: Apache-2.0
// A connection over a Unix socket or TCP. Only session.cpp, server.cpp, event_stream.cpp and compatible_server.cpp know
// Beast.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>

namespace sublet::http {

using Protocol = boost::asio::generic::stream_protocol;
using Stream = boost::beast::basic_stream<Protocol>;

constexpr auto quiet = boost::asio::as_tuple(boost::asio::use_awaitable);

// Returns when the peer has closed its end, or after a second if it sends more.
boost::asio::awaitable<void> peer_gone(Stream& stream);

}  // namespace sublet::http
