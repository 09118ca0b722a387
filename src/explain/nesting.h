// SPDX-License-Identifier: Apache-2.0
// Leases that are asked for by the program of another lease. Pure functions.
#pragma once

#include "lease/rules.h"
#include "state/state.h"

namespace sublet::explain {

// Whether a request of the program of `outer` could only be granted after the end of `outer`: the program would wait
// for itself. A device that was never read may have any size.
bool would_wait_for(const core::State& state, const core::Rules& rules, const core::Lease& asked,
                    const core::Lease& outer);

// The most that the request could have on each of its devices beside `outer`; 0: nothing.
Bytes most_beside(const core::State& state, const core::Rules& rules, const core::Lease& asked,
                  const core::Lease& outer);

}  // namespace sublet::explain
