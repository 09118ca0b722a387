// SPDX-License-Identifier: Apache-2.0
// What is to be hoped for where there is no room yet: others who yield already, or with the next turn, or as soon as
// they may be asked; and what else there is. For people who ask, never for a decision. Private to this folder.
#pragma once

#include "core/preemption_plan.h"
#include "core/victims.h"

#include <optional>
#include <string>

namespace sublet::core {

// When a waiter has its room because others yield, from now, and by what that is known; `in` unset: nobody knows, and
// `basis` says why. Without a basis: nobody yields for it, as far as can be foreseen.
struct Sooner {
  std::optional<Duration> in;
  std::string basis;
};
Sooner sooner_by_others(const State& state, const Rules& rules, const Lease& lease, Time now);

// Who would yield now, or else once they may be asked (`wait`, `wait_for`); not found: `hint` says what else there is.
VictimPlan plan_now_or_later(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);

// What the waiter's owner could have done for it at once, by a word of the owner's own; "" if nothing.
std::string owners_word(const State& state, const Rules& rules, const Lease& lease, Time now);

// How a holder's room could be had; "" if not by asking anybody.
std::string how_to_have_it(const State& state, const Rules& rules, const Lease& holder, const Lease& waiter, Time now);

}  // namespace sublet::core
