// SPDX-License-Identifier: Apache-2.0
// Acquires a lease for `run`, `hold` and `free`: request, wait in the queue, claim the offer. Single thread.
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
  std::string verb;                 // the verb on the command line, such as "run"
  bool json = false;                // --json: print a refusal on stdout as it came
  nlohmann::json body;              // body of the POST
  std::optional<Duration> at_most;  // give up after this time; unset: never
  // Called with the lease's token once it is known; false: the lease is released.
  std::function<bool(const std::string& token)> keep_token;
  std::string target = "/v1/leases";  // path of the POST
  // Called with the first answer, before the wait.
  std::function<void(const nlohmann::json& reply)> asked = {};
};

struct Acquired {
  client::Lease lease;
  nlohmann::json told;  // the daemon's last answer, without the token
  std::string token;
  Duration waited{};
};

class Acquire {
 public:
  Acquire(client::Client& client, keep::Events& events, keep::Signals& signals, const keep::Listener& listener,
          WaitLine& line)
      : client_(client), events_(events), signals_(signals), listener_(listener), line_(line) {}

  // Returns the granted lease, or the exit code after the message was printed: 128+N after signal N, 124 after at_most.
  std::variant<Acquired, int> run(const Wanted& wanted);

  // After run() returned an exit code: the signal, if the terminal's key sent it, else 0. A process that ends by this
  // signal lets the shell's loop or script end too.
  int left_by_key() const { return left_by_key_ ? left_by_ : 0; }
  int left_by() const { return left_by_; }  // the signal that ended the wait; 0: none

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
  int left_by_ = 0;  // the signal that ended the wait; 0: none
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
