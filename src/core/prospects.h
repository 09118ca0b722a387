// SPDX-License-Identifier: Apache-2.0
// Prospects of a lease without free memory: other leases are paused already, with the next time slice, or once they are
// eligible, and further advice. For answers to users, never for a decision. Private to this folder.
#pragma once

#include "core/preemption_plan.h"
#include "core/victims.h"

#include <optional>
#include <string>

namespace sublet::core {

// The time until a waiter gets memory from pauses, and the source of that. `in` unset: unknown, and `basis` says why.
// Without a basis no pause for it can be foreseen.
struct Sooner {
  std::optional<Duration> in;
  std::string basis;
};
Sooner sooner_by_others(const State& state, const Rules& rules, const Lease& lease, Time now);

// The victims now, or else once they are eligible (`wait`, `wait_for`); not found: `hint` says what else there is.
VictimPlan plan_now_or_later(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);

// A request with which the waiter's owner could get memory at once; "" if there is none.
std::string owners_word(const State& state, const Rules& rules, const Lease& lease, Time now);

// How the memory of a holder could be freed; "" if no request can.
std::string how_to_have_it(const State& state, const Rules& rules, const Lease& holder, const Lease& waiter, Time now);

}  // namespace sublet::core
