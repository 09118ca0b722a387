// SPDX-License-Identifier: Apache-2.0
#include "http/listen.h"

#include <fmt/format.h>
#include <boost/beast/core/string.hpp>

#include <algorithm>

namespace sublet::http {

using boost::asio::ip::tcp;

Status listen_on(tcp::acceptor& acceptor, const std::string& host, std::uint16_t port, std::string_view key) {
  boost::system::error_code error;
  const tcp::endpoint endpoint(boost::asio::ip::make_address(host, error), port);
  if (!error) acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (!error) return {};
  return unavailable(fmt::format("cannot listen on {} {}:{}: {}", key, host, port, error.message()),
                     fmt::format("choose another port, or leave {} empty", key));
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view scheme = "Bearer ";
  if (!boost::beast::iequals(authorization.substr(0, scheme.size()), scheme)) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', scheme.size()), authorization.size()));
  return authorization;
}

}  // namespace sublet::http
