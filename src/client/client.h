// SPDX-License-Identifier: Apache-2.0
// Calls to the daemon that block, that can be interrupted, and that outlive a restart of the daemon. Single thread.
#pragma once

#include "base/units.h"
#include "client/http.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

namespace sublet::client {

// JSON as it is sent: bytes that are not UTF-8 (from a command line, say) are replaced, never thrown over.
std::string to_text(const nlohmann::json& body);

// What the caller wants to be told of while a call waits: `ready` is called whenever `fd` is readable and returns false
// to cancel the call. `fd` may be an epoll descriptor, so that one is enough for signals, timers and children.
struct Interrupt {
  int fd = -1;
  std::function<bool()> ready;
};

// How a caller goes on when the daemon is away.
struct Patience {
  // Called at each attempt once the daemon has been away for a minute, at most every 5 s; the error is the latest.
  std::function<void(const Error&, Duration away)> say;
  Duration limit = Duration::max();  // give up after the daemon was away for so long
};

// 128 random bits as hex: a key under which a mutating call may be sent again without being done twice.
std::string new_idempotency_key();

class Client {
 public:
  explicit Client(Endpoint endpoint) : endpoint_(endpoint), connection_(std::move(endpoint)) {}

  const Endpoint& endpoint() const { return endpoint_; }
  void set_interrupt(Interrupt interrupt) { interrupt_ = std::move(interrupt); }

  // One call. `timeout` bounds the silence of a daemon that accepts and does not answer; a long-poll must add its own
  // wait. A keep-alive connection that turns out to be closed is replaced once, silently: safe, because what changes
  // something carries an Idempotency-Key (call() adds one where the caller did not).
  Answer<Reply> call(Request request, Duration timeout = default_timeout);

  // As call(), but goes on while the daemon is away or restarting, always with the same key.
  Answer<Reply> insist(Request request, const Patience& patience, Duration timeout = default_timeout);

  Answer<Reply> get(std::string target) { return ask({"GET", std::move(target), {}, {}, {}}); }
  Answer<Reply> post(std::string target, const nlohmann::json& body) {
    return ask({"POST", std::move(target), to_text(body), {}, {}});
  }

  // From now on get() and post() go on as insist() does.
  void be_patient(Patience patience) { patience_ = std::move(patience); }

  // Some daemon was there when something was asked, though it may not have answered: if there is none now, it went
  // away.
  bool met() const { return met_; }

  // Waits, interruptibly: false if it was cancelled.
  bool pause(Duration duration);

  // Closes the connection; leases that live by it begin to linger.
  void close() { connection_.close(); }

  static constexpr Duration default_timeout = std::chrono::seconds(30);

 private:
  Endpoint endpoint_;
  Connection connection_;
  Interrupt interrupt_;
  std::optional<Patience> patience_;
  bool met_ = false;

  Answer<Reply> ask(Request request);
  Answer<Reply> attempt(const Request& request, std::int64_t deadline_ns);
  enum class Woken { socket, deadline, cancelled };
  Woken wait(std::int64_t deadline_ns);
};

// The reply's body as JSON; a failure of kind `lost` if it is none.
Answer<nlohmann::json> parse(const Reply& reply);

}  // namespace sublet::client
