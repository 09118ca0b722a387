// SPDX-License-Identifier: Apache-2.0
// Blocking calls to the daemon, which can be interrupted and which outlive a restart of the daemon. Single thread.
#pragma once

#include "base/units.h"
#include "client/http.h"

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>

namespace sublet::client {

// Returns JSON as it is sent. Bytes that are not UTF-8 (from a command line, say) are replaced.
std::string to_text(const nlohmann::json& body);

// An event source for the time while a call waits. `ready` is called whenever `fd` is readable, and returns false to
// cancel the call. `fd` may be an epoll descriptor for signals, timers and children.
struct Interrupt {
  int fd = -1;
  std::function<bool()> ready;
};

// How a caller waits while the daemon is away.
struct Patience {
  // Called at each attempt after the daemon was away for a minute, at most every 5 s; the error is the latest.
  std::function<void(const Error&, Duration away)> say;
  Duration limit = Duration::max();          // gives up after the daemon was away for this time
  Duration refused_limit = Duration::max();  // the same while a daemon answers that it cannot do it now
};

// Returns 128 random bits as hex: an idempotency key, with which a call may be repeated without a second effect.
std::string new_idempotency_key();

class Client {
 public:
  explicit Client(Endpoint endpoint) : endpoint_(endpoint), connection_(std::move(endpoint)) {}

  const Endpoint& endpoint() const { return endpoint_; }
  void set_interrupt(Interrupt interrupt) { interrupt_ = std::move(interrupt); }

  // Makes a call. `timeout` is the longest silence of a daemon that accepted the call; a long-poll must add its own
  // wait. A closed keep-alive connection is replaced once. This is safe, because a call that changes something has an
  // Idempotency-Key (call() adds a missing key).
  Answer<Reply> call(Request request, Duration timeout = default_timeout);

  // As call(), but repeats the call with the same key while the daemon is away or restarting.
  Answer<Reply> insist(Request request, const Patience& patience, Duration timeout = default_timeout);

  Answer<Reply> get(std::string target) { return ask({"GET", std::move(target), {}, {}, {}}); }
  Answer<Reply> post(std::string target, const nlohmann::json& body) {
    return ask({"POST", std::move(target), to_text(body), {}, {}});
  }

  // From now on get() and post() act like insist().
  void be_patient(Patience patience) { patience_ = std::move(patience); }

  // Whether a daemon was there at some call, even if it did not answer. If there is none now, it went away.
  bool met() const { return met_; }

  // The daemon's pid in our pid namespace, after an answer. 0: the daemon is in another pid namespace. Unset: unknown.
  std::optional<pid_t> daemon_pid() const { return connection_.peer_pid(); }

  // Waits. False if the interrupt cancelled it.
  bool pause(Duration duration);

  // Closes the connection. Leases that this connection owns begin to linger.
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

// Returns the reply's body as JSON, or a failure of kind `lost` if the body is no JSON.
Answer<nlohmann::json> parse(const Reply& reply);

}  // namespace sublet::client
