// SPDX-License-Identifier: Apache-2.0
#include "events/http_post.h"

#include "base/number.h"
#include "events/connect.h"

#include <fmt/format.h>
#include <unistd.h>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>

#include <algorithm>
#include <cstdlib>

namespace sublet::events {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;

constexpr Duration longest_wish = std::chrono::minutes(10);  // of Retry-After

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

// Only seconds; a date is left out.
std::optional<Duration> wish_of(const bhttp::response<bhttp::string_body>& answer) {
  const auto text = answer[bhttp::field::retry_after];
  const auto seconds = parse_number<std::int64_t>({text.data(), text.size()});
  if (!seconds || *seconds < 0) return {};
  return std::min<Duration>(std::chrono::seconds(std::min<std::int64_t>(*seconds, 86'400)), longest_wish);
}

template <typename AnyStream>
asio::awaitable<Posted> exchange(AnyStream& stream, const Address& address, const Message& message) {
  const auto request = request_of(address, message);
  auto [error, written] = co_await bhttp::async_write(stream, request, quiet);
  if (error) co_return Posted{0, problem_text(error, address)};
  beast::flat_buffer buffer;
  bhttp::response_parser<bhttp::string_body> parser;
  parser.body_limit(boost::none);  // the body is not read
  auto [failed, read] = co_await bhttp::async_read_header(stream, buffer, parser, quiet);
  if (failed) co_return Posted{0, problem_text(failed, address)};
  co_return Posted{static_cast<int>(parser.get().result_int()), {}, wish_of(parser.get())};
}

// A static OpenSSL knows only the build machine's place.
std::string certificates() {
  if (const char* named = std::getenv("SSL_CERT_FILE"); named != nullptr && *named != '\0') return named;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (::access(file, R_OK) == 0) return file;
  return {};
}

}  // namespace

std::string problem_text(const boost::system::error_code& error, const Address& address) {
  std::string text = error == beast::error::timeout ? fmt::format("{} does not answer in time", address.shown())
                                                    : fmt::format("{}: {}", address.shown(), error.message());
  // The unit's IPAddressDeny= drops packets, so that a blocked connection looks like a server that is away.
  const bool may_be_blocked = error == beast::error::timeout || error == asio::error::host_not_found ||
                              error == asio::error::host_not_found_try_again ||
                              error == boost::system::errc::operation_not_permitted;
  if (may_be_blocked && !address.is_loopback())
    text += "; the packaged unit lets subletd reach this machine only (docs/events.md)";
  return text;
}

asio::awaitable<Posted> Poster::post(Message message, Duration at_most) {
  if (address_.tls) co_return co_await post_by_tls(std::move(message), at_most);
  auto connected = co_await connect(address_, at_most);
  if (auto* error = std::get_if<boost::system::error_code>(&connected))
    co_return Posted{0, problem_text(*error, address_)};
  co_return co_await exchange(std::get<beast::tcp_stream>(connected), address_, message);
}

asio::awaitable<Posted> Poster::post_by_tls(Message message, Duration at_most) {
  if (!tls_) {
    const std::string file = certificates();
    boost::system::error_code unread = asio::error::not_found;
    auto made = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
    if (!file.empty()) made->load_verify_file(file, unread);
    if (unread) co_return Posted{0, "no CA certificates are found: install ca-certificates, or set SSL_CERT_FILE"};
    made->set_verify_mode(asio::ssl::verify_peer);
    tls_ = std::move(made);
  }
  auto connected = co_await connect(address_, at_most);
  if (auto* error = std::get_if<boost::system::error_code>(&connected))
    co_return Posted{0, problem_text(*error, address_)};
  beast::ssl_stream<beast::tcp_stream> stream(std::move(std::get<beast::tcp_stream>(connected)), *tls_);
  stream.set_verify_callback(asio::ssl::host_name_verification(address_.host));
  SSL_set_tlsext_host_name(stream.native_handle(), address_.host.c_str());
  auto [error] = co_await stream.async_handshake(asio::ssl::stream_base::client, quiet);
  if (error) {
    std::string text = problem_text(error, address_);
    tls_.reset();  // the certificates may be newer by now
    co_return Posted{0, std::move(text)};
  }
  co_return co_await exchange(stream, address_, message);
}

}  // namespace sublet::events
