// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include "base/fd.h"
#include "base/log.h"
#include "http/message.h"
#include "http/peer.h"
#include "http/session.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

// Whether somebody answers on the socket file, and who; a file nobody listens on is left over from a crash.
std::optional<std::int32_t> listening_pid(const sockaddr_un& address) {
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return std::nullopt;
  ucred credentials{};
  socklen_t size = sizeof credentials;
  ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return credentials.pid;
}

Result<int> bind_socket(const ServerOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.socket_path.size() >= sizeof address.sun_path) {
    return bad_request(fmt::format("the socket path {} has {} characters; a Unix socket allows {}", options.socket_path,
                                   options.socket_path.size(), sizeof address.sun_path - 1),
                       "use a shorter --dir");
  }
  options.socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (const auto pid = listening_pid(address)) {
    return Error{Code::InUse, fmt::format("another daemon (pid {}) answers on {}", *pid, options.socket_path),
                 "stop that one, or choose another --dir"};
  }
  ::unlink(options.socket_path.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return from_errno("bind " + options.socket_path, errno);
  }
  ::chmod(options.socket_path.c_str(), options.socket_mode);
  if (::listen(socket.get(), 1024) != 0) return from_errno("listen on " + options.socket_path, errno);
  return socket.release();
}

}  // namespace

class Server::Impl {
 public:
  Impl(asio::io_context& io, engine::Engine& engine, ServerOptions options)
      : io_(io), engine_(engine), options_(std::move(options)), acceptor_(io) {}

  Status start() {
    const auto fd = bind_socket(options_);
    if (!fd) return fd.error();
    acceptor_.assign(stream_protocol(), *fd);
    bound_ = true;
    asio::co_spawn(io_, accept_loop(), asio::detached);
    return {};
  }

  ~Impl() {
    if (bound_) ::unlink(options_.socket_path.c_str());  // else it is another daemon's
  }

 private:
  asio::awaitable<void> accept_loop() {
    asio::steady_timer pause(io_);
    while (true) {
      auto [error, socket] = co_await acceptor_.async_accept(quiet);
      if (error == asio::error::operation_aborted) co_return;
      if (error) {  // out of descriptors, most likely: those who are connected go on, the others wait in the backlog
        log::warn("cannot accept a connection: {}, trying again", error.message());
        pause.expires_after(std::chrono::milliseconds(200));
        co_await pause.async_wait(quiet);
        continue;
      }
      welcome(std::move(socket));
    }
  }

  void welcome(stream_protocol::socket socket) {
    SessionContext context{
        engine_, peer_of(engine_.programs().root(), socket.native_handle(), options_.own_uid, options_.own_daemon),
        ++last_session_, nullptr, options_.waiters_per_user};
    auto& usage = usage_[context.peer.uid];
    if (!usage) usage = std::make_shared<Usage>();
    context.usage = usage;
    if (usage->connections >= options_.connections_per_user) {
      asio::co_spawn(io_, turn_away(std::move(socket), context.peer.user, usage->connections), asio::detached);
      return;
    }
    asio::co_spawn(io_, run_session(std::move(socket), std::move(context)), [](const std::exception_ptr& failure) {
      if (!failure) return;
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& e) {  // one broken session ends alone
        log::error("bug: a session ended with {}", e.what());
      }
    });
  }

  static asio::awaitable<void> turn_away(stream_protocol::socket socket, std::string user, int connections) {
    const std::string body =
        problem(unavailable(fmt::format("user {} has {} connections open, the limit", user, connections),
                            "close some, or raise limits.connections"))
            .body.dump();
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
        "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
        body.size(), body);
    co_await asio::async_write(socket, asio::buffer(text), quiet);
  }

  asio::io_context& io_;
  engine::Engine& engine_;
  ServerOptions options_;
  stream_protocol::acceptor acceptor_;
  bool bound_ = false;
  engine::SessionId last_session_ = 0;
  std::unordered_map<std::uint32_t, std::shared_ptr<Usage>> usage_;
};

Server::Server(asio::io_context& io, engine::Engine& engine, ServerOptions options)
    : impl_(std::make_unique<Impl>(io, engine, std::move(options))) {}
Server::~Server() = default;
Status Server::start() { return impl_->start(); }

}  // namespace sublet::http
