// SPDX-License-Identifier: Apache-2.0
#include "http/session.h"

#include "base/log.h"
#include "base/text.h"
#include "base/units.h"
#include "base/web_origin.h"
#include "http/admission.h"
#include "http/answer_text.h"
#include "http/event_stream.h"
#include "http/find_lease.h"
#include "http/listen.h"
#include "http/message.h"
#include "http/parse.h"
#include "http/peer_watch.h"
#include "http/routes.h"
#include "http/text_stream.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t header_limit = 16 * 1024;
constexpr auto drain_deadline = std::chrono::seconds(1);
constexpr std::size_t drain_limit = std::size_t{4} << 20;

// Arguments and environment of a program, which the kernel limits to about 2 MiB, as JSON. Or a tree of tenants.
constexpr std::uint64_t large_body = std::uint64_t{4} << 20;

std::string_view to_text(beast::string_view text) { return {text.data(), text.size()}; }

std::optional<Method> method_of(bhttp::verb method) {
  switch (method) {
    case bhttp::verb::head:  // its answer is sent without its body
    case bhttp::verb::get: return Method::get;
    case bhttp::verb::post: return Method::post;
    case bhttp::verb::delete_: return Method::del;
    default: return std::nullopt;
  }
}

// Duplicate headers are refused, and so is an empty key, which would protect no retry.
Status check_headers(const bhttp::request<bhttp::string_body>& message) {
  for (const char* name : {"Authorization", "Idempotency-Key", "Sublet-Lease-Token", "Last-Event-ID"}) {
    if (message.count(name) > 1)
      return bad_request(fmt::format("the header {} is given twice", name), "send the header once");
  }
  const auto key = message.find("Idempotency-Key");
  if (key == message.end() || !key->value().empty()) return {};
  return bad_request(
      "Idempotency-Key is empty",
      "send a new random key for each request, for example 32 hexadecimal digits, or leave the header out");
}

Result<Request> to_request(const bhttp::request<bhttp::string_body>& message, Method method,
                           const SessionContext& context) {
  Request request;
  request.method = method;
  request.peer = context.peer;
  request.session = context.id;
  const Target target = parse_target(to_text(message.target()));
  request.path = std::string(target.path);
  auto query = parse_query(target.query);
  if (!query) return query.error();
  request.query = std::move(*query);
  request.idempotency_key = std::string(message["Idempotency-Key"]);
  if (request.idempotency_key.size() > 128 || !is_printable(request.idempotency_key)) {
    return bad_request("Idempotency-Key is longer than 128 characters, or has characters that cannot be printed",
                       "send a new random key for each request, for example 32 hexadecimal digits");
  }
  request.lease_token = std::string(message["Sublet-Lease-Token"]);
  request.last_event_id = std::string(message["Last-Event-ID"]);
  if (auto parsed = parse_body(message.body(), context.limits.depth, request.body); !parsed) return parsed.error();
  return request;
}

