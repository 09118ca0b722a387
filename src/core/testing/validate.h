// SPDX-License-Identifier: Apache-2.0
// The invariants of a core::State between two steps. Unit tests, the property test, the simulation and the fuzzer share
// this one check.
#pragma once

#include "state/state.h"

#include <string>
#include <vector>

namespace sublet::core::testing {

// Recomputes every sum and index of `state` from its leases, charges and readings, and compares.
// `rules` and `now`: those of the last step. Returns one sentence for each violation; an empty list means none.
// Walks all leases of all devices and sorts the queue: for tests only. Pure; any thread that may read `state`.
std::vector<std::string> validate(const State& state, const Rules& rules, Time now);
// The part of it that is about tenants.
std::vector<std::string> validate_tenants(const State& state);

}  // namespace sublet::core::testing
