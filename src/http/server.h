// SPDX-License-Identifier: Apache-2.0
// The HTTP server. On the Unix socket, credentials identify the peer; on the optional loopback port, an access token
// does. Reads requests within limits and deadlines, and answers once decisions are durable. One event loop thread; a
// connection is a coroutine.
#pragma once

#include "engine/engine.h"
#include "http/session.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace sublet::http {

struct ServerOptions {
  Capabilities capabilities = {};
  std::string socket_path;
  std::uint32_t socket_mode = 0666;  // mode of the socket file; credentials decide the rights
  int listener = -1;                 // listening socket at that path, which the service manager keeps; -1: none
  std::uint32_t own_uid = 0;         // uid that is an admin
  bool own_daemon = false;           // a user's own or private daemon: groups do not count
  std::string tcp_host = {};         // "127.0.0.1" or "::1"; "": no TCP
  std::uint16_t tcp_port = 0;
  Limits limits;
};

class Server {
 public:
  Server(boost::asio::io_context& io, engine::Engine& engine, ServerOptions options);
  ~Server();

  // Binds and starts to accept. A stale socket file is replaced; if another daemon listens, the error names it.
  Status start();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sublet::http
