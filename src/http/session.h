// SPDX-License-Identifier: Apache-2.0
// One connection: reads requests, dispatches them, and waits for durability before it answers.
#pragma once

#include "engine/engine.h"
#include "http/message.h"
#include "http/readings.h"
#include "http/stream.h"

#include <boost/asio/io_context.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <list>
#include <memory>

namespace sublet::http {

// Limits per user, and of one request.
struct Limits {
  int connections = 256;  // open connections per user, without waiting requests
  int waiters = 1024;
  std::uint64_t body = 65536;
  int depth = 16;
  Duration header_time = std::chrono::seconds(10);  // from the first byte of a request to the end of its header
  Duration body_time = std::chrono::seconds(10);    // from the end of the header to the end of the body
  Duration write_time = std::chrono::seconds(10);   // for a peer that reads nothing of its answer
};

// Counters shared by all sessions of a user.
struct Usage {
  std::list<Stream*> connections;  // oldest first
  int waiters = 0;
  int busy() const { return static_cast<int>(connections.size()) - waiters; }  // connections without waiting requests
  bool full(const Limits& limits) const { return busy() >= limits.connections; }
  // Closes the oldest connection; its session ends a moment later.
  void drop_oldest();
};

// Counts one waiting request while it lives.
class Waiting {
 public:
  explicit Waiting(std::shared_ptr<Usage> usage) : usage_(std::move(usage)) { ++usage_->waiters; }
  ~Waiting() { --usage_->waiters; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  std::shared_ptr<Usage> usage_;
};

// The counters of all users; lives as long as the server.
class Usages {
 public:
  std::shared_ptr<Usage> of(std::uint32_t uid) { return get(by_user_[uid]); }
  // Callers over TCP without a token yet; each is reading its request or being refused.
  std::shared_ptr<Usage> usage_of_unknown_callers() { return get(unknown_); }

 private:
  static std::shared_ptr<Usage> get(std::shared_ptr<Usage>& usage) {
    if (!usage) usage = std::make_shared<Usage>();
    return usage;
  }
  std::unordered_map<std::uint32_t, std::shared_ptr<Usage>> by_user_;
  std::shared_ptr<Usage> unknown_;
};

// How a session speaks with its peer, if it does not serve the API.
struct Dialect {
  using Message = boost::beast::http::request<boost::beast::http::string_body>;
  std::function<Reply(const Message&)> reply;                             // a Response or Later
  std::function<Response(int status, const std::string& detail)> refuse;  // what cannot be read or stored
};

struct SessionContext {
  engine::Engine& engine;
  Readings& readings;  // of all sessions
  engine::Peer peer;
  engine::SessionId id = 0;
  std::shared_ptr<Usage> usage;
  const Limits& limits;
  Usages& usages;
  const std::function<engine::Role(std::uint32_t)>& role_of;  // role of an account by its present groups
  const std::function<engine::Peer(int socket)>& peer_of;     // identifies the peer of a socket again
  Capabilities capabilities = {};
  std::shared_ptr<const Dialect> dialect = {};  // null: the API
};

// The refusal for a user whose `usage` is full.
Response too_many_connections(std::string_view user, const Usage& usage);

boost::asio::awaitable<void> run_session(Protocol::socket socket, SessionContext context);
// The same on its own. A session that fails ends alone.
void start_session(boost::asio::io_context& io, Protocol::socket socket, SessionContext context);

}  // namespace sublet::http
