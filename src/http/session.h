// SPDX-License-Identifier: Apache-2.0
// One connection: reads requests, has them answered, waits for what must be durable first. The only files that know
// Beast are session.cpp and server.cpp.
#pragma once

#include "engine/engine.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <memory>

namespace sublet::http {

// What all sessions share: counts per user against the limits.
struct Usage {
  int connections = 0;
  int waiters = 0;
};

struct SessionContext {
  engine::Engine& engine;
  engine::Peer peer;
  engine::SessionId id = 0;
  std::shared_ptr<Usage> usage;
  int waiters_limit = 0;
};

boost::asio::awaitable<void> run_session(boost::asio::local::stream_protocol::socket socket, SessionContext context);

}  // namespace sublet::http
