// SPDX-License-Identifier: Apache-2.0
#include "http/compatible_server.h"

#include "base/log.h"
#include "http/answer_text.h"
#include "http/compatible.h"
#include "http/listen.h"
#include "http/peer_watch.h"
#include "http/stream.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using Message = bhttp::request<bhttp::string_body>;

constexpr std::uint32_t header_limit = 16 * 1024;
constexpr auto read_time = std::chrono::seconds(10);   // for a request that has begun
constexpr auto idle_time = std::chrono::minutes(1);    // for a connection without a request
constexpr auto write_time = std::chrono::seconds(10);  // for a peer that reads nothing

std::string to_text(beast::string_view text) { return {text.data(), text.size()}; }

compatible::Headers headers_of(const Message& message) {
  return {.host = to_text(message[bhttp::field::host]),
          .origin = to_text(message[bhttp::field::origin]),
          .content_type = to_text(message[bhttp::field::content_type]),
          .has_origin = message.count(bhttp::field::origin) > 0,
          .is_post = message.method() == bhttp::verb::post};
}

}  // namespace

class CompatibleServer::Impl : public std::enable_shared_from_this<CompatibleServer::Impl> {
 public:
  Impl(asio::io_context& io, engine::Engine& engine, CompatibleOptions options, Handler handler)
      : io_(io), engine_(engine), options_(std::move(options)), handler_(std::move(handler)), acceptor_(io) {}

  Status start() {
    if (Status bound = listen_on(acceptor_, options_.host, options_.port, "stacks.http"); !bound) return bound;
    asio::co_spawn(io_, accept_loop(shared_from_this()), asio::detached);
    log::info("serving the compatible calls for stacks on http://{}:{}", options_.host, options_.port);
    return {};
  }

  void stop() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  static asio::awaitable<void> accept_loop(std::shared_ptr<Impl> self) {
    asio::steady_timer pause(self->io_);
    while (true) {
      auto [error, socket] = co_await self->acceptor_.async_accept(quiet);
      if (error == asio::error::operation_aborted || error == asio::error::bad_descriptor) co_return;
      if (error) {  // out of descriptors, most likely: those who are connected go on
        pause.expires_after(std::chrono::milliseconds(200));
        co_await pause.async_wait(quiet);
        continue;
      }
      if (self->open_ >= self->options_.connections) continue;  // closed at once
      boost::system::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      asio::co_spawn(self->io_, serve(self, Stream(Protocol::socket(std::move(socket)))), asio::detached);
    }
  }

  static asio::awaitable<void> serve(std::shared_ptr<Impl> self, Stream stream) {
    ++self->open_;
    const std::shared_ptr<void> closing(nullptr, [self](void*) { --self->open_; });
    const auto peer = std::make_shared<PeerWatch>(stream.socket());
    const std::shared_ptr<void> unwatch(nullptr, [peer](void*) { peer->stop(); });
    beast::flat_buffer buffer;
    bool more = true;
    while (more) {
      bhttp::request_parser<bhttp::string_body> parser;
      parser.body_limit(self->options_.body);
      parser.header_limit(header_limit);
      stream.expires_after(buffer.size() == 0 ? idle_time : read_time);
      auto [error, header] = co_await bhttp::async_read_header(stream, buffer, parser, quiet);
      if (!error && !parser.is_done()) {
        stream.expires_after(read_time);
        auto [body_error, size] = co_await bhttp::async_read(stream, buffer, parser, quiet);
        error = body_error;
      }
      stream.expires_never();
      Response answer;  // g++ 12 damages memory with co_await in a conditional expression
      if (error) answer = unreadable(error);
      else answer = co_await self->respond(parser.get(), *peer);
      if (error == bhttp::error::end_of_stream || error == beast::error::timeout || peer->gone()) co_return;
      more = !error && parser.get().keep_alive();
      const std::string text = answer_text(
          answer, {.keep_alive = more, .old_version = !error && parser.get().version() < 11, .head_only = false});
      stream.expires_after(write_time);
      auto [failed, sent] = co_await asio::async_write(stream, asio::buffer(text), quiet);
      if (failed) co_return;
    }
  }

