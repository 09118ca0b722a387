// SPDX-License-Identifier: Apache-2.0
// The decision of the core on one fact: a value that says what to store, what to tell, what to do, and when to wake.
#pragma once

#include "core/cost.h"
#include "core/facts.h"
#include "core/lease.h"
#include "core/reason.h"

#include <optional>
#include <string_view>
#include <variant>
#include <vector>

namespace sublet::core {

// Take a snapshot as soon as possible: something settles or changed.
struct TakeSnapshot {};

// The program of a lease is to end: first SIGTERM, after the grace SIGKILL, to its whole tree. Delivered by
// its keeper while that lives (it sees stop_requested), else by the daemon as far as it has proof and right.
struct SignalProgram {
  LeaseId lease;
  bool kill = false;
  std::optional<std::uint32_t> asked_by = {};  // the user who wants it so; unset: the rules of this daemon
};

// The processes of a lease are to give up their VRAM; answered by the fact Parked. Never while an Unpark of the same
// lease is not answered, and the other way round.
struct Park {
  LeaseId lease;
  PauseMethod method = PauseMethod::driver;
  Duration at_most{};  // its program has this time to answer; the driver should not need longer, else it is stuck
  Duration give_up{};  // a call of the driver that has not returned by then is not waited for any more
};

// It is stored whom the driver locks for the last Park: the answer to the fact LockIntent. Or what each of them holds
// that it has locked: to MeasuredWhileLocked.
struct Lock {
  LeaseId lease;
};

// They are to be as if they had never been parked, however far that had come; answered by the fact Unparked.
struct Unpark {
  LeaseId lease;
  PauseMethod method = PauseMethod::driver;  // the last that was tried; the driver's is undone before …
  bool told = false;                         // … its program is told to go on
  Duration at_most{};                        // it has this time to answer, and may answer later
  std::optional<std::vector<ProcessRef>> locked_processes = {};  // as in Parking: of these alone it is the driver's
  Duration give_up{};                                            // as in Park
};

// Asks how many bytes of this lease host memory would take at this moment; answered by the fact HostWeighed.
struct WeighHost {
  LeaseId lease;
};

// A paused one holds VRAM again: its pause is to be asked for once more (the fact Pause), with what host memory takes.
struct PauseAgain {
  LeaseId lease;
};

using Action = std::variant<TakeSnapshot, SignalProgram, Park, Lock, Unpark, WeighHost, PauseAgain>;

struct Plan {
  Result<LeaseId> outcome = LeaseId{};  // of the request that the fact was; a LeaseId of 0 for other facts
  std::vector<Lease> changed;           // new values, each lease once; to store first, then to announce
  std::size_t givers = 0;               // so many come first in `changed`; the others were given room, in that order
  std::vector<Reason> reasons;          // to store with them
  std::vector<LearnedMove> learned;     // how long moves took, to store: State::load() gets them again
  std::vector<LearnedRecord> records;   // how pauses went, to store: the same
  std::vector<LeaseId> settled;         // ended leases that had a process and are now measured gone: out of the state
  std::vector<Grant> grants;            // given or taken back
  std::vector<Action> actions;          // to start after the commit
  // Names of the transitions of leases, each once (core/transitions.h); tests crash the daemon in the middle of each.
  std::vector<std::string_view> transitions;
  Time wake_at = Time::never();  // call step with a Tick then, at the latest
};

}  // namespace sublet::core
