// SPDX-License-Identifier: Apache-2.0
#include "http/session.h"

#include "base/text.h"
#include "base/units.h"
#include "http/message.h"
#include "http/routes.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <sys/socket.h>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::use_awaitable;
using Stream = beast::basic_stream<asio::local::stream_protocol>;
using Clock = std::chrono::steady_clock;

constexpr auto quiet = asio::as_tuple(use_awaitable);
constexpr std::uint64_t body_limit = 64 * 1024;
constexpr std::uint32_t header_limit = 16 * 1024;
constexpr int depth_limit = 16;
constexpr auto request_deadline = std::chrono::seconds(10);  // from the first byte to the last
constexpr auto write_deadline = std::chrono::seconds(10);
constexpr auto drain_deadline = std::chrono::seconds(1);
constexpr std::size_t drain_limit = 4 * 1024 * 1024;

std::map<std::string, std::string> parse_query(std::string_view text) {
  std::map<std::string, std::string> query;
  while (!text.empty()) {
    const auto part = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const auto equals = std::min(part.find('='), part.size());
    const auto value = equals < part.size() ? part.substr(equals + 1) : std::string_view();
    query[url_decode(part.substr(0, equals))] = url_decode(value);
  }
  return query;
}

Status parse_body(const std::string& text, json& body) {
  if (text.empty()) return {};
  bool too_deep = false;
  body = json::parse(
      text,
      [&](int depth, json::parse_event_t, json&) {
        too_deep = too_deep || depth > depth_limit;
        return !too_deep;
      },
      false);
  if (too_deep) return bad_request(fmt::format("the body is nested deeper than {} levels", depth_limit));
  if (body.is_discarded()) {
    return bad_request(fmt::format("the body is not JSON: {}", printable(text.substr(0, 80))));
  }
  return {};
}

Result<Request> to_request(const bhttp::request<bhttp::string_body>& message, const SessionContext& context) {
  Request request;
  request.peer = context.peer;
  request.session = context.id;
  if (message.method() == bhttp::verb::get) request.method = Method::get;
  else if (message.method() == bhttp::verb::post) request.method = Method::post;
  else return bad_request(fmt::format("the method {} is not used here", printable(message.method_string())));
  const std::string_view target(message.target().data(), message.target().size());
  const auto question = std::min(target.find('?'), target.size());
  request.path = std::string(target.substr(0, question));
  if (question < target.size()) request.query = parse_query(target.substr(question + 1));
  request.idempotency_key = std::string(message["Idempotency-Key"]);
  if (request.idempotency_key.size() > 128 || !is_printable(request.idempotency_key)) {
    return bad_request("Idempotency-Key must be at most 128 printable characters");
  }
  request.lease_token = std::string(message["Sublet-Lease-Token"]);
  if (auto parsed = parse_body(message.body(), request.body); !parsed) return parsed.error();
  return request;
}

// Returns when the peer has closed its end; never when it sends more instead.
asio::awaitable<void> peer_gone(Stream& stream) {
  const auto [error] = co_await stream.socket().async_wait(asio::socket_base::wait_read, quiet);
  char byte = 0;
  if (!error && ::recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
    asio::steady_timer never(co_await asio::this_coro::executor, Clock::time_point::max());
    co_await never.async_wait(quiet);
  }
}

