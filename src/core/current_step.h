// SPDX-License-Identifier: Apache-2.0
// The step that is being made: what the functions in step_*.cpp share. Each kind of fact has its own on(). A header of
// each subject declares what other subjects call. Private to this folder.
#pragma once

#include "core/step.h"
#include "lease/plan.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::core {

// The interval between two looks at pauses under verification, and at plans.
inline constexpr Duration look_interval = std::chrono::milliseconds(20);

// The time beyond the expected move: a program may need it to finish submitted work.
inline constexpr Duration driver_grace = std::chrono::seconds(10);
// The most time that a move by the driver should take, whatever is predicted.
inline constexpr Duration driver_limit = std::chrono::hours(1);
// A driver call is given up after this multiple of the time that a move may take, and never under half a minute.
inline constexpr int given_up_after = 3;
inline constexpr int most_doublings = 6;                         // of the cooldown of a lease whose pauses fail
inline constexpr Duration barred_for = std::chrono::minutes(2);  // an obstacle may end without notice

class Nominations;
struct PreemptionQuery;

// Where a waiter fits.
struct Placement {
  LeaseId lease;
  std::vector<std::string> devices;
  Bytes vram;  // on each of them
};

// A victim whose pause was undone in this step and that has another method left. If its memory is still wanted, the
// next method is ordered at once.
struct Undone {
  Parking parking;
  HostMemory host;
  std::optional<Time> expires_at;  // of the lease, which has none meanwhile: its time still stands
};

struct Step {
  State& state;
  const Rules& rules;
  const Time now;
  Plan plan = {};
  std::vector<LeaseId> touched = {};         // leases that changed
  std::vector<LeaseId> ended = {};           // ended leases that may have nothing left to wait for
  std::set<LeaseId> relapsing = {};          // of this snapshot
  std::optional<std::uint64_t> served = {};  // revision of the queue when no waiter could be granted any more
  LeaseId submitted = {};                    // the lease of the open request: a grant in this step needs no claim
  std::vector<LeaseId> may_be_blocked = {};  // leases to examine for blocking processes at the end of the step
  std::map<LeaseId, Undone> undone = {};
  bool snapshot_wanted = false;
  std::optional<std::uint32_t> asked_by = {};  // the user whose request ends a program, while it is decided
};

Lease* find(Step& step, LeaseId id);                  // null: not live, or unknown
Attempt& attempt_in(Step& step, const Lease& lease);  // of a lease that is pausing or resuming
// Refuses an unknown lease and an outdated generation. 0: any generation.
Result<Lease*> find_for(Step& step, LeaseId id, std::uint64_t generation);
void touch(Step& step, const Lease& lease);
void explain(Step& step, const Lease& lease, ReasonKind kind, ReasonArgs args = {});
void note(Step& step, std::string_view moment);  // a name in lease/transitions.h

}  // namespace sublet::core
