// SPDX-License-Identifier: Apache-2.0
// One keep-alive HTTP/1.1 connection to the daemon, one call at a time, without blocking: the caller polls. Callers
// that want to block use client.h. Single thread.
#pragma once

#include "base/fd.h"
#include "client/endpoint.h"
#include "client/failure.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::client {

struct Request {
  std::string method = "GET";
  std::string target;           // starts with '/', percent-encoded (encode())
  std::string body;             // JSON; "" for none
  std::string idempotency_key;  // "" for none
  std::string lease_token;      // "" for none
};

struct Reply {
  int status = 0;    // 2xx
  std::string text;  // the body as it came
};

// Connects; waits at most a second, for a daemon whose backlog is full.
boost::system::result<Fd, Failure> dial(const Endpoint& endpoint);

// The request as it is sent. `more`: further header lines, each ended.
std::string to_text(const Request& request, const Endpoint& endpoint, std::string_view more = {});

// The daemon's own error from a reply that is not 2xx.
Failure refusal(int status, std::string body);

// One segment of a path or one value of a query, percent-encoded.
std::string encode(std::string_view text);

class Connection {
 public:
  explicit Connection(Endpoint endpoint);
  ~Connection();
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;

  // Sends the request, on the open connection if there is one. A call that is under way is given up with its
  // connection. Waits at most a second, for a daemon whose backlog is full.
  boost::system::result<void, Failure> start(const Request& request);

  // For poll(2): the socket, and what to wait for. -1 while no call is under way.
  int fd() const;
  short events() const;

  // To be called when poll says so. Nothing while the answer is incomplete.
  std::optional<Answer<Reply>> advance();

  bool reused() const;  // the latest call was sent on a connection that had served one before
  void close();         // also gives up the call under way

 private:
  struct Exchange;
  Endpoint endpoint_;
  Fd socket_;
  bool reused_ = false;
  std::unique_ptr<Exchange> exchange_;

  boost::system::result<void, Failure> open();
  std::optional<Failure> send_some();
  Answer<Reply> finish();
  Failure lose(std::string why);
};

}  // namespace sublet::client
