// SPDX-License-Identifier: Apache-2.0
// The HTTP server on the Unix socket, where it knows the peer by its credentials, and, if it is switched on, on a
// loopback port, where it knows it by an access token: reads requests within limits and deadlines, answers when what
// was decided is durable. One event loop thread; a connection is a coroutine.
#pragma once

#include "engine/engine.h"
#include "http/session.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace sublet::http {

struct ServerOptions {
  std::string socket_path;
  std::uint32_t socket_mode = 0666;  // who may connect; what they may do is decided by their credentials
  std::uint32_t own_uid = 0;         // this uid is an admin
  bool own_daemon = false;           // a user's own or private daemon: no groups are asked
  std::string tcp_host = {};         // "127.0.0.1" or "::1"; "": no TCP
  std::uint16_t tcp_port = 0;
  Limits limits;
};

class Server {
 public:
  Server(boost::asio::io_context& io, engine::Engine& engine, ServerOptions options);
  ~Server();

  // Binds and begins to accept. A stale socket file is replaced; a live one is an error that names its holder.
  Status start();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sublet::http
