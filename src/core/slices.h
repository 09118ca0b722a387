// SPDX-License-Identifier: Apache-2.0
// Leases of the same tier that do not fit together share devices in time slices. The length of a slice is fixed when it
// begins. At its end the leases with the least service time come first, then other leases that still fit. Leases that
// stay are not paused. Private to this folder; reads only.
#pragma once

#include "lease/rules.h"
#include "state/preemption_plan.h"
#include "state/state.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace sublet::core {

// A lease that waits for a time slice, and the devices (uuids) where it may have one.
struct SliceWaiter {
  LeaseId lease;
  std::set<std::string> devices;
};

// Leases of one tier that share devices (uuids) with one clock: all slices on these end at the same time.
struct SliceGroup {
  std::vector<std::string> devices;
  std::vector<SliceWaiter> waiters;  // never empty
};

// The number of devices that it waits for, all at once.
std::size_t devices_wanted(const Lease& lease);

// True if the lease may leave for a time slice of the waiter. It is of the same tier, or of a lower tier: those leave
// where the leases of the same tier are not enough.
bool may_leave(const State& state, const Rules& rules, const Lease& waiter, const Lease& lease, Time now);

struct Slices {
  std::vector<NextSlice> next;         // of each waiter that enters
  std::optional<Rotation> rotation{};  // unset: some of the leases fit together
};
// `ends`: the end of the present slice, where it is fixed.
Slices next_slices(const State& state, const Rules& rules, const SliceGroup& group, std::optional<Time> ends, Time now);

// The time that a lease keeps its memory on these devices before a time slice may take it: see pause.min_residency.
Duration residency(const State& state, const Rules& rules, const Lease& lease, const std::vector<std::string>& devices,
                   Duration Prediction::*which = &Prediction::likely);

}  // namespace sublet::core
