// SPDX-License-Identifier: Apache-2.0
// When a waiter will start, if what is known of the leases that run comes true and nobody else comes. Private to this
// folder.
#pragma once

#include "core/explain.h"

namespace sublet::core {

// Sets eta and basis of `info`, whose place is known.
void estimate_start(const State& state, const Rules& rules, const Lease& lease, Time now, QueueInfo& info);

}  // namespace sublet::core
