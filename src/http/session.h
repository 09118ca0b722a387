// SPDX-License-Identifier: Apache-2.0
// One connection: reads requests, has them answered, waits for what must be durable first.
#pragma once

#include "engine/engine.h"
#include "http/message.h"
#include "http/stream.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

#include <list>
#include <memory>

namespace sublet::http {

// Limits per user, and of one request.
struct Limits {
  int connections = 256;  // besides those that wait
  int waiters = 1024;
  std::uint64_t body = 65536;
  int depth = 16;
  Duration header_time = std::chrono::seconds(10);  // from the first byte of a request to the end of its header
  Duration body_time = std::chrono::seconds(10);    // from there to its end
  Duration write_time = std::chrono::seconds(10);   // for a peer that takes nothing of what it is sent
};

// What all sessions of a user share.
struct Usage {
  std::list<Stream*> connections;  // in the order in which they came
  int waiters = 0;
  int busy() const { return static_cast<int>(connections.size()) - waiters; }  // connections, besides those that wait
  bool full(const Limits& limits) const { return busy() >= limits.connections; }
  // Closes the one that came first; its session takes leave by itself, in a moment.
  void drop_oldest();
};

// One that waits, counted as long as this lives.
class Waiting {
 public:
  explicit Waiting(std::shared_ptr<Usage> usage) : usage_(std::move(usage)) { ++usage_->waiters; }
  ~Waiting() { --usage_->waiters; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<Usage> usage_;
};

// Of all users; lives as long as the server.
class Usages {
 public:
  std::shared_ptr<Usage> of(std::uint32_t uid) { return get(by_user_[uid]); }
  // Who came over TCP and showed no token yet. Each of them is only reading its request, or being refused.
  std::shared_ptr<Usage> of_strangers() { return get(strangers_); }

 private:
  static std::shared_ptr<Usage> get(std::shared_ptr<Usage>& usage) {
    if (!usage) usage = std::make_shared<Usage>();
    return usage;
  }
  std::unordered_map<std::uint32_t, std::shared_ptr<Usage>> by_user_;
  std::shared_ptr<Usage> strangers_;
};

struct SessionContext {
  engine::Engine& engine;
  engine::Peer peer;
  engine::SessionId id = 0;
  std::shared_ptr<Usage> usage;
  const Limits& limits;
  Usages& usages;
  const std::function<engine::Role(std::uint32_t)>& role_of;  // of an account, by its groups as they are now
  const std::function<engine::Peer(int socket)>& peer_of;     // who is at the other end, asked anew
};

// What is told to whom `usage` is full of.
Response too_many_connections(std::string_view user, const Usage& usage);

boost::asio::awaitable<void> run_session(boost::asio::generic::stream_protocol::socket socket, SessionContext context);

}  // namespace sublet::http
