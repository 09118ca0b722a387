// SPDX-License-Identifier: Apache-2.0
#include "engine/webhook.h"

#include "base/clock.h"
#include "base/text.h"
#include "engine/deadline.h"
#include "proc/listener.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <algorithm>
#include <charconv>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
using Socket = asio::generic::stream_protocol::socket;

constexpr std::size_t most_reply = 16384;  // bytes, header included
constexpr std::size_t most_url = 512;

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

Error not_here(std::string_view url) {
  return bad_request(fmt::format("'{}' is not a valid URL on this machine", printable(url)),
                     "for example http://127.0.0.1:8080/sublet, or unix:/run/user/1000/app.sock:/sublet");
}

WebhookReply none(std::string problem, bool told = false) {
  return {.status = 0, .body = {}, .problem = std::move(problem), .told = told};
}

std::optional<std::uint32_t> owner_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

// Parses "HTTP/1.1 200 OK\r\n…\r\n\r\nBODY".
WebhookReply parse_reply(std::string_view text) {
  WebhookReply reply;
  const auto space = text.find(' ');
  const auto end = text.find("\r\n\r\n");
  if (!text.starts_with("HTTP/1.") || space == std::string_view::npos || end == std::string_view::npos) {
    return none("the server there does not speak HTTP", true);
  }
  const std::string_view code = text.substr(space + 1, 3);
  const auto [rest, error] = std::from_chars(code.data(), code.data() + code.size(), reply.status);
  if (error != std::errc() || rest != code.data() + code.size()) return none("its answer has no status", true);
  reply.body = text.substr(end + 4);
  return reply;
}

// Whether the answer is complete by its Content-Length. Without that header only the end of the connection tells.
bool is_whole(std::string_view text) {
  const auto end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) return false;
  std::string head(text.substr(0, end));
  std::transform(head.begin(), head.end(), head.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto at = head.find("\r\ncontent-length:");
  if (at == std::string::npos) return false;
  const auto digits = head.find_first_not_of(' ', at + 17);
  std::size_t length = 0;
  if (digits == std::string::npos) return false;
  std::from_chars(head.data() + digits, head.data() + head.size(), length);
  return text.size() >= end + 4 + length;
}

asio::awaitable<std::string> connect(Socket& socket, const WebhookAddress& to, std::uint32_t uid) {
  std::optional<std::uint32_t> owner;
  if (to.socket.empty()) {
    owner = proc::listener_uid(to.host, to.port);
    if (!owner) co_return fmt::format("no process listens on port {}", to.port);
  }
  // Checked before anything is sent. For a Unix socket it is checked once the peer is known.
  const auto endpoint =
      to.socket.empty()
          ? asio::generic::stream_protocol::endpoint(asio::ip::tcp::endpoint(asio::ip::make_address(to.host), to.port))
          : asio::generic::stream_protocol::endpoint(asio::local::stream_protocol::endpoint(to.socket));
  const auto [error] = co_await socket.async_connect(endpoint, quiet);
  if (error) co_return fmt::format("cannot connect: {}", error.message());
  if (!to.socket.empty()) owner = owner_of_peer(socket.native_handle());
  if (owner && (*owner == uid || *owner == 0)) co_return "";
  co_return fmt::format("the server runs as uid {}, not as the lease's user", owner.value_or(65534));
}

asio::awaitable<WebhookReply> exchange(Socket& socket, const WebhookAddress& to, std::uint32_t uid, std::string body) {
  if (const std::string problem = co_await connect(socket, to, uid); !problem.empty()) co_return none(problem);
  const std::string host = to.socket.empty() ? fmt::format("{}:{}", to.host, to.port) : "localhost";
  const std::string request = fmt::format(
      "POST {} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Connection: close\r\n\r\n{}",
      to.path, host, body.size(), body);
  if (const auto [error, size] = co_await asio::async_write(socket, asio::buffer(request), quiet); error)
    co_return none(fmt::format("the connection broke: {}", error.message()), true);
  std::string text;
  while (text.size() < most_reply && !is_whole(text)) {
    std::array<char, 2048> piece;
    const auto [error, size] = co_await socket.async_read_some(asio::buffer(piece), quiet);
    text.append(piece.data(), size);
    if (error && error != asio::error::eof)
      co_return none(fmt::format("the connection broke: {}", error.message()), true);
    if (error) break;
  }
  co_return parse_reply(text);
}

// Returns at the deadline, or when the deadline is not needed any more.
asio::awaitable<void> run_out(asio::io_context& io, Duration at_most) {
  asio::steady_timer timer(io);
  for (Deadline deadline(monotonic_ns(), at_most); !deadline.over(monotonic_ns());) {
    timer.expires_after(Deadline::interval);
    if (const auto [error] = co_await timer.async_wait(quiet); error) co_return;
  }
}

Result<WebhookAddress> parse_tcp(std::string_view url) {
  WebhookAddress address;
  std::string_view rest = url.substr(std::string_view("http://").size());
  const auto slash = std::min(rest.find('/'), rest.size());
  if (slash < rest.size()) address.path = rest.substr(slash);
  rest = rest.substr(0, slash);
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) return not_here(url);
  const std::string_view host = rest.substr(0, colon), port = rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0) return not_here(url);
  if (host == "127.0.0.1" || host == "localhost") address.host = "127.0.0.1";
  else if (host == "[::1]") address.host = "::1";
  else return not_here(url);
  return address;
}

}  // namespace

Result<WebhookAddress> parse_webhook(std::string_view url) {
  if (url.size() > most_url || !plain(url)) return not_here(url);
  if (url.starts_with("http://")) return parse_tcp(url);
  if (!url.starts_with("unix:/")) return not_here(url);
  std::string_view rest = url.substr(5);
  while (rest.starts_with("//")) rest.remove_prefix(1);  // unix:///run/app.sock means the same
  WebhookAddress address;
  const auto colon = rest.find(":/");
  address.socket = rest.substr(0, colon);
  if (colon != std::string_view::npos) address.path = rest.substr(colon + 1);
  if (address.socket.size() < 2 || address.socket.size() > 107) return not_here(url);
  return address;
}

asio::awaitable<WebhookReply> call_webhook(asio::io_context& io, std::string url, std::uint32_t uid, std::string body,
                                           Duration at_most) {
  using namespace asio::experimental::awaitable_operators;
  const auto to = parse_webhook(url);
  if (!to) co_return none(to.error().detail);
  Socket socket(io);
  auto first = co_await (exchange(socket, *to, uid, std::move(body)) || run_out(io, at_most));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return none(fmt::format("it did not answer within {}", format_duration(at_most)), true);
}

}  // namespace sublet::engine
