// SPDX-License-Identifier: Apache-2.0
// Connects to a server by name.
#pragma once

#include "base/units.h"
#include "events/target.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>

#include <variant>

namespace sublet::events {

constexpr auto quiet = boost::asio::as_tuple(boost::asio::use_awaitable);

// The stream keeps what is left of `at_most` as its time limit.
boost::asio::awaitable<std::variant<boost::beast::tcp_stream, boost::system::error_code>> connect(Address address,
                                                                                                  Duration at_most);

}  // namespace sublet::events
