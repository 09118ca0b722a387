// SPDX-License-Identifier: Apache-2.0
// Getting a lease: ask, wait in the queue and show it, take the offer, leave when told to. Used by `run` and `hold`.
// Single thread.
#pragma once

#include "cli/verb.h"
#include "cli/wait_line.h"
#include "client/client.h"
#include "client/lease.h"
#include "keep/events.h"
#include "keep/keeper.h"
#include "keep/signals.h"

#include <functional>
#include <optional>
#include <string>
#include <variant>

namespace sublet::cli {

struct Wanted {
  std::string verb;     // of the command line: "run"
  bool json = false;    // a refusal goes to stdout too, as it came: nothing has been started that writes there
  nlohmann::json body;  // of the POST
  std::optional<Duration> at_most;  // give up after so long
  // Called with the token as soon as there is one; false: the lease is given back.
  std::function<bool(const std::string& token)> keep_token;
  std::string target = "/v1/leases";  // what is asked
  // Called with the answer, before it is waited for.
  std::function<void(const nlohmann::json& reply)> asked = {};
};

struct Acquired {
  client::Lease lease;
  nlohmann::json told;  // the lease as the daemon told it last, without its token
  std::string token;
  Duration waited{};
};

class Acquire {
 public:
  Acquire(client::Client& client, keep::Events& events, keep::Signals& signals, const keep::Listener& listener,
          WaitLine& line)
      : client_(client), events_(events), signals_(signals), listener_(listener), line_(line) {}

  // A granted lease; or, everything being said, the exit code: 128+N when a signal came, 124 when the time was over.
  std::variant<Acquired, int> run(const Wanted& wanted);

  // After an exit code: the signal, if it was a key of the terminal. Who ends by it lets the shell's loop or script
  // end.
  int left_by_key() const { return left_by_key_ ? left_by_ : 0; }

 private:
  client::Client& client_;
  keep::Events& events_;
  keep::Signals& signals_;
  const keep::Listener& listener_;
  WaitLine& line_;
  client::Lease lease_;
  nlohmann::json told_;
  std::string token_;
  std::string verb_;
  bool json_ = false;
  int left_by_ = 0;  // the signal that told us to leave
  bool left_by_key_ = false;

  std::variant<Acquired, int> get(const Wanted& wanted);
  std::optional<int> ask(const Wanted& wanted);
  std::optional<int> wait(std::int64_t deadline_ns);
  std::optional<int> claim();
  std::optional<int> take(const client::Answer<client::Reply>& answer);
  void note_queued();
  int leave(int code);
  int refuse(const client::Failure& failure);
};

}  // namespace sublet::cli
