// SPDX-License-Identifier: Apache-2.0
// The decision of the core on one fact: a value that says what to store, what to tell, what to do, and when to wake.
#pragma once

#include "lease/cost.h"
#include "lease/facts.h"
#include "lease/lease.h"
#include "lease/plan_record.h"
#include "lease/reason.h"

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace sublet::core {

// Take a snapshot as soon as possible: a lease settles, or something changed.
struct TakeSnapshot {};

// Ends the program of a lease: first SIGTERM, after the grace SIGKILL, to its whole tree. The keeper delivers the
// signal while it lives (it sees stop_requested), else the daemon, as far as it has proof and right.
struct SignalProgram {
  LeaseId lease;
  bool kill = false;
  std::optional<std::uint32_t> asked_by = {};  // the user who requested it; unset: the daemon's rules
};

// The processes of a lease are to free their VRAM; answered by the fact Parked. Never ordered while an Unpark of the
// lease is not answered, and the other way round.
struct Park {
  LeaseId lease;
  PauseMethod method = PauseMethod::driver;
  Duration at_most{};  // time for the program to answer; a driver call that takes longer is stuck
  Duration give_up{};  // time after which a driver call is given up
};

// Answers LockIntent: the processes that the driver locks for the last Park are stored. Answers MeasuredWhileLocked:
// the bytes of each locked process are stored.
struct Lock {
  LeaseId lease;
};

// The processes are to run as if they had never been parked, however far that had come; answered by the fact Unparked.
struct Unpark {
  LeaseId lease;
  PauseMethod method = PauseMethod::driver;  // the last method that was tried; the driver's is undone first
  bool told = false;                         // then its program gets a resume order
  Duration at_most{};                        // time for the program to answer; it may answer later
  std::optional<std::vector<ProcessRef>> locked_processes =
      {};              // as in Parking: only these may be locked by the driver
  Duration give_up{};  // as in Park
};

// A lease runs again. Its limits did not run for this time, since the order of its pause.
struct Resumed {
  LeaseId lease;
  Duration stood_still{};
  PauseCauseKind cause = PauseCauseKind::owner_request;  // of the pause
};

// A capability is to take the memory of a lease that it declared reclaimable. It withdraws that if it cannot.
struct GiveBack {
  LeaseId lease;
  PauseCauseKind cause = PauseCauseKind::idle;  // of the terms
  LeaseId waiter;
};

using Action = std::variant<TakeSnapshot, SignalProgram, Park, Lock, Unpark, GiveBack>;

struct Plan {
  Result<LeaseId> outcome = LeaseId{};  // of a fact that is a request; a LeaseId of 0 for other facts
  std::vector<Lease> changed;           // new values, each lease once: stored first, then announced
  std::vector<Reason> reasons;          // stored with `changed`
  std::vector<Resumed> resumed;         // leases whose pause is over
  std::vector<LearnedMove> learned;     // durations of moves, stored for State::load()
  std::vector<LearnedRecord> records;   // results of pauses, stored for State::load()
  std::vector<PlanChange> preemptions;  // preemption plans that changed, stored for State::load()
  std::vector<LeaseId> settled;         // ended leases with processes that are now measured gone, and left the state
  std::vector<Grant> grants;            // pause grants that were given or removed
  std::vector<Action> actions;          // started after the commit
  // Names of the transitions of leases, each once (lease/transitions.h); tests crash the daemon in the middle of each.
  std::vector<std::string_view> transitions;
  Time wake_at = Time::never();  // when to call step with a Tick, at the latest
};

}  // namespace sublet::core
