// SPDX-License-Identifier: Apache-2.0
// The common part of the TCP listeners. Loop thread.
#pragma once

#include "base/error.h"

#include <boost/asio/ip/tcp.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::http {

// Binds and listens. An error names the address and the key of the configuration that it comes from.
Status listen_on(boost::asio::ip::tcp::acceptor& acceptor, const std::string& host, std::uint16_t port,
                 std::string_view key);

// The token after "Bearer" in any case (RFC 9110, 11.1); "" for another scheme.
std::string_view bearer_token(std::string_view authorization);

}  // namespace sublet::http
