// SPDX-License-Identifier: Apache-2.0
// Leases of the same tier that do not fit together share a device in time slices. At the end of a slice the leases with
// the least service time come first, then other leases that still fit. Leases that stay are not paused. Private to this
// folder; reads only.
#pragma once

#include "core/preemption_plan.h"
#include "core/state.h"
#include "lease/rules.h"

#include <optional>
#include <vector>

namespace sublet::core {

// The slice group of this waiter on a device. Residents are leases of its tier that have memory there and can be
// paused. Waiters are the first leases that wait for the device: the waiter itself, and leases that want no other
// device.
struct SliceGroup {
  std::vector<LeaseId> residents, waiters;
};
SliceGroup slice_group_on(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now);

// The number of devices that it waits for, all at once.
std::size_t devices_wanted(const Lease& lease);

// The time slice in which this waiter enters this device: the next one, or the one that is due, with the leases that
// leave. Leases of lower tiers leave if they alone are not enough. None: others come first for as long as can be
// foreseen.
std::optional<NextSlice> slice_of(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                  const SliceGroup& slice_group, Time now);

// True if a lease of the waiter's tier leaves in the slice. Otherwise it is no slice, and victims are paused as for any
// higher tier.
bool among_equals(const State& state, const Lease& waiter, const NextSlice& slice);

// When the slice of the leaving leases of the waiter's tier ends, on all devices together. By then they have had enough
// time for the cost of the switch, and the entering leases are worth it.
Time quantum_ends(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice);

// The announced start of the time slice, and the leases that leave then. A lease that got its memory a moment ago may
// still be filling it, and more bytes make its slice and its pause longer. Until its use has settled, all of its
// reserved bytes count, so that no slice begins later than announced.
Time announced_at(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice, Time now);
std::vector<Victim> leaving(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice,
                            Time now);

// The time that a lease keeps its memory on these devices before a time slice may take it: see pause.min_residency.
Duration residency(const State& state, const Rules& rules, const Lease& lease, const std::vector<std::string>& devices);

}  // namespace sublet::core
