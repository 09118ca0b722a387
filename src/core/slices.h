// SPDX-License-Identifier: Apache-2.0
// Leases of equal standing that do not fit together take turns: at the end of a quantum those that had least of the
// device come first, then whoever still fits; who stays is not paused. Private to this folder; reads only.
#pragma once

#include "core/preemption_plan.h"
#include "core/rules.h"
#include "core/state.h"

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

// Whether it waits for room on this device, alone or among others.
bool waits_for(const Lease& lease, const Device& device);

// On how many devices it waits for room, on all at once.
std::size_t devices_wanted(const Lease& lease);

// The turn that brings this waiter in on this device: the next one, or the one that is due; with whoever has to leave,
// of its equals, and of lower tiers where those alone are not enough. `begun`: what is under way for it, if its turn
// has begun: then it is due, whatever was learned since, as long as nobody else has to leave. None: others come before
// it for as long as can be foreseen.
std::optional<NextSlice> slice_of(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                  const SliceGroup& slice_group, const PreemptionPlan* begun, Time now);

// When it is due that has begun: at once, or when those leave who were not to leave then.
Time goes_on(const State& state, const Rules& rules, const Lease& waiter, NextSlice slice, const PreemptionPlan& begun,
             Time now);

// Whether an equal of the waiter leaves in it: else it is no turn, and room is made as for anybody above.
bool among_equals(const State& state, const Lease& waiter, const NextSlice& slice);

// When those of the waiter's equals who leave in this turn have had what it costs to switch, and those who enter are
// worth to be let in for; on all of its devices together.
Time quantum_ends(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice);

// The announced start of the time slice, and the leases that leave then. A lease that got its memory a moment ago may
// still be filling it, and more bytes make its slice and its pause longer. Until its use has settled, all of its
// reserved bytes count, so that no slice begins later than announced.
Time announced_at(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice, Time now);
std::vector<Victim> leaving(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice,
                            Time now);

// How long a lease has its room on these devices before a turn takes it away again: see pause.min_residency.
Duration residency(const State& state, const Rules& rules, const Lease& lease, const std::vector<std::string>& devices);

}  // namespace sublet::core
