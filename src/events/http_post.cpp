// SPDX-License-Identifier: Apache-2.0
#include "events/http_post.h"

#include "events/connect.h"

#include <fmt/format.h>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

namespace sublet::events {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

constexpr std::uint64_t longest_answer = 64 * 1024;  // its content does not matter

bhttp::request<bhttp::string_body> request_of(const Address& address, const Message& message) {
  bhttp::request<bhttp::string_body> request{bhttp::verb::post, address.path, 11};
  const bool usual = address.port == (address.tls ? 443 : 80);
  request.set(bhttp::field::host, usual ? address.host : address.shown());
  request.set(bhttp::field::user_agent, "sublet/" SUBLET_VERSION);
  request.set(bhttp::field::content_type, message.content_type);
  request.set(bhttp::field::connection, "close");
  for (const auto& [name, value] : message.headers) request.set(name, value);
  request.body() = message.body;
  request.prepare_payload();
  return request;
}

template <typename AnyStream>
asio::awaitable<Posted> exchange(AnyStream& stream, const Address& address, const Message& message) {
  const auto request = request_of(address, message);
  auto [error, written] = co_await bhttp::async_write(stream, request, quiet);
  if (error) co_return Posted{0, problem_text(error, address)};
  beast::flat_buffer buffer;
  bhttp::response_parser<bhttp::string_body> parser;
  parser.body_limit(longest_answer);
  auto [failed, read] = co_await bhttp::async_read_header(stream, buffer, parser, quiet);
  if (failed) co_return Posted{0, problem_text(failed, address)};
  co_return Posted{static_cast<int>(parser.get().result_int()), {}};
}

}  // namespace

std::string problem_text(const boost::system::error_code& error, const Address& address) {
  if (error == beast::error::timeout) return fmt::format("{} does not answer in time", address.shown());
  if (error == boost::system::errc::operation_not_permitted)
    return fmt::format(
        "this machine does not let subletd connect to {}: its unit allows loopback only (docs/events.md)",
        address.shown());
  return fmt::format("{}: {}", address.shown(), error.message());
}

asio::awaitable<Posted> post(Address address, Message message, Duration at_most) {
  auto connected = co_await connect(address, at_most);
  if (auto* error = std::get_if<boost::system::error_code>(&connected))
    co_return Posted{0, problem_text(*error, address)};
  beast::tcp_stream plain = std::move(std::get<beast::tcp_stream>(connected));
  if (!address.tls) co_return co_await exchange(plain, address, message);
  asio::ssl::context context(asio::ssl::context::tls_client);
  boost::system::error_code ignored;
  context.set_default_verify_paths(ignored);
  context.set_verify_mode(asio::ssl::verify_peer);
  beast::ssl_stream<beast::tcp_stream> stream(std::move(plain), context);
  stream.set_verify_callback(asio::ssl::host_name_verification(address.host));
  SSL_set_tlsext_host_name(stream.native_handle(), address.host.c_str());
  auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::client, quiet);
  if (error) co_return Posted{0, problem_text(error, address)};
  co_return co_await exchange(stream, address, message);
}

}  // namespace sublet::events
