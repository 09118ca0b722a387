// SPDX-License-Identifier: Apache-2.0
// The keeper: the parent of a program under a lease. It holds the program until the lease is booked, and passes signals
// on. It supports the terminal's job control. It ends the program's whole tree when the lease demands it, and waits for
// the whole tree. It stores the exit status in a durable record, and reports it to the daemon. It survives restarts of
// the daemon. If it is killed, the daemon ends a program in the foreground. Single thread; one per process.
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
#include <set>
#include <string>

namespace sublet::keep {

// Receives the keeper's messages: `say` progress for people, `note` changes of state for machines, `fail` errors for
// people, which --quiet does not silence.
struct Listener {
  std::function<void(const std::string& line)> say;
  std::function<void(const char* event, const nlohmann::json& fields)> note;
  std::function<void(const std::string& line)> fail = say;
  std::function<void(pid_t pid)> starting = {};             // the program is let go now
  std::function<void(const std::string& how)> ended = {};  // its whole tree has ended, and that is not reported yet
};

// Returns the waiting rules of clients, with messages while the daemon is away.
client::Patience patience(const Listener& listener);

// Returns the message about the state of a granted lease for its owner; "" if there is none.
std::string news(const client::Lease& lease);

struct Outcome {
  // Exit status for the keeper's process: the program's status, 128+N for a signal, 125 for our own failure.
  int code = 125;
  int interrupted_by = 0;  // signal by which the keeper should end, after a terminal key interrupted the program, so
                           // that the shell ends its script or loop; 0: none
  int ended_by = 0;        // signal that ended the program, or its start; 0: none
};

class Keeper {
 public:
  // Keeps references to its arguments. `lease` is granted to us; `token` is the token of the lease.
  Keeper(client::Client& client, Events& events, Signals& signals, Listener listener, client::Lease lease,
         std::string token);

  // Runs the program. Returns when its whole tree has ended, and its end was reported or could not be reported.
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
  std::string program_;  // the program's name, for messages
  Phase phase_ = Phase::held;
  int main_status_ = 0;  // as from waitpid; valid from main_ended on
  std::optional<ExecFailure> exec_failure_;
  bool exec_done_ = false;
  int leave_by_ = 0;                // held: the signal that told us to end
  bool leave_by_key_ = false;       // the signal came from the terminal
  bool stop_with_program_ = false;  // SIGTSTP was passed on: when the program stops, the keeper stops too
  bool key_pressed_ = false;        // an interrupt from the terminal reached us or the program
  bool supervised_ = false;         // see Launch
  std::set<int> forwarded_;         // signals that we and the program got
  bool was_paused_ = false;         // the lease was seen paused since the last order to pause
  bool stopping_ = false;
  bool kill_said_ = false;
  bool told_ = false;  // reported the descendants that are waited for
  Timer stop_timer_, tell_timer_, undelivered_timer_;

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
  void report_undelivered_signal(const std::string& signal);
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
