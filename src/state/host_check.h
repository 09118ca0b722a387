// SPDX-License-Identifier: Apache-2.0
// Whether host memory takes the bytes of a lease. The core asks this for the machine before it orders a pause, and the
// executor for the processes of the lease before it carries out the order. Reads only.
#pragma once

#include "base/error.h"
#include "lease/facts.h"
#include "lease/rules.h"
#include "state/state.h"

namespace sublet::core {

// The refusal by swap, memory pressure, the ledger or the cgroup, with the figures and a hint. An entry that the lease
// has already does not count against it.
Status check_host(const State& state, const Rules& rules, const Lease& lease, const HostMemory& host);

}  // namespace sublet::core
