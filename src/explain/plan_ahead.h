// SPDX-License-Identifier: Apache-2.0
// When several more leases of a kind would start, and at whose cost. Reads only, and copies the state: for answers to
// users, never for a decision.
#pragma once

#include "explain/explain.h"
#include "lease/facts.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::explain {

// The lease that gives its memory to a planned lease.
struct Yields {
  LeaseId lease;
  bool ends = false;              // it is ended; false: it is paused
  Time at;                        // when its memory is free
  std::optional<Time> back = {};  // when it gets its memory back; unset: not foreseen, or it is ended
};

struct PlannedStart {
  std::optional<Time> at;           // unset: no event that is foreseen gives it its memory
  core::Lease lease;                // as it starts, or as it waits
  QueueInfo queue;                  // place 0: it would start at once
  std::vector<Yields> yields = {};  // each lease once
};

// So many leases of this kind are asked for now, one after the other. The first refusal is the answer.
Result<std::vector<PlannedStart>> plan_ahead(const core::State& state, const core::Rules& rules,
                                             const core::Submit& fact, int count, Time now);

}  // namespace sublet::explain
