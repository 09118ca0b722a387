// SPDX-License-Identifier: Apache-2.0
// Expectations of a lease without free memory: other leases are paused already, with the next time slice, or once they
// are eligible, and further advice. For answers to users, never for a decision. Private to this folder.
#pragma once

#include "core/preemption_plan.h"
#include "core/victims.h"

#include <optional>
#include <string>

namespace sublet::explain {

// The time until a waiter gets memory from pauses, and the source of that. `in` unset: unknown, and `basis` says why.
// Without a basis no pause for it can be foreseen.
struct Sooner {
  std::optional<Duration> in;
  std::string basis;
};
Sooner sooner_by_others(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now);

// Further advice where no victims are found (`plan`), in plain words.
std::string what_else(const core::State& state, const core::Rules& rules, const core::PreemptionQuery& query,
                      const core::VictimPlan& plan, Time now);

// A request with which the waiter's owner could get memory at once; "" if there is none.
std::string owners_word(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now);

// How the memory of a holder could be freed; "" if no request can.
std::string how_to_have_it(const core::State& state, const core::Rules& rules, const core::Lease& holder,
                           const core::Lease& waiter, Time now);

}  // namespace sublet::explain
