// SPDX-License-Identifier: Apache-2.0
// Leases that capabilities declare reclaimable: which waiter may have their memory. For this folder
// and src/explain.
#pragma once

#include "lease/facts.h"
#include "lease/plan.h"
#include "state/preemption_plan.h"
#include "state/state.h"

namespace sublet::core {

// Notes what a capability declares or withdraws. True: something changed.
bool put_reclaimable(State& state, const Reclaimable& fact);
// The terms by which the waiter may have the memory of the lease; null: it may not.
const Reclaim* reclaim_for(const State& state, const Lease& waiter, const Lease& lease);
// True if the lease is active, and its capability was asked to take its memory and has not withdrawn.
bool is_given_back(const State& state, LeaseId id);
// The capability is asked to take its memory.
GiveBack ask_back(State& state, const Victim& victim, LeaseId waiter);
// The cause of a pause by these terms.
PauseCause cause_of(const Reclaim& terms, const Lease& waiter, Time now);

}  // namespace sublet::core
