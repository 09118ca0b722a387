// SPDX-License-Identifier: Apache-2.0
// The listener of the compatible service. It knows no stacks: a handler answers its four calls. One event loop thread;
// a connection is a coroutine.
#pragma once

#include "engine/engine.h"
#include "http/message.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace sublet::http {

struct CompatibleOptions {
  std::string host = "127.0.0.1";  // address to bind
  std::uint16_t port = 8080;
  bool needs_token = false;  // an access token is required: the address is not of this machine alone
  std::uint64_t body = 65536;
  int connections = 1024;
};

class CompatibleServer {
 public:
  // `done` is called once, later or at once, on the loop.
  using Done = std::function<void(Response)>;
  struct Handler {
    std::function<void(Done)> status;
    // Returns a function to call if the caller leaves before `done` was called.
    std::function<std::function<void()>(const std::string& body, Done)> acquire;
    std::function<void(const std::string& body, Done)> release;
  };

  // Keeps references to `io` and `engine`.
  CompatibleServer(boost::asio::io_context& io, engine::Engine& engine, CompatibleOptions options, Handler handler);
  ~CompatibleServer();

  // Binds and starts to accept. An error names the address.
  Status start();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sublet::http
