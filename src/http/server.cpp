// SPDX-License-Identifier: Apache-2.0
#include "http/server.h"

#include "base/fd.h"
#include "base/log.h"
#include "http/answer_text.h"
#include "http/listen.h"
#include "http/peer.h"
#include "http/session.h"
#include "http/stream.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;

// A daemon that accepts no connections is useless: a bug that ends the loop ends the daemon, which is restarted.
void end_with_it(const std::exception_ptr& failure) {
  if (failure) std::rethrow_exception(failure);
}

// The process that listens on the socket file; "" if none does, after a crash. Never waits for a hanging process.
std::string listener_on(const sockaddr_un& address) {
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno == EAGAIN ? "it accepts no connections now" : "";
  ucred credentials{};
  socklen_t size = sizeof credentials;
  ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return fmt::format("pid {}", credentials.pid);
}

// Checks the socket of the service manager: clients look for it at our path.
Result<int> check_listener(const ServerOptions& options) {
  sockaddr_un address{};
  socklen_t size = sizeof address - 1;
  if (::getsockname(options.listener, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return from_errno("getsockname", errno);
  struct stat theirs {
  }, ours{};
  const bool known = address.sun_family == AF_UNIX && ::stat(address.sun_path, &theirs) == 0 &&
                     ::stat(options.socket_path.c_str(), &ours) == 0;
  if (known && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino) return options.listener;
  return bad_request(fmt::format("the service manager passed another socket than {}", options.socket_path),
                     "set ListenStream= of subletd.socket to this path");
}

Result<int> bind_socket(const ServerOptions& options) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (options.socket_path.size() >= sizeof address.sun_path) {
    return bad_request(fmt::format("the socket path {} has {} characters; a Unix socket allows {}", options.socket_path,
                                   options.socket_path.size(), sizeof address.sun_path - 1),
                       "use a shorter path for --dir");
  }
  options.socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (const std::string listener = listener_on(address); !listener.empty()) {
    return Error{Code::InUse, fmt::format("another daemon ({}) already listens on {}", listener, options.socket_path),
                 "stop the other daemon, or choose another --dir"};
  }
  ::unlink(options.socket_path.c_str());
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return from_errno("bind " + options.socket_path, errno);
  }
  ::chmod(options.socket_path.c_str(), options.socket_mode);
  if (::listen(socket.get(), 1024) != 0) return from_errno("cannot listen on " + options.socket_path, errno);
  return socket.release();
}

}  // namespace

class Server::Impl {
 public:
  Impl(asio::io_context& io, engine::Engine& engine, ServerOptions options)
      : io_(io), engine_(engine), options_(std::move(options)), acceptor_(io), tcp_(io) {}

  Status start() {
    const bool passed = options_.listener >= 0;
    const auto fd = passed ? check_listener(options_) : bind_socket(options_);
    if (!fd) return fd.error();
    if (!options_.own_daemon) ask_for_groups();
    engine::ask_for_tenant_groups(engine_.options().tenants);
    acceptor_.assign(stream_protocol(), *fd);
    bound_ = !passed;
    if (!options_.tcp_host.empty()) {
      if (Status bound = listen_on(tcp_, options_.tcp_host, options_.tcp_port, "api.tcp"); !bound) return bound;
      asio::co_spawn(io_, accept_loop(tcp_), end_with_it);
      log::info("also serving on http://{}:{}, for callers with an access token", options_.tcp_host, options_.tcp_port);
    }
    asio::co_spawn(io_, accept_loop(acceptor_), end_with_it);
    return {};
  }

  ~Impl() {
    if (bound_) ::unlink(options_.socket_path.c_str());  // else it is another daemon's, or the service manager's
  }

 private:
  template <typename Acceptor>
  asio::awaitable<void> accept_loop(Acceptor& acceptor) {
    return accept_connections(acceptor, [this](auto socket) { welcome(std::move(socket)); });
  }

  void welcome(stream_protocol::socket socket) {
    engine::Peer peer = peer_of_(socket.native_handle());
    auto usage = usages_.of(peer.uid);
    if (usage->full(options_.limits)) {
      const Response refusal = too_many_connections(peer.user, *usage);
      asio::co_spawn(io_, turn_away(std::move(socket), answer_text(refusal, {.keep_alive = false})), asio::detached);
      return;
    }
    start(Protocol::socket(std::move(socket)), std::move(peer), std::move(usage));
  }

  void welcome(tcp::socket socket) {
    boost::system::error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    auto usage = usages_.usage_of_unknown_callers();
    // Connections without a token must not keep callers with a token out: the oldest of them is closed.
    if (usage->full(options_.limits)) usage->drop_oldest();
    start(Protocol::socket(std::move(socket)), engine::Peer{.user = "unknown", .tcp = true}, std::move(usage));
  }

  void start(Protocol::socket socket, engine::Peer peer, std::shared_ptr<Usage> usage) {
    start_session(io_, std::move(socket),
                  {engine_, readings_, std::move(peer), ++last_session_, std::move(usage), options_.limits, usages_,
                   role_of_, peer_of_, options_.capabilities});
  }

  static asio::awaitable<void> turn_away(Protocol::socket socket, std::string text) {
    co_await asio::async_write(socket, asio::buffer(text), quiet);
  }

  asio::io_context& io_;
  engine::Engine& engine_;
  ServerOptions options_;
  stream_protocol::acceptor acceptor_;
  tcp::acceptor tcp_;
  bool bound_ = false;
  engine::SessionId last_session_ = 0;
  Usages usages_;
  Readings readings_;
  const std::function<engine::Role(std::uint32_t)> role_of_ = [this](std::uint32_t uid) {
    return role_of(uid, options_.own_uid, options_.own_daemon);
  };
  const std::function<engine::Peer(int)> peer_of_ = [this](int socket) {
    return peer_of(engine_.programs().root(), socket, options_.own_uid, options_.own_daemon);
  };
};

Server::Server(asio::io_context& io, engine::Engine& engine, ServerOptions options)
    : impl_(std::make_unique<Impl>(io, engine, std::move(options))) {}
Server::~Server() = default;
Status Server::start() { return impl_->start(); }

}  // namespace sublet::http
