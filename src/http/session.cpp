// SPDX-License-Identifier: Apache-2.0
#include "http/session.h"

#include "base/text.h"
#include "base/units.h"
#include "http/answer_text.h"
#include "http/event_stream.h"
#include "http/message.h"
#include "http/peer_watch.h"
#include "http/routes.h"

#include <fmt/format.h>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <sys/socket.h>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t header_limit = 16 * 1024;
constexpr auto drain_deadline = std::chrono::seconds(1);
constexpr std::size_t drain_limit = std::size_t{4} << 20;

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

Status parse_body(const std::string& text, int depth_limit, json& body) {
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
  if (body.is_null()) return bad_request("the body is null", "leave it out, or send an object");
  if (body.is_discarded()) {
    return bad_request(fmt::format("the body is not JSON: {}", printable(text.substr(0, 80))));
  }
  return {};
}

std::string_view to_text(beast::string_view text) { return {text.data(), text.size()}; }

// "127.0.0.1:4711", "localhost", "[::1]:80".
bool is_this_machine(std::string_view host) {
  const auto colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find(']', colon) == std::string_view::npos) host = host.substr(0, colon);
  return host == "127.0.0.1" || host == "localhost" || host == "[::1]";
}

bool known_method(bhttp::verb method) {
  return method == bhttp::verb::get || method == bhttp::verb::post || method == bhttp::verb::delete_;
}

std::string_view path_of(const bhttp::request<bhttp::string_body>& message) {
  const std::string_view target = to_text(message.target());
  return target.substr(0, target.find('?'));
}

Response no_such_method(const bhttp::request<bhttp::string_body>& message) {
  const std::string allowed = allowed_methods(path_of(message));
  if (allowed.empty()) return problem(not_found(fmt::format("there is no {}", printable(path_of(message)))));
  Response response = problem(bad_request(fmt::format("{} takes {}, not {}", printable(path_of(message)), allowed,
                                                      printable(to_text(message.method_string())))));
  response.status = response.body["status"] = 405;
  return response;
}

Result<Request> to_request(const bhttp::request<bhttp::string_body>& message, const SessionContext& context) {
  Request request;
  request.peer = context.peer;
  request.session = context.id;
  if (message.method() == bhttp::verb::get) request.method = Method::get;
  else if (message.method() == bhttp::verb::post) request.method = Method::post;
  else if (message.method() == bhttp::verb::delete_) request.method = Method::del;
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
  request.last_event_id = std::string(message["Last-Event-ID"]);
  if (auto parsed = parse_body(message.body(), context.limits.depth, request.body); !parsed) return parsed.error();
  return request;
}

