// SPDX-License-Identifier: Apache-2.0
// The connection as the server's own files see it: a Unix socket or TCP, behind one type. Only they know Beast:
// session.cpp, server.cpp, event_stream.cpp.
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

// Returns when the peer has closed its end, within a second where it sends more before that.
boost::asio::awaitable<void> peer_gone(Stream& stream);

}  // namespace sublet::http