  static Response unreadable(beast::error_code error) {
    if (error == bhttp::error::body_limit) return compatible::detail(413, "the body is too large");
    if (error == bhttp::error::header_limit) return compatible::detail(431, "the header is too large");
    return compatible::detail(400, fmt::format("the request cannot be read: {}", error.message()));
  }

  asio::awaitable<Response> respond(const Message& message, PeerWatch& peer) {
    if (auto refused = compatible::refuse_headers(headers_of(message), options_.host, options_.port))
      co_return *refused;
    if (options_.needs_token && !has_token(message))
      co_return compatible::detail(
          401, "an access token is needed: sublet token create --scope submit; send Authorization: Bearer TOKEN");
    const std::string target = to_text(message.target());
    const std::string path = target.substr(0, target.find('?'));
    const bool get = message.method() == bhttp::verb::get, post = message.method() == bhttp::verb::post;
    const bool reads = path == "/healthz" || path == "/status", changes = path == "/acquire" || path == "/release";
    if (!reads && !changes) co_return compatible::detail(404, "Not Found");
    if ((reads && !get) || (changes && !post)) {
      Response refused = compatible::detail(405, "Method Not Allowed");
      refused.allow = reads ? "GET" : "POST";
      co_return refused;
    }
    if (path == "/healthz") co_return Response{200, {{"ok", "true"}}, {}, false};
    if (path == "/status") {
      co_return co_await ask(peer, [this](Done done) {
        handler_.status(std::move(done));
        return nothing();
      });
    }
    co_return co_await ask(peer, [&](Done done) {
      if (path == "/acquire") return handler_.acquire(message.body(), std::move(done));
      handler_.release(message.body(), std::move(done));
      return nothing();
    });
  }

  static std::function<void()> nothing() {
    return [] {};
  }

  bool has_token(const Message& message) const {
    const store::AccessToken* token = engine_.token_of(bearer_token(to_text(message[bhttp::field::authorization])));
    return token != nullptr && token->scope != to_string(engine::Scope::read);
  }

  // An answer that rests on decisions is sent once they are durable. A caller that leaves gets none.
  asio::awaitable<Response> ask(PeerWatch& peer, std::function<std::function<void()>(Done)> call) {
    struct Pending {
      explicit Pending(const asio::any_io_executor& executor)
          : wake(std::make_shared<asio::steady_timer>(executor, std::chrono::steady_clock::time_point::max())) {}
      std::shared_ptr<asio::steady_timer> wake;
      std::optional<Response> response;
    };
    auto pending = std::make_shared<Pending>(co_await asio::this_coro::executor);
    const std::function<void()> cancel = call([pending](Response response) {
      pending->response = std::move(response);
      pending->wake->cancel();
    });
    if (!pending->response) peer.start(pending->wake);
    while (!pending->response && !peer.gone()) co_await pending->wake->async_wait(quiet);
    if (!pending->response) {
      cancel();
      co_return compatible::detail(499, "the caller has left");
    }
    if (pending->response->of_leases) {
      const bool durable = co_await engine_.durable(engine_.intended());
      if (!durable)
        co_return compatible::detail(503, "the store failed before the change was written; send the request again");
    }
    co_return std::move(*pending->response);
  }

  asio::io_context& io_;
  engine::Engine& engine_;
  const CompatibleOptions options_;
  const Handler handler_;
  tcp::acceptor acceptor_;
  std::size_t open_ = 0;
};

CompatibleServer::CompatibleServer(asio::io_context& io, engine::Engine& engine, CompatibleOptions options,
                                   Handler handler)
    : impl_(std::make_shared<Impl>(io, engine, std::move(options), std::move(handler))) {}
CompatibleServer::~CompatibleServer() { impl_->stop(); }
Status CompatibleServer::start() { return impl_->start(); }

}  // namespace sublet::http
