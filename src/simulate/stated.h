// SPDX-License-Identifier: Apache-2.0
// The longest waits that `why` and `queue` state for waiting leases, and whether the leases began within them. A lease
// that is paused waits again.
#pragma once

#include "lease/rules.h"
#include "state/state.h"

#include <optional>
#include <unordered_map>
#include <vector>

namespace sublet::simulate {

// Waits with a stated bound: kept, late, or still open at the end of the run.
struct Bounds {
  std::size_t stated = 0;
  std::size_t kept = 0;    // the lease began at most `in_time` later than the earliest moment that was stated
  std::size_t late = 0;    // it began later, or had not begun at the end of the run
  std::size_t broken = 0;  // of `late`: none of the events came that a bound names as its exceptions
  Duration largest{};      // overrun
};

// A reading shows what a pause has freed.
inline constexpr Duration in_time = std::chrono::seconds(1);

// Asks for a lease when it is queued, for those of a plan when the plan begins, and for all that share devices in turn
// at each sample.
class StatedBounds {
 public:
  // After each decision.
  void look_at_plans(const core::State& state, const core::Rules& rules, Time now);
  void look_at_turns(const core::State& state, const core::Rules& rules, Time now);
  void came(const core::State& state, const core::Rules& rules, LeaseId newcomer, Time now);
  // After each change of a lease.
  void changed(const core::State& state, const core::Lease& lease, Time now);
  Bounds finish(Time now);

 private:
  struct Statement {
    Time earliest;                       // latest start by the strictest bound so far
    std::optional<Time> binding = {};    // the same, of the bounds of which no exception has come
    bool has_exceptions = false;         // of `binding`
    std::vector<LeaseId> turns_of = {};  // leases of whose time slices `binding` is made; empty: of pauses
  };

  void ask(const core::State& state, const core::Rules& rules, LeaseId id, Time now);
  void close(const Statement& its, Time now);

  std::unordered_map<LeaseId, Statement> open_;
  std::uint64_t last_plan_ = 0;
  Bounds sum_;
};

}  // namespace sublet::simulate