class Session {
 public:
  Session(Protocol::socket socket, SessionContext context)
      : stream_(std::move(socket)), context_(std::move(context)), peer_(std::make_shared<PeerWatch>(stream_.socket())) {
    ++context_.usage->connections;
  }
  ~Session() {
    peer_->stop();
    --context_.usage->connections;
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  asio::awaitable<void> run() {
    beast::flat_buffer buffer;
    bool more = true;
    while (more) {
      // An idle connection may stay, unless it is a stranger's; a request that has begun has a deadline.
      if (buffer.size() == 0 && !stranger()) {
        stream_.expires_never();
        co_await peer_->readable();
      }
      bhttp::request_parser<bhttp::string_body> parser;
      parser.body_limit(context_.limits.body);
      parser.header_limit(header_limit);
      if (!co_await read(buffer, parser)) co_return;
      more = co_await answer(parser.get());
    }
  }

 private:
  using Parser = bhttp::request_parser<bhttp::string_body>;

  bool stranger() const { return context_.peer.tcp && !context_.peer.scope; }

  // The whole request; false if the connection is of no more use.
  asio::awaitable<bool> read(beast::flat_buffer& buffer, Parser& parser) {
    stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.header_time));
    auto [error, header_size] = co_await bhttp::async_read_header(stream_, buffer, parser, quiet);
    if (!error && !parser.is_done()) {
      stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.body_time));
      auto [body_error, body_size] = co_await bhttp::async_read(stream_, buffer, parser, quiet);
      error = body_error;
    }
    if (!error) co_return true;
    if (error != bhttp::error::end_of_stream) co_await refuse_unreadable(error);
    co_return false;
  }

  asio::awaitable<bool> answer(const bhttp::request<bhttp::string_body>& message) {
    const auto refusal = context_.peer.tcp ? admit(message) : std::nullopt;
    auto request = to_request(message, context_);
    Response response;
    if (refusal) {
      response = *refusal;
    } else if (!request) {
      response = problem(request.error());
      // A method that nothing here takes: of a path that is there, another would be right.
      if (!known_method(message.method())) response = no_such_method(message);
    } else {
      Reply reply = dispatch(*request, context_.engine);
      while (auto* later = std::get_if<Later>(&reply)) {
        Reply next = co_await run_later(*later);
        reply = std::move(next);
      }
      std::optional<Response> made;
      if (auto* now = std::get_if<Response>(&reply)) made = std::move(*now);
      else if (auto* wait = std::get_if<WaitForLease>(&reply)) made = co_await wait_for(*wait);
      else made = co_await follow(std::get<FollowEvents>(std::move(reply)));
      if (!made) co_return false;  // the peer is gone
      response = std::move(*made);
    }
    // What the answer tells must not be lost by a crash after it was told.
    const bool must_be_durable = response.of_leases && response.status < 400;
    const std::uint64_t after = response.after.value_or(context_.engine.intended());
    if (must_be_durable && !context_.engine.is_durable(after) && !co_await context_.engine.durable(after)) {
      response =
          problem(unavailable("the store failed before this could be made durable: " + context_.engine.store_problem(),
                              "send the same request again, with the same Idempotency-Key"));
    }
    if (response.status == 405) allow_ = allowed_methods(path_of(message));
    // A HEAD may not be answered with a body; ours ends with the connection, so that nothing is read wrongly after it.
    const bool keep_alive = message.keep_alive() && message.method() != bhttp::verb::head;
    const std::string text =
        answer_text(response, {.keep_alive = keep_alive, .old_version = message.version() < 11, .allow = allow_});
    const std::size_t sent = send_at_once(text);
    if (sent < text.size() && !co_await write_rest(text, sent)) co_return false;
    co_return keep_alive;
  }

  // Over TCP each request says anew who asks: a token may have been revoked since the last one.
  std::optional<Response> admit(const bhttp::request<bhttp::string_body>& message) {
    if (!is_this_machine(to_text(message[bhttp::field::host]))) {
      // A page that has its own name point here must not get through, whatever its browser sends along.
      return problem(denied("the Host header names another host", "ask for 127.0.0.1, [::1] or localhost"));
    }
    constexpr std::string_view scheme = "Bearer ";
    std::string_view given = to_text(message[bhttp::field::authorization]);
    const bool bearer = given.starts_with(scheme);
    if (bearer) given.remove_prefix(scheme.size());
    const store::AccessToken* token = bearer ? context_.engine.token_of(given) : nullptr;
    const engine::Peer before = std::exchange(context_.peer, engine::Peer{.user = "unknown", .tcp = true});
    if (token == nullptr) return std::nullopt;  // what a stranger may ask for is the route's matter
    engine::Peer& peer = context_.peer;
    peer.uid = token->uid;
    peer.user = token->user;
    peer.scope = engine::parse_scope(token->scope);
    peer.role = peer.scope == engine::Scope::admin ? engine::Role::admin : engine::Role::user;
    if (before.scope && before.uid == peer.uid) return std::nullopt;
    return count_as(context_.usages.of(peer.uid));
  }

  std::optional<Response> count_as(std::shared_ptr<Usage> usage) {
    if (usage == context_.usage) return std::nullopt;
    if (usage->full(context_.limits)) {
      return problem(unavailable(fmt::format("user {} has {} connections open, the limit", context_.peer.user,
                                             usage->connections - usage->waiters),
                                 "close some, or raise limits.connections"));
    }
    --context_.usage->connections;
    context_.usage = std::move(usage);
    ++context_.usage->connections;
    return std::nullopt;
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

  Response too_many_waits() const {
    return problem(
        unavailable(fmt::format("user {} has {} waits open, the limit", context_.peer.user, context_.usage->waiters),
                    "raise limits.waiters, or wait on fewer leases"));
  }

  asio::awaitable<std::optional<Response>> follow(FollowEvents wanted) {
    if (context_.usage->waiters >= context_.limits.waiters) co_return too_many_waits();
    ++context_.usage->waiters;
    co_await stream_events(stream_, context_.engine, std::move(wanted), context_.limits.write_time);
    --context_.usage->waiters;
    co_return std::nullopt;
  }

  // Thousands may be woken at a stroke: so it takes one timer, and no coroutine beside this one.
  asio::awaitable<std::optional<Response>> wait_for(WaitForLease& wait) {
    engine::Engine& engine = context_.engine;
    Usage& usage = *context_.usage;
    if (usage.waiters >= context_.limits.waiters) {
      if (!wait.submitted) co_return too_many_waits();
      engine.not_held(wait.lease);  // it is queued all the same: the answer is its place and token, without the wait
      wait.at_most = Duration::zero();
    }
    ++usage.waiters;
    if (wait.hold && wait.at_most > Duration::zero()) engine.hold(wait.lease, context_.id);
    if (wait.at_most > Duration::zero() && !is_news(engine.find(wait.lease), wait)) {
      const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait.at_most);
      const auto watcher = engine.watch(wait.lease);
      const auto timer = watcher->second;
      peer_->start(timer);
      while (!peer_->gone() && Clock::now() < deadline && !is_news(engine.find(wait.lease), wait)) {
        timer->expires_at(deadline);
        co_await timer->async_wait(quiet);
      }
      engine.unwatch(watcher);
    }
    --usage.waiters;
    if (wait.hold && wait.release_hold) engine.unhold(wait.lease, context_.id);
    if (peer_->gone()) co_return std::nullopt;
    co_return after_waiting(wait);
  }

  Response after_waiting(const WaitForLease& wait) const {
    const core::Lease* lease = context_.engine.find(wait.lease);
    if (lease == nullptr && wait.submitted) {  // taken back with the store that failed: it was never acknowledged
      return problem(unavailable("the store failed before this could be made durable",
                                 "send the same request again, with the same Idempotency-Key"));
    }
    if (lease == nullptr) return problem(not_found(fmt::format("{} has ended long ago", to_string(wait.lease))));
    Response answer = wait.answer(*lease);
    answer.after = context_.engine.intended_of(wait.lease);
    return answer;
  }

  static bool is_news(const core::Lease* lease, const WaitForLease& wait) {
    if (lease == nullptr || lease->ended()) return true;
    if (wait.news) return wait.news();
    if (lease->state != wait.since) return true;
    return (lease->stop_requested && !wait.was_stopping) || (wait.resizing && !lease->resize);
  }

  // What did not fit into the socket at once.
  asio::awaitable<bool> write_rest(const std::string& text, std::size_t sent) {
    stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.write_time));
    const auto [error, size] = co_await asio::async_write(stream_, asio::buffer(text) + sent, quiet);
    co_return !error;
  }

  // Nearly always it all fits, and nothing is waited for.
  std::size_t send_at_once(const std::string& text) {
    const ssize_t size =
        ::send(stream_.socket().native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  }

  asio::awaitable<void> refuse_unreadable(beast::error_code error) {
    if (error == beast::error::timeout || error.category() == asio::error::get_system_category()) co_return;
    Error refusal = bad_request(fmt::format("the request cannot be read: {}", error.message()));
    if (error == bhttp::error::body_limit) {
      refusal.detail = fmt::format("the body is larger than {} bytes", context_.limits.body);
    }
    Response response = problem(refusal);
    if (error == bhttp::error::body_limit) response.status = response.body["status"] = 413;
    if (error == bhttp::error::header_limit) response.status = response.body["status"] = 431;
    co_await write_rest(answer_text(response, {.keep_alive = false}), 0);
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
  std::shared_ptr<PeerWatch> peer_;
  std::string allow_;  // what the path of a refused method would take
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

std::string_view to_string(Method method) {
  switch (method) {
    case Method::get: return "GET";
    case Method::post: return "POST";
    case Method::del: return "DELETE";
  }
  return "GET";
}

Status may_name_processes(const engine::Peer& peer, std::int64_t pid) {
  if (peer.tcp)
    return denied("over TCP nobody can speak for a process of this machine", "use the daemon's Unix socket for that");
  if (pid != 1) return {};
  return bad_request("process 1 is the ancestor of every process of the machine: all of them would be its lease's",
                     "name the program's own process");
}

Response as_json(int status, std::string text, std::string location) {
  return {status, nullptr, std::move(location), true, std::move(text), "application/json"};
}

Response as_json(engine::Answered answered) {
  Response response = as_json(answered.status, std::move(answered.body));
  response.after = answered.after;
  return response;
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

asio::awaitable<void> run_session(Protocol::socket socket, SessionContext context) {
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
