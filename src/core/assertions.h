// SPDX-License-Identifier: Apache-2.0
// Invariants after each step, as far as it is cheap to check: for the leases that changed and their devices.
// Checked in all builds; core/testing/validate.cpp recomputes everything, in tests. Private to this folder.
#pragma once

#include "lease/plan.h"
#include "state/state.h"

namespace sublet::core {

// Aborts the daemon if it does not hold: the step is not stored, and the next daemon starts from the one before.
void assert_step(const State& state, const Plan& plan);

}  // namespace sublet::core
