// SPDX-License-Identifier: Apache-2.0
// A keep-alive HTTP/1.1 connection to the daemon, one call at a time. Does not block: the caller polls. client.h has
// blocking calls. Single thread.
#pragma once

#include "base/fd.h"
#include "client/endpoint.h"
#include "client/failure.h"

#include <sys/types.h>

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
  std::string text;  // the body
};

// Connects. Waits at most a second for a daemon whose backlog is full.
boost::system::result<Fd, Failure> dial(const Endpoint& endpoint);

// Returns the request as it is sent. `more`: further header lines, each with its line end.
std::string to_text(const Request& request, const Endpoint& endpoint, std::string_view more = {});

// Returns the daemon's own error from a reply that is not 2xx.
Failure refusal(int status, std::string body);

// Returns a path segment or query value, percent-encoded.
std::string encode(std::string_view text);

class Connection {
 public:
  explicit Connection(Endpoint endpoint);
  ~Connection();
  Connection(Connection&&) noexcept;
  Connection& operator=(Connection&&) noexcept;

  // Sends the request, on the open connection if there is one. A call in progress is cancelled with its connection.
  // Waits at most a second for a daemon whose backlog is full.
  boost::system::result<void, Failure> start(const Request& request);

  // For poll(2): the socket and its events. -1 if no call is in progress.
  int fd() const;
  short events() const;

  // Call it when poll reports the socket. Nothing while the answer is incomplete.
  std::optional<Answer<Reply>> advance();

  // The daemon's pid in our pid namespace; 0: it is in another one. Unset: there is no connection by a Unix socket.
  std::optional<pid_t> peer_pid() const;

  bool reused() const;  // the connection had served a call before the latest
  void close();         // also cancels the call in progress

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
