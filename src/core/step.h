// SPDX-License-Identifier: Apache-2.0
// The decisions. Deterministic: no clock, no I/O, no logging, no threads, nothing O(n) per event.
#pragma once

#include "lease/facts.h"
#include "lease/plan.h"
#include "lease/rules.h"
#include "state/state.h"

namespace sublet::core {

// Applies one fact to the state at `now` (never less than at the call before) and returns the plan. A refused request
// changes nothing and says why in plan.outcome; waiters that can start by time alone may be granted with it.
Plan step(State& state, const Rules& rules, const Fact& fact, Time now);

}  // namespace sublet::core