class Session {
 public:
  Session(Protocol::socket socket, SessionContext context)
      : stream_(std::move(socket)),
        context_(std::move(context)),
        admission_(context_.engine, context_.role_of),
        peer_(std::make_shared<PeerWatch>(stream_.socket())) {
    place_ = context_.usage->connections.insert(context_.usage->connections.end(), &stream_);
  }
  ~Session() {
    peer_->stop();
    context_.usage->connections.erase(place_);
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
      parser.body_limit(std::max(context_.limits.body, large_body));  // until the header tells the call
      parser.header_limit(header_limit);
      if (!co_await read(buffer, parser)) co_return;
      answering_ = true;
      more = co_await answer(parser.get()) && !revoked_;
      answering_ = false;
    }
  }

 private:
  using Parser = bhttp::request_parser<bhttp::string_body>;

  // Sets the limit of the call, and compares a length that is known already.
  bool has_large_body(Parser& parser) {
    const Target target = parse_target(to_text(parser.get().target()));
    const bool may_be_large =
        !context_.peer.tcp && parser.get().method() == bhttp::verb::post &&
        (target.path == "/v1/programs" || target.path == "/v1/sessions" || target.path == "/v1/tenants");
    body_limit_ = may_be_large ? std::max(context_.limits.body, large_body) : context_.limits.body;
    parser.body_limit(body_limit_);
    return parser.content_length() && *parser.content_length() > body_limit_;
  }

  bool stranger() const { return context_.peer.tcp && !context_.peer.scope; }

  // The whole request; false if the connection is of no more use.
  asio::awaitable<bool> read(beast::flat_buffer& buffer, Parser& parser) {
    stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.header_time));
    auto [error, header_size] = co_await bhttp::async_read_header(stream_, buffer, parser, quiet);
    if (!error && has_large_body(parser)) error = bhttp::error::body_limit;
    if (!error && !parser.is_done()) {
      // A caller with a token is admitted before its body arrives; a refused caller gets its refusal after the body.
      if (context_.peer.tcp && !context_.dialect) admit(parser.get());
      stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.body_time));
      auto [body_error, body_size] = co_await bhttp::async_read(stream_, buffer, parser, quiet);
      error = body_error;
    }
    if (!error) co_return true;
    if (error != bhttp::error::end_of_stream) co_await refuse_unreadable(error);
    co_return false;
  }

  asio::awaitable<bool> answer(const bhttp::request<bhttp::string_body>& message) {
    auto made = co_await respond(message);
    if (!made) co_return false;
    Response response = std::move(*made);
    // A crash must not lose anything that an answer has reported.
    const bool must_be_durable = response.of_leases;
    const std::uint64_t after = response.after.value_or(context_.engine.intended());
    if (must_be_durable && !context_.engine.commits().is_durable(after) &&
        !co_await context_.engine.commits().durable(after)) {
      response =
          refusal(503, unavailable("the store failed before the change was written: " + context_.engine.store_problem(),
                                   "send the same request again, with the same Idempotency-Key"));
    }
    const bool keep_alive = message.keep_alive() && !revoked_;
    AnswerParts parts = answer_parts(std::move(response), {.keep_alive = keep_alive,
                                                           .old_version = message.version() < 11,
                                                           .head_only = message.method() == bhttp::verb::head});
    const std::size_t sent = send_at_once(parts);
    if (sent < parts.size() && !co_await write_rest(std::move(parts.head) + parts.body, sent)) co_return false;
    co_return keep_alive;
  }

  Response refusal(int status, const Error& error) const {
    return context_.dialect ? context_.dialect->refuse(status, error.detail) : problem(status, error);
  }

  asio::awaitable<Reply> reply_of_api(const bhttp::request<bhttp::string_body>& message) {
    if (auto checked = check_headers(message); !checked) co_return problem(checked.error());
    if (context_.peer.tcp) {
      if (auto refused = admit(message)) co_return *refused;
    } else if (context_.peer.role == engine::Role::unknown) {
      context_.peer = context_.peer_of(stream_.socket().native_handle());
    }
    const auto method = method_of(message.method());
    if (!method)
      co_return refused_method(parse_target(to_text(message.target())).path, to_text(message.method_string()));
    auto request = to_request(message, *method, context_);
    if (!request) co_return problem(request.error());
    if (may_be_granted(*request, context_.engine)) {
      co_await context_.engine.observer().look();
      if (auto refused = admission_.refusal(); refused && context_.peer.tcp) co_return *refused;  // revoked meanwhile
    }
    co_return dispatch(*request, context_.engine, context_.capabilities);
  }

  // Nothing when the peer is gone.
  asio::awaitable<std::optional<Response>> respond(const bhttp::request<bhttp::string_body>& message) {
    Reply reply;
    if (context_.dialect) reply = context_.dialect->reply(message);
    else reply = co_await reply_of_api(message);
    for (;;) {
      auto* later = std::get_if<Later>(&reply);
      auto* news = std::get_if<WaitForNews>(&reply);
      if (later == nullptr && news == nullptr) break;
      std::optional<Reply> next;
      if (later != nullptr) next = co_await run_later(*later);
      else next = co_await wait_for_news(*news);
      if (!next) co_return std::nullopt;
      reply = std::move(*next);
    }
    if (auto* now = std::get_if<Response>(&reply)) co_return std::move(*now);
    if (auto* wait = std::get_if<WaitForLease>(&reply)) co_return co_await wait_for(*wait);
    const bool text = std::holds_alternative<TextStream>(reply);
    if (message.method() == bhttp::verb::head)
      co_return Response{200, nullptr, {}, true, {}, text ? "text/plain" : "text/event-stream"};
    if (text) co_return co_await send_text(std::get<TextStream>(std::move(reply)));
    co_return co_await follow(std::get<FollowEvents>(std::move(reply)));
  }

  // Over TCP, each request identifies its caller again: the token may have been revoked since.
  std::optional<Response> admit(const bhttp::request<bhttp::string_body>& message) {
    const Target target = parse_target(to_text(message.target()));
    const std::string_view host = target.host.empty() ? to_text(message[bhttp::field::host]) : target.host;
    if (!is_this_machine(host)) {
      // A page that has its own name point here must not get through, whatever its browser sends along.
      return problem(
          denied("the Host header or the target names another host", "use 127.0.0.1, [::1] or localhost as the host"));
    }
    if (!is_own_origin(to_text(message[bhttp::field::origin]), host)) {
      return problem(denied("the page of another server made the browser send this request",
                            "open the page of this daemon: http://" + std::string(host)));
    }
    const store::AccessToken* token =
        context_.engine.access().token_of(bearer_token(to_text(message[bhttp::field::authorization])));
    context_.peer = engine::Peer{.user = "unknown", .tcp = true};
    admission_.by(token);
    if (token == nullptr) return std::nullopt;  // what a stranger may ask for is the route's matter
    if (auto refusal = admission_.refusal()) return refusal;
    if (auto refusal = count_as(token->user, context_.usages.of(token->uid))) return refusal;
    engine::Peer& peer = context_.peer;
    peer.uid = token->uid;
    peer.user = token->user;
    peer.scope = engine::parse_scope(token->scope);
    peer.role = Admission::role_of(*token);
    context_.engine.access().shows(context_.id, token->number, [this] { token_revoked(); });
    return std::nullopt;
  }

  // Ends the calls that the token admitted and the leases that the connection holds; running answers are sent first.
  void token_revoked() {
    revoked_ = true;
    if (!answering_) stream_.close();
  }

  std::optional<Response> count_as(std::string_view user, std::shared_ptr<Usage> usage) {
    if (usage == context_.usage) return std::nullopt;
    if (usage->full(context_.limits)) return too_many_connections(user, *usage);
    usage->connections.splice(usage->connections.end(), context_.usage->connections, place_);
    context_.usage = std::move(usage);
    return std::nullopt;
  }

  // Nothing when the peer is gone and `later` looks after that.
  asio::awaitable<std::optional<Reply>> run_later(const Later& later) {
    // The state outlives this coroutine if the connection is torn down while the store still works on the answer.
    struct Pending {
      explicit Pending(const asio::any_io_executor& executor)
          : wake(std::make_shared<asio::steady_timer>(executor, Clock::time_point::max())) {}
      std::shared_ptr<asio::steady_timer> wake;
      std::optional<Reply> reply;
    };
    auto pending = std::make_shared<Pending>(co_await asio::this_coro::executor);
    later.start([pending](Reply reply) {
      pending->reply = std::move(reply);
      pending->wake->cancel();
    });
    if (later.left && !pending->reply) peer_->start(pending->wake);
    while (!pending->reply) {
      if (later.left && peer_->gone()) {
        later.left();
        co_return std::nullopt;
      }
      co_await pending->wake->async_wait(quiet);
    }
    co_return std::move(*pending->reply);
  }

  Response too_many_waits() const {
    return problem(unavailable(
        fmt::format("user {} has {} waiting requests, which is the limit", context_.peer.user, context_.usage->waiters),
        "wait for fewer leases, or raise limits.waiters"));
  }

  asio::awaitable<std::optional<Response>> follow(FollowEvents wanted) {
    if (context_.usage->waiters >= context_.limits.waiters) co_return too_many_waits();
    const Waiting waiting(context_.usage);
    co_await stream_events(stream_, context_.engine, context_.readings, admission_, std::move(wanted),
                           context_.limits.write_time);
    co_return std::nullopt;
  }

  asio::awaitable<std::optional<Response>> send_text(TextStream wanted) {
    if (context_.usage->waiters >= context_.limits.waiters) co_return too_many_waits();
    const Waiting waiting(context_.usage);
    co_await stream_text(stream_, admission_, std::move(wanted), context_.limits.write_time);
    co_return std::nullopt;
  }

  // Thousands may be woken at a stroke: so it takes one timer, and no coroutine beside this one.
  asio::awaitable<std::optional<Response>> wait_for(WaitForLease& wait) {
    engine::Engine& engine = context_.engine;
    if (context_.usage->waiters >= context_.limits.waiters) {
      if (!wait.submitted) co_return too_many_waits();
      engine.access().not_held(
          wait.lease);  // it is queued all the same: the answer is its place and token, without the wait
      wait.at_most = Duration::zero();
    }
    std::optional<Waiting> waiting(context_.usage);
    if (wait.hold && wait.at_most > Duration::zero()) engine.access().hold(wait.lease, context_.id, context_.peer.pid);
    if (wait.at_most > Duration::zero() && !is_news(engine.find(wait.lease), wait)) {
      const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait.at_most);
      const auto watcher = engine.access().watch(wait.lease);
      const auto timer = watcher->second;
      peer_->start(timer);
      while (!peer_->gone() && Clock::now() < deadline && !is_news(engine.find(wait.lease), wait) &&
             !admission_.refusal()) {
        timer->expires_at(std::min(deadline, admission_.look_again()));
        co_await timer->async_wait(quiet);
      }
      engine.access().unwatch(watcher);
    }
    waiting.reset();
    if (wait.hold && wait.release_hold) engine.access().unhold(wait.lease, context_.id);
    if (peer_->gone()) co_return std::nullopt;
    if (auto refusal = admission_.refusal()) co_return refusal;
    if (const core::Lease* lease = engine.find(wait.lease)) {
      Response answer = wait.answer(*lease);
      answer.after = engine.commits().last_of(wait.lease);
      co_return answer;
    }
    // One that ended while it was waited for may be in the store alone by now. If it is not there, one that this call
    // made was taken back with the store that failed: it was never acknowledged.
    Error none = wait.submitted ? unavailable("the store failed before the change was written",
                                              "send the same request again, with the same Idempotency-Key")
                                : not_found(fmt::format("{} ended, and is no longer remembered", to_string(wait.lease)),
                                            "`sublet ps --all` lists the leases that are remembered");
    Later ended = ended_lease(engine, wait.lease, std::move(none), std::move(wait.answer));
    co_return std::get<Response>(*co_await run_later(ended));
  }

  // Nothing when the peer is gone.
  asio::awaitable<std::optional<Reply>> wait_for_news(WaitForNews& wait) {
    engine::Engine& engine = context_.engine;
    if (context_.usage->waiters >= context_.limits.waiters) {
      if (wait.hold) engine.access().not_held(wait.hold);
      co_return too_many_waits();
    }
    std::optional<Waiting> waiting(context_.usage);
    if (wait.hold) engine.access().hold(wait.hold, context_.id, context_.peer.pid);
    const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(wait.at_most);
    const auto timer = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor);
    const auto follower = engine.commits().follow(timer);
    peer_->start(timer);
    while (!peer_->gone() && Clock::now() < deadline && !wait.news() && !admission_.refusal()) {
      timer->expires_at(std::min(deadline, admission_.look_again()));
      co_await timer->async_wait(quiet);
    }
    engine.commits().unfollow(follower);
    waiting.reset();
    if (wait.hold) engine.access().unhold(wait.hold, context_.id);
    if (peer_->gone()) co_return std::nullopt;
    if (auto refusal = admission_.refusal()) co_return std::move(*refusal);
    co_return wait.answer();
  }

  static bool is_news(const core::Lease* lease, const WaitForLease& wait) {
    if (lease == nullptr || lease->ended()) return true;
    if (wait.news) return wait.news();
    if (lease->state != wait.since) return true;
    return (lease->stop_requested && !wait.was_stopping) || (wait.resizing && !lease->resize);
  }

  // Writes the rest of an answer that did not fit into the socket. Each progress of the reader restarts the time limit.
  asio::awaitable<bool> write_rest(std::string text, std::size_t sent) {
    while (sent < text.size()) {
      stream_.expires_after(std::chrono::duration_cast<Clock::duration>(context_.limits.write_time));
      const auto [error, size] = co_await stream_.async_write_some(asio::buffer(text) + sent, quiet);
      if (error) co_return false;
      sent += size;
    }
    co_return true;
  }

  // Nearly always it all fits, and nothing is waited for.
  std::size_t send_at_once(AnswerParts& parts) {
    std::array<iovec, 2> pieces{{{parts.head.data(), parts.head.size()}, {parts.body.data(), parts.body.size()}}};
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    const ssize_t size = ::sendmsg(stream_.socket().native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  }

  asio::awaitable<void> refuse_unreadable(beast::error_code error) {
    if (error == beast::error::timeout || error.category() == asio::error::get_system_category()) co_return;
    Response response = refusal(400, bad_request(fmt::format("the request cannot be read: {}", error.message()),
                                                 "send HTTP/1.1; GET /v1/openapi.json lists the calls"));
    if (error == bhttp::error::body_limit)
      response = refusal(413, bad_request(fmt::format("the body is larger than {} bytes", body_limit_),
                                          "send less, or raise limits.body; no call needs that much"));
    if (error == bhttp::error::header_limit)
      response = refusal(431, bad_request(fmt::format("the request's header is larger than {} bytes", header_limit),
                                          "send fewer or shorter headers"));
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
  Admission admission_;
  std::list<Stream*>::iterator place_;  // in `context_.usage`
  std::shared_ptr<PeerWatch> peer_;
  bool answering_ = false, revoked_ = false;
  std::uint64_t body_limit_ = 0;  // of the call that is being read
};

}  // namespace

void Usage::drop_oldest() {
  const auto oldest = std::ranges::find_if(connections, [](const Stream* one) { return one->socket().is_open(); });
  if (oldest != connections.end()) (*oldest)->close();
}

Response too_many_connections(std::string_view user, const Usage& usage) {
  return problem(unavailable(fmt::format("user {} has {} open connections, which is the limit", user, usage.busy()),
                             "close a connection, or raise limits.connections"));
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
  engine.access().session_closed(id);
  if (failure) std::rethrow_exception(failure);
}

void start_session(asio::io_context& io, Protocol::socket socket, SessionContext context) {
  asio::co_spawn(io, run_session(std::move(socket), std::move(context)), [](const std::exception_ptr& failure) {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {  // one broken session ends alone
      log::error("bug: a session ended with {}", e.what());
    }
  });
}

}  // namespace sublet::http
