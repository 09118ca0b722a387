// SPDX-License-Identifier: Apache-2.0
#include "kube/api_server.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/number.h"
#include "base/text.h"
#include "kube/pod.h"

#include <fmt/format.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <boost/beast/http.hpp>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sublet::kube {
namespace {

namespace http = boost::beast::http;
using nlohmann::json;

constexpr std::size_t piece = 16'384, longest_body = 64U << 20U;

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  std::string all = text.str();
  while (!all.empty() && (all.back() == '\n' || all.back() == '\r' || all.back() == ' ')) all.pop_back();
  return all;
}

Error unreachable(const ApiAddress& address, const std::string& why) {
  return unavailable(fmt::format("the API server {}:{} does not answer: {}", address.host, address.port, why),
                     "the agent asks again; check --api-server and the network of the node");
}

bool is_ready(int fd, short events, std::int64_t deadline_ns) {
  pollfd one{fd, events, 0};
  for (;;) {
    const std::int64_t left = (deadline_ns - monotonic_ns()) / 1'000'000;
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

Result<Fd> dial(const ApiAddress& address, std::int64_t deadline_ns) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int problem = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found))
    return unreachable(address, ::gai_strerror(problem));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
  int last = 0;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    Fd fd(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at->ai_protocol));
    if (!fd) continue;
    if (::connect(fd.get(), at->ai_addr, at->ai_addrlen) == 0) return fd;
    last = errno;
    if (last != EINPROGRESS) continue;
    socklen_t size = sizeof last;
    if (!is_ready(fd.get(), POLLOUT, deadline_ns)) last = ETIMEDOUT;
    else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &last, &size) == 0 && last == 0) return fd;
  }
  return unreachable(address, from_errno("connect", last).detail);
}

std::string tls_problem() {
  char text[256] = "the connection was closed";
  if (const unsigned long code = ::ERR_get_error()) ::ERR_error_string_n(code, text, sizeof text);
  return text;
}

// A connection, with or without TLS, whose operations end at a deadline.
class Wire {
 public:
  Wire(Fd fd, SSL* tls, std::int64_t deadline_ns) : fd_(std::move(fd)), tls_(tls, ::SSL_free), deadline_(deadline_ns) {}

  // "" after success.
  std::string shake_hands() {
    for (;;) {
      const int done = ::SSL_connect(tls_.get());
      if (done == 1) return {};
      if (const std::string problem = wait_after(done); !problem.empty()) return problem;
    }
  }

  std::string send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t done = tls_ ? ::SSL_write(tls_.get(), text.data(), static_cast<int>(text.size()))
                                : ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (done > 0) text.remove_prefix(static_cast<std::size_t>(done));
      else if (std::string problem = wait_after(static_cast<int>(done), POLLOUT); !problem.empty()) return problem;
    }
    return {};
  }

  // Bytes read; 0 at the end of the connection. `problem` is set after a failure.
  std::size_t receive(char* into, std::size_t size, std::string& problem) {
    for (;;) {
      const ssize_t done =
          tls_ ? ::SSL_read(tls_.get(), into, static_cast<int>(size)) : ::recv(fd_.get(), into, size, 0);
      if (done > 0) return static_cast<std::size_t>(done);
      if (tls_ ? ::SSL_get_error(tls_.get(), static_cast<int>(done)) == SSL_ERROR_ZERO_RETURN : done == 0) return 0;
      problem = wait_after(static_cast<int>(done), POLLIN);
      if (!problem.empty()) return 0;
    }
  }

 private:
  Fd fd_;
  std::unique_ptr<SSL, decltype(&::SSL_free)> tls_;
  std::int64_t deadline_;

  std::string wait_after(int done, short events = POLLIN) {
    if (tls_) {
      const int why = ::SSL_get_error(tls_.get(), done);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) return tls_problem();
      events = why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    } else if (errno != EAGAIN && errno != EINTR) {
      return from_errno("socket", errno).detail;
    }
    return is_ready(fd_.get(), events, deadline_) ? "" : "it took too long";
  }
};

Error refusal(const std::string& what, const ApiReply& reply) {
  const std::string why = text_at(reply.body, {"message"});
  const std::string detail = fmt::format("the API server refuses {}: {} {}", what, reply.status, printable(why));
  if (reply.status == 404) return not_found(detail);
  if (reply.status == 409) return Error{Code::InUse, detail, {}};
  if (reply.status == 403) return denied(detail, "check the rights of the agent's service account");
  // A token that is replaced, and a server that has too many calls, say nothing about the object.
  if (reply.status == 401) return unavailable(detail, "check the token of the agent's service account (--token-file)");
  if (reply.status == 429) return unavailable(detail, "the agent asks again");
  return reply.status < 500 ? bad_request(detail) : unavailable(detail);
}

}  // namespace

