// SPDX-License-Identifier: Apache-2.0
#include "pause/webhook.h"

#include "base/clock.h"
#include "base/text.h"
#include "net/http.h"
#include "pause/deadline.h"
#include "proc/listener.h"

#include <fmt/format.h>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>
#include <algorithm>
#include <charconv>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;

constexpr std::size_t most_reply = 16384;  // bytes of the body
constexpr std::size_t most_url = 512;

bool plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
}

Error not_here(std::string_view url) {
  return bad_request(fmt::format("'{}' is not a valid URL on this machine", printable(url)),
                     "for example http://127.0.0.1:8080/sublet, or unix:/run/user/1000/app.sock:/sublet");
}

WebhookReply none(std::string problem, bool told = false) { return {.problem = std::move(problem), .told = told}; }

std::optional<std::uint32_t> owner_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

// Why the server may not get the order; "" if it may.
std::string refusal(std::optional<std::uint32_t> owner, std::uint32_t uid) {
  if (owner && (*owner == uid || *owner == 0)) return {};
  return fmt::format("the server runs as uid {}, not as the lease's user", owner.value_or(65534));
}

// The owner of the server is checked before anything is sent. For a Unix socket it is known once that is connected.
asio::awaitable<WebhookReply> exchange(net::Address to, std::uint32_t uid, std::string body,
                                       std::function<void()>& stop) {
  std::string refused;
  net::Hooks hooks;
  hooks.stop = &stop;
  if (to.socket.empty()) {
    const auto owner = proc::listener_uid(to.host, to.port);
    if (!owner) co_return none(fmt::format("no process listens on port {}", to.port));
    refused = refusal(owner, uid);
    if (!refused.empty()) co_return none(refused);
  } else {
    hooks.admits = [&](int socket) {
      refused = refusal(owner_of_peer(socket), uid);
      return refused.empty();
    };
  }
  net::Request request{.method = "POST", .target = to.path, .body = std::move(body)};
  request.headers.emplace_back("Content-Type", "application/json");
  const net::Limits limits{.at_most = {}, .body = most_reply};
  net::Answer answer = co_await net::call(std::move(to), std::move(request), limits, std::move(hooks));
  if (!refused.empty()) co_return none(refused);
  const bool told = answer.step != net::Answer::Step::connect;
  // An answer whose body ends too early is one all the same.
  if (answer.status != 0) co_return WebhookReply{.status = answer.status, .body = std::move(answer.body), .told = told};
  co_return none(fmt::format("{}: {}", told ? "it did not answer" : "cannot connect", answer.error.message()), told);
}

// Returns at the deadline, or when the deadline is not needed any more.
asio::awaitable<void> run_out(asio::io_context& io, Duration at_most, const std::function<void()>& stop) {
  asio::steady_timer timer(io);
  for (Deadline deadline(monotonic_ns(), at_most); !deadline.over(monotonic_ns());) {
    timer.expires_after(Deadline::interval);
    if (const auto [error] = co_await timer.async_wait(net::quiet); error) co_return;
  }
  if (stop) stop();
}

Result<net::Address> parse_tcp(std::string_view url) {
  net::Address address;
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

Result<net::Address> parse_webhook(std::string_view url) {
  if (url.size() > most_url || !plain(url)) return not_here(url);
  if (url.starts_with("http://")) return parse_tcp(url);
  if (!url.starts_with("unix:/")) return not_here(url);
  std::string_view rest = url.substr(5);
  while (rest.starts_with("//")) rest.remove_prefix(1);  // unix:///run/app.sock means the same
  net::Address address;
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
  std::function<void()> stop;
  auto first = co_await (exchange(*to, uid, std::move(body), stop) || run_out(io, at_most, stop));
  if (first.index() == 0) co_return std::get<0>(std::move(first));
  co_return none(fmt::format("it did not answer within {}", format_duration(at_most)), true);
}

}  // namespace sublet::pause
