// SPDX-License-Identifier: Apache-2.0
#include "events/http_post.h"

#include "net/exchange.h"

#include <fmt/format.h>
#include <unistd.h>
#include <boost/asio/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/ssl/stream.hpp>
// The rest of Asio is compiled in cmake/asio.cpp. Only this folder needs TLS.
#include <boost/asio/ssl/impl/src.hpp>

#include <algorithm>
#include <cstdlib>

namespace sublet::events {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using net::quiet;

constexpr Duration longest_wish = std::chrono::minutes(10);  // of Retry-After

net::Request request_of(const net::Address& address, Message message) {
  net::Request request{.method = "POST", .target = address.path, .headers = std::move(message.headers)};
  request.headers.emplace_back("User-Agent", "sublet/" SUBLET_VERSION);
  request.headers.emplace_back("Content-Type", std::move(message.content_type));
  request.body = std::move(message.body);
  return request;
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

std::string problem_text(const boost::system::error_code& error, const net::Address& address) {
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
  net::Request request = request_of(address_, std::move(message));
  const net::Limits limits{.at_most = at_most};  // the body is not read
  net::Answer answer;
  if (address_.tls) {
    if (const Status read = read_certificates(); !read) co_return Posted{0, read.error().detail};
    answer = co_await call_by_tls(std::move(request), limits);
  } else {
    net::Hooks none;
    answer = co_await net::call(address_, std::move(request), limits, std::move(none));
  }
  if (answer.status == 0) co_return Posted{0, problem_text(answer.error, address_)};
  if (answer.retry_after) answer.retry_after = std::min(*answer.retry_after, longest_wish);
  co_return Posted{answer.status, {}, answer.retry_after};
}

Status Poster::read_certificates() {
  if (tls_) return {};
  const std::string file = certificates();
  boost::system::error_code unread = asio::error::not_found;
  auto made = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  if (!file.empty()) made->load_verify_file(file, unread);
  if (unread) return unavailable("no CA certificates are found: install ca-certificates, or set SSL_CERT_FILE");
  made->set_verify_mode(asio::ssl::verify_peer);
  tls_ = std::move(made);
  return {};
}

asio::awaitable<net::Answer> Poster::call_by_tls(net::Request request, net::Limits limits) {
  const auto executor = co_await asio::this_coro::executor;
  net::Stream stream(executor);
  net::Answer answer;
  answer.error = co_await net::connect(stream, address_, limits.at_most);
  if (answer.error) co_return answer;
  asio::ssl::stream<net::Stream&> tls(stream, *tls_);
  tls.set_verify_callback(asio::ssl::host_name_verification(address_.host));
  SSL_set_tlsext_host_name(tls.native_handle(), address_.host.c_str());
  if (auto [error] = co_await tls.async_handshake(asio::ssl::stream_base::client, quiet); error) {
    tls_.reset();  // the certificates may be newer by now
    answer.error = error;
    co_return answer;
  }
  net::Reader none;
  co_return co_await net::exchange(tls, stream, address_, std::move(request), limits, std::move(none));
}

}  // namespace sublet::events