class Session {
 public:
  Session(asio::local::stream_protocol::socket socket, SessionContext context)
      : stream_(std::move(socket)), context_(std::move(context)) {
    ++context_.usage->connections;
  }
  ~Session() { --context_.usage->connections; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  asio::awaitable<void> run() {
    beast::flat_buffer buffer;
    bool more = true;
    while (more) {
      if (buffer.size() == 0) {  // idle connections may stay; a request that has begun has a deadline
        stream_.expires_never();
        const auto [error] = co_await stream_.socket().async_wait(asio::socket_base::wait_read, quiet);
        if (error) co_return;
      }
      bhttp::request_parser<bhttp::string_body> parser;
      parser.body_limit(body_limit);
      parser.header_limit(header_limit);
      stream_.expires_after(request_deadline);
      const auto [error, size] = co_await bhttp::async_read(stream_, buffer, parser, quiet);
      if (error) {
        if (error != bhttp::error::end_of_stream) co_await refuse_unreadable(error);
        co_return;
      }
      more = co_await answer(parser.get());
    }
  }

 private:
  asio::awaitable<bool> answer(const bhttp::request<bhttp::string_body>& message) {
    auto request = to_request(message, context_);
    Response response;
    if (!request) {
      response = problem(request.error());
    } else {
      Reply reply = dispatch(*request, context_.engine);
      auto made = co_await complete(std::move(reply));
      if (!made) co_return false;  // the peer is gone
      response = std::move(*made);
    }
    // What the answer tells must not be lost by a crash after it was told.
    const bool must_be_durable = response.of_leases && response.status < 400;
    if (must_be_durable && !co_await context_.engine.durable(context_.engine.intended())) {
      response =
          problem(unavailable("the store failed before this could be made durable: " + context_.engine.store_problem(),
                              "send the same request again, with the same Idempotency-Key"));
    }
    co_return co_await write(response, message.keep_alive(), message.version());
  }

  asio::awaitable<std::optional<Response>> complete(Reply reply) {
    while (auto* later = std::get_if<Later>(&reply)) {
      Reply next = co_await run_later(*later);
      reply = std::move(next);
    }
    if (auto* response = std::get_if<Response>(&reply)) co_return std::move(*response);
    co_return co_await wait_for(std::get<WaitForLease>(std::move(reply)));
  }

  asio::awaitable<Reply> run_later(const Later& later) {
    // The state outlives this coroutine if the connection is torn down while the store still works on the answer.
    struct Pending {
      explicit Pending(const asio::any_io_executor& executor) : wake(executor, Clock::time_point::max()) {}
      asio::steady_timer wake;
      std::optional<Reply> reply;
    };
    auto pending = std::make_shared<Pending>(co_await asio::this_coro::executor);
    later.start([pending](Reply reply) {
      pending->reply = std::move(reply);
      pending->wake.cancel();
    });
    while (!pending->reply) co_await pending->wake.async_wait(quiet);
    co_return std::move(*pending->reply);
  }

  asio::awaitable<std::optional<Response>> wait_for(WaitForLease wait) {
    using namespace asio::experimental::awaitable_operators;
    engine::Engine& engine = context_.engine;
    Usage& usage = *context_.usage;
    if (usage.waiters >= context_.waiters_limit) {
      if (!wait.submitted) {
        co_return problem(
            unavailable(fmt::format("user {} has {} waits open, the limit", context_.peer.user, usage.waiters),
                        "raise limits.waiters, or wait on fewer leases"));
      }
      engine.not_held(wait.lease);  // it is queued all the same: the answer is its place and token, without the wait
      wait.at_most = Duration::zero();
    }
    ++usage.waiters;
    if (wait.hold && wait.at_most > Duration::zero()) engine.hold(wait.lease, context_.id);
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait.at_most);
    bool gone = false;
    while (!gone && Clock::now() < deadline) {
      const core::Lease* lease = engine.find(wait.lease);
      if (lease == nullptr || lease->state != wait.since || lease->ended()) break;
      if (lease->stop_requested && !wait.was_stopping) break;
      gone = (co_await (engine.changed(wait.lease, deadline) || peer_gone(stream_))).index() == 1;
    }
    --usage.waiters;
    if (wait.hold && wait.release_hold) engine.unhold(wait.lease, context_.id);
    if (gone) co_return std::nullopt;
    const core::Lease* lease = engine.find(wait.lease);
    if (lease == nullptr) co_return problem(not_found(fmt::format("{} has ended long ago", to_string(wait.lease))));
    co_return wait.answer(*lease);
  }

  asio::awaitable<bool> write(const Response& response, bool keep_alive, unsigned version) {
    bhttp::response<bhttp::string_body> message(static_cast<bhttp::status>(response.status), version);
    message.set(bhttp::field::content_type, response.status >= 400 && response.body.contains("code")
                                                ? "application/problem+json"
                                                : "application/json");
    message.set(bhttp::field::cache_control, "no-store");
    if (!response.location.empty()) message.set(bhttp::field::location, response.location);
    message.body() = response.body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    message.keep_alive(keep_alive);
    message.prepare_payload();
    stream_.expires_after(write_deadline);
    const auto [error, size] = co_await bhttp::async_write(stream_, message, quiet);
    co_return !error && keep_alive;
  }

  asio::awaitable<void> refuse_unreadable(beast::error_code error) {
    if (error == beast::error::timeout || error.category() == asio::error::get_system_category()) co_return;
    Error refusal = bad_request(fmt::format("the request cannot be read: {}", error.message()));
    if (error == bhttp::error::body_limit) {
      refusal.detail = fmt::format("the body is larger than {} bytes", body_limit);
    }
    Response response = problem(refusal);
    if (error == bhttp::error::body_limit) response.status = response.body["status"] = 413;
    if (error == bhttp::error::header_limit) response.status = response.body["status"] = 431;
    co_await write(response, false, 11);
    co_await drain();
  }

  // Takes what the peer is still sending, for a while: closing with bytes unread would reset the connection, and the
  // peer would see that instead of the refusal.
  asio::awaitable<void> drain() {
    beast::error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    stream_.expires_after(drain_deadline);
    std::array<char, 16384> bytes;
    std::size_t total = 0;
    while (total < drain_limit) {
      const auto [error, size] = co_await stream_.async_read_some(asio::buffer(bytes), quiet);
      if (error) co_return;
      total += size;
    }
  }

  Stream stream_;
  SessionContext context_;
};

}  // namespace

std::string url_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto hex = [&](std::size_t at) {
      const char c = at < text.size() ? text[at] : 'x';
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return -1;
    };
    if (text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      out += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Response problem(const Error& error) {
  Response response;
  response.status = http_status(error.code);
  response.body = {{"type", fmt::format("urn:sublet:{}", to_string(error.code))},
                   {"title", std::string(to_string(error.code))},
                   {"status", response.status},
                   {"code", std::string(to_string(error.code))},
                   {"detail", error.detail}};
  if (!error.hint.empty()) response.body["hint"] = error.hint;
  return response;
}

asio::awaitable<void> run_session(asio::local::stream_protocol::socket socket, SessionContext context) {
  engine::Engine& engine = context.engine;
  const engine::SessionId id = context.id;
  std::exception_ptr failure;
  try {
    Session session(std::move(socket), std::move(context));
    co_await session.run();
  } catch (...) {
    failure = std::current_exception();
  }
  // Not in a destructor: a session that the loop still holds when the daemon ends outlives the engine.
  engine.session_closed(id);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace sublet::http
