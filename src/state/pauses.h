// SPDX-License-Identifier: Apache-2.0
// Leases that are pausing, paused or resuming.
#pragma once

#include "lease/cost.h"
#include "lease/lease.h"
#include "lease/rules.h"
#include "state/attempt.h"
#include "state/preemption_plan.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace sublet::core {

struct State;

struct Pauses {
  std::set<LeaseId> away;     // with Lease::parking
  std::set<LeaseId> pausing;  // of these, the leases in the state `pausing`
  // Pausing leases whose method reports the bytes freed, and that only wait for a measurement.
  std::set<LeaseId> verifying;
  std::set<LeaseId> relapsing;       // paused leases that held more than their residue in the newest snapshot
  std::optional<Obstacle> obstacle;  // the lasting obstacle to all pauses by the driver
  std::optional<std::pair<Time, Time>> driver_missing;  // the first and the last try in a row that found no driver
};

// A move between a device and host memory, and its expected time.
struct Moving {
  Move move = Move::pause;  // settle: the method reports the bytes freed, and no reading shows it yet
  Bytes bytes;              // in all
  Time since;
  Prediction takes;  // from `since`
};

// The bytes that must be free on one of its devices before the driver restores there what it may have parked. `all`
// is for all processes, `of` for each process whose bytes at the pause order are known.
struct ToRestore {
  Bytes all;
  std::map<ProcessRef, Bytes> of;
  Bytes beside;  // bytes allocated while paused, which reduce the free memory of the lease
};

const Attempt* attempt_of(const State& state, LeaseId id);  // null: it is neither pausing nor resuming
// True if the lease is paused, or has not answered its resume order yet.
bool is_away(const State& state, const Lease& lease);
// How long it has not answered repeated resume orders; unset: the silence may be brief.
std::optional<Duration> unanswered_for(const State& state, const Lease& lease, Time now);
std::optional<Moving> move_of(const State& state, LeaseId id);  // unset while nothing is moved
// The bytes that a pause or a resume moves: measured use, or the bytes held at the pause order. For a lease that has
// no memory yet: its size.
Bytes bytes_to_move(const State& state, const Lease& lease);
ToRestore to_restore(const State& state, const Lease& lease, std::string_view device);
bool lacks_memory(const State& state,
                  LeaseId id);  // resuming: its last restore was not tried, because memory was not free
// Pausing or resuming, and the driver has not returned for longer than it should take. Waiters look elsewhere
// meanwhile; the result counts when the driver returns.
bool is_stuck(const State& state, LeaseId id);
std::optional<Time> yield_time_of(const State& state, LeaseId id);  // when its method reported the bytes freed
// True for a pause if its program was told of it, or the driver was to lock a process. Otherwise nothing has to be
// undone.
bool has_begun(const State& state, LeaseId id);
// How much the unlisted bytes on its devices have grown since the pause order, on the device where that is most.
// Without a reading before the order, all of them may be its own.
Bytes unlisted_since_asked(const State& state, const Lease& lease);
// Resuming: why its last restore failed, one sentence; "" while none has failed.
const std::string& resume_failure(const State& state, LeaseId id);
std::optional<bool> is_inhabited(const State& state,
                                 LeaseId id);  // the last LivenessReport since its pause; unset: none

// Updates reserved and entered bytes, too.
void set_parking(State& state, Lease& lease, std::optional<Parking> parking, LeaseState to);
// These functions note how the processes met a pause order, by the measurements. Each changes `parking`, which
// becomes the lease's.
void note_asked(const State& state, const Lease& lease, Parking& parking, const Rules& rules, Time now);
void note_yielded(const State& state, const Lease& lease, Parking& parking);
void note_beside(const State& state, const Lease& lease, Parking& parking);
void expect_return(State& state, const Lease& lease);
void expect_all_back(State& state, const Lease& lease);

}  // namespace sublet::core
