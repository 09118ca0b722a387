// SPDX-License-Identifier: Apache-2.0
#include "http/compatible_server.h"

#include "http/compatible.h"
#include "http/listen.h"
#include "http/session.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/http/verb.hpp>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;
using asio::ip::tcp;
using Message = Dialect::Message;

std::string to_text(boost::beast::string_view text) { return {text.data(), text.size()}; }

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
      : io_(io), engine_(engine), options_(std::move(options)), handler_(std::move(handler)), acceptor_(io) {
    limits_.connections = options_.connections;
    limits_.body = options_.body;
    limits_.header_time = std::chrono::minutes(1);  // a connection may rest for this time, too
  }

  Status start() {
    if (Status bound = listen_on(acceptor_, options_.host, options_.port, "stacks.http"); !bound) return bound;
    const auto self = shared_from_this();
    dialect_ = std::make_shared<Dialect>(
        Dialect{.reply = [this](const Message& message) { return reply(message); }, .refuse = compatible::detail});
    asio::co_spawn(io_, accept_connections(acceptor_, [self](tcp::socket socket) { self->welcome(std::move(socket)); }),
                   asio::detached);
    log::info("serving the compatible calls for stacks on http://{}:{}", options_.host, options_.port);
    return {};
  }

  void stop() {
    boost::system::error_code ignored;
    acceptor_.close(ignored);
  }

 private:
  void welcome(tcp::socket socket) {
    auto usage = usages_.usage_of_unknown_callers();
    if (usage->full(limits_)) return;  // closed at once
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    start_session(io_, Protocol::socket(std::move(socket)),
                  {engine_,
                   readings_,
                   engine::Peer{.user = "unknown", .tcp = true},
                   0,
                   std::move(usage),
                   limits_,
                   usages_,
                   role_of_,
                   peer_of_,
                   {},
                   dialect_});
  }

  Reply reply(const Message& message) const {
    if (auto refused = compatible::refuse_headers(headers_of(message), options_.host, options_.port)) return *refused;
    if (options_.needs_token && !has_token(message))
      return compatible::detail(
          401, "an access token is needed: sublet token create --scope submit; send Authorization: Bearer TOKEN");
    const std::string target = to_text(message.target());
    const std::string path = target.substr(0, target.find('?'));
    const bool get = message.method() == bhttp::verb::get, post = message.method() == bhttp::verb::post;
    const bool reads = path == "/healthz" || path == "/status", changes = path == "/acquire" || path == "/release";
    if (!reads && !changes) return compatible::detail(404, "Not Found");
    if ((reads && !get) || (changes && !post)) {
      Response refused = compatible::detail(405, "Method Not Allowed");
      refused.allow = reads ? "GET" : "POST";
      return refused;
    }
    if (path == "/healthz") return Response{200, {{"ok", "true"}}, {}, false};
    // A caller that leaves gets no answer.
    const auto left = std::make_shared<std::function<void()>>([] {});
    return Later{.start =
                     [this, path, body = message.body(), left](std::function<void(Reply)> done) {
                       if (path == "/acquire") *left = handler_.acquire(body, std::move(done));
                       else if (path == "/release") handler_.release(body, std::move(done));
                       else handler_.status(std::move(done));
                     },
                 .left = [left] { (*left)(); }};
  }

  bool has_token(const Message& message) const {
    const store::AccessToken* token =
        engine_.access().token_of(bearer_token(to_text(message[bhttp::field::authorization])));
    return token != nullptr && token->scope != to_string(engine::Scope::read);
  }

  asio::io_context& io_;
  engine::Engine& engine_;
  const CompatibleOptions options_;
  const Handler handler_;
  tcp::acceptor acceptor_;
  Limits limits_;
  Usages usages_;
  Readings readings_;
  std::shared_ptr<const Dialect> dialect_;
  const std::function<engine::Role(std::uint32_t)> role_of_;
  const std::function<engine::Peer(int)> peer_of_;
};

CompatibleServer::CompatibleServer(asio::io_context& io, engine::Engine& engine, CompatibleOptions options,
                                   Handler handler)
    : impl_(std::make_shared<Impl>(io, engine, std::move(options), std::move(handler))) {}
CompatibleServer::~CompatibleServer() { impl_->stop(); }
Status CompatibleServer::start() { return impl_->start(); }

}  // namespace sublet::http
