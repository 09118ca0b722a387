// SPDX-License-Identifier: Apache-2.0
// The keeper: the parent of a program under a lease. It holds the program until the lease is booked to it, passes
// signals on, keeps the terminal's job control working, ends the program's whole tree when the lease says so, waits for
// the whole tree, and leaves the exit status in a durable record and with the daemon. It outlives restarts of the
// daemon; its own death ends nothing. Single thread; one per process.
#pragma once

#include "client/client.h"
#include "client/lease.h"
#include "keep/child.h"
#include "keep/events.h"
#include "keep/signals.h"
#include "keep/terminal.h"
#include "keep/tree.h"

#include <functional>
#include <optional>
#include <string>

namespace sublet::keep {

// Who is told. `say` gets lines for people, `note` changes of state for machines.
struct Listener {
  std::function<void(const std::string& line)> say;
  std::function<void(const char* event, const nlohmann::json& fields)> note;
};

// A line for people while the daemon is away: what clients of a restarting daemon show.
client::Patience patience(const Listener& listener);

// What its owner is told of a granted lease that has come into its present state; "" where that is nothing.
std::string news(const client::Lease& lease);

struct Outcome {
  int code = 125;  // what the keeper's process should exit with: the program's status, 128+N by signal, 125 ours
  int interrupted_by = 0;  // the program was interrupted by a key of the terminal: end by this signal, so that the
                           // shell sees an interrupted job and ends its script or loop
};

class Keeper {
 public:
  // Refers to what it is given. `lease` is granted to us; `token` is its.
  Keeper(client::Client& client, Events& events, Signals& signals, Listener listener, client::Lease lease,
         std::string token);

  // Returns when the program's whole tree has ended and its end was reported, or could not be.
  Outcome run(const Launch& launch);

 private:
  enum class Phase { held, running, main_ended, tree_ended };

  client::Client& client_;
  Events& events_;
  Signals& signals_;
  Listener listener_;
  client::Lease lease_;
  std::string token_;
  Terminal terminal_;
  Grouping grouping_ = Grouping::own;
  std::optional<Tree> tree_;
  std::optional<Child> child_;
  std::string program_;  // for messages
  Phase phase_ = Phase::held;
  int main_status_ = 0;  // as waitpid gives it, from main_ended on
  std::optional<ExecFailure> exec_failure_;
  bool exec_done_ = false;
  int leave_by_ = 0;                // held: the signal that told us to leave
  bool leave_by_key_ = false;       // it came from the terminal
  bool stop_with_program_ = false;  // SIGTSTP was passed on: when the program stops, so do we
  bool key_pressed_ = false;        // an interrupt from the terminal reached us or the program
  bool was_paused_ = false;         // since it was told to yield, it was seen to have
  bool stopping_ = false;
  bool kill_said_ = false;
  bool told_ = false;  // of descendants that are waited for
  Timer stop_timer_, tell_timer_, unheard_timer_;

  Outcome give_up(const std::string& why, int code);
  bool book();
  void start();
  void watch_lease();
  void tell_state(const std::string& before);
  client::Undone why_undone();
  void report();
  Outcome outcome() const;

  void on_signal(const Signal& signal);
  void pass_on(const Signal& signal);
  void tell_unheard(const char* signal);
  void on_stopped(int signal);
  void continue_program();
  void on_exec();
  void reap();
  void on_main_ended(int status);
  void check_tree(bool children_left);
  void tell_of_descendants();

  void begin_stop(const std::string& why, Duration grace);
  void say_killed();
  void kill_tree();

  client::Request request(const char* method, const std::string& call, const nlohmann::json& body) const;
};

}  // namespace sublet::keep
