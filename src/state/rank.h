// SPDX-License-Identifier: Apache-2.0
// The only place that compares the standing of leases.
#pragma once

#include "lease/lease.h"

namespace sublet::core {

inline bool outranks(Tier preemptor, Tier victim) { return preemptor > victim; }
// True if the preemptor may have the victim paused by the rules alone.
inline bool outranks(const Lease& preemptor, const Lease& victim) { return outranks(preemptor.tier, victim.tier); }
// True if the two may share a device by time slices.
inline bool ranks_like(const Lease& a, const Lease& b) { return a.tier == b.tier; }

}  // namespace sublet::core