Result<ApiAddress> parse_api_address(const std::string& url) {
  ApiAddress address;
  if (url.empty()) {
    const char* host = std::getenv("KUBERNETES_SERVICE_HOST");
    const char* port = std::getenv("KUBERNETES_SERVICE_PORT");
    if (host == nullptr || port == nullptr)
      return bad_request("the API server is not known", "give --api-server, or run the agent in a pod");
    address.host = host;
    address.port = parse_number<std::uint16_t>(port).value_or(443);
    return address;
  }
  std::string_view rest = url;
  if (rest.starts_with("https://")) rest.remove_prefix(8);
  else if (rest.starts_with("http://")) rest.remove_prefix(7), address.tls = false;
  else
    return bad_request(fmt::format("--api-server: '{}' is no URL", printable(url)),
                       "for example https://master.example:6443");
  const auto slash = std::min(rest.find('/'), rest.size());
  address.path = rest.substr(slash);
  while (address.path.ends_with('/')) address.path.pop_back();
  std::string_view place = rest.substr(0, slash);
  address.port = address.tls ? 443 : 80;
  const auto colon = place.rfind(':');
  if (colon != std::string_view::npos && place.find(']', colon) == std::string_view::npos) {
    const auto port = parse_number<std::uint16_t>(place.substr(colon + 1));
    if (!port) return bad_request(fmt::format("--api-server: '{}' has no port", printable(url)));
    address.port = *port;
    place = place.substr(0, colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  address.host = place;
  if (!address.tls && address.host != "127.0.0.1" && address.host != "::1" && address.host != "localhost")
    return bad_request(
        fmt::format("--api-server: '{}' has no TLS, and the token would cross in plain text", printable(url)),
        "use https, or a loopback address");
  return address;
}

ApiServer::ApiServer(ApiAddress address, std::string token_file, std::string ca_file)
    : address_(std::move(address)), token_file_(std::move(token_file)), ca_file_(std::move(ca_file)) {}

Result<std::shared_ptr<SSL_CTX>> ApiServer::context() const {
  std::shared_ptr<SSL_CTX> made(::SSL_CTX_new(::TLS_client_method()), ::SSL_CTX_free);
  ::SSL_CTX_set_min_proto_version(made.get(), TLS1_2_VERSION);
  ::SSL_CTX_set_verify(made.get(), SSL_VERIFY_PEER, nullptr);
  if (::SSL_CTX_load_verify_locations(made.get(), ca_file_.c_str(), nullptr) != 1)
    return bad_request(fmt::format("the certificates in '{}' cannot be read: {}", ca_file_, tls_problem()),
                       "give --ca-file");
  return made;
}

Result<ApiReply> ApiServer::exchange(const std::string& request) const {
  const std::int64_t deadline = monotonic_ns() + longest_call.count();
  auto fd = dial(address_, deadline);
  if (!fd) return fd.error();
  SSL* tls = nullptr;
  std::shared_ptr<SSL_CTX> keys;
  if (address_.tls) {
    auto made = context();
    if (!made) return made.error();
    keys = *made;
    tls = ::SSL_new(keys.get());
    ::SSL_set_fd(tls, fd->get());
    ::SSL_set_tlsext_host_name(tls, address_.host.c_str());
    // A number is compared with the numbers in the certificate, a name with its names.
    if (::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(tls), address_.host.c_str()) != 1)
      ::SSL_set1_host(tls, address_.host.c_str());
  }
  Wire wire(std::move(*fd), tls, deadline);
  if (tls != nullptr)
    if (const std::string problem = wire.shake_hands(); !problem.empty()) return unreachable(address_, problem);
  if (const std::string problem = wire.send(request); !problem.empty()) return unreachable(address_, problem);
  http::response_parser<http::string_body> parser;
  parser.body_limit(longest_body);
  std::string buffer, problem;
  boost::system::error_code error;
  while (!parser.is_done()) {
    char bytes[piece];
    const std::size_t got = wire.receive(bytes, sizeof bytes, problem);
    if (!problem.empty()) return unreachable(address_, problem);
    if (got == 0) {
      if (parser.got_some()) parser.put_eof(error);
      if (error || !parser.is_done()) return unreachable(address_, "the connection was closed");
      break;
    }
    buffer.append(bytes, got);
    while (!buffer.empty() && !parser.is_done()) {
      const std::size_t used = parser.put(boost::asio::buffer(buffer), error);
      if (error && error != http::error::need_more) return unreachable(address_, error.message());
      buffer.erase(0, used);
      if (used == 0 || error == http::error::need_more) break;
    }
  }
  const auto& reply = parser.get();
  return ApiReply{static_cast<int>(reply.result_int()), json::parse(reply.body(), nullptr, false)};
}

Result<json> ApiServer::call(std::string_view method, const std::string& target, const json& body,
                             const char* content_type) const {
  const bool six = address_.host.find(':') != std::string::npos;
  std::string request = fmt::format(
      "{} {}{} HTTP/1.1\r\nHost: {}{}{}:{}\r\nConnection: close\r\nAccept: application/json\r\nUser-Agent: "
      "sublet-kube/{}\r\n",
      method, address_.path, target, six ? "[" : "", address_.host, six ? "]" : "", address_.port, SUBLET_VERSION);
  if (const std::string token = read_file(token_file_); !token.empty() && is_printable(token))
    request += fmt::format("Authorization: Bearer {}\r\n", token);
  if (!body.is_null()) {
    const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace);
    request += fmt::format("Content-Type: {}\r\nContent-Length: {}\r\n\r\n{}", content_type, text.size(), text);
  } else {
    request += "\r\n";
  }
  auto reply = exchange(request);
  if (!reply) return reply.error();
  if (reply->status / 100 != 2) return refusal(fmt::format("{} {}", method, target), *reply);
  if (reply->body.is_discarded()) return unavailable("the API server's answer is no JSON");
  return Result<json>(boost::system::in_place_value, std::move(reply->body));
}

}  // namespace sublet::kube
