// SPDX-License-Identifier: Apache-2.0
// The effect that a request would have now: for previews and dry runs. Reads only. A rehearsal copies the state, so
// that it is for answers to users, never for a decision.
#pragma once

#include "core/explain.h"
#include "core/facts.h"
#include "core/preemption_plan.h"

#include <optional>

namespace sublet::core {

// The victims for a waiting lease, or for the lease of a preview (id none), now or once they are eligible, with their
// cost. Without victims: the reason, and what else there is.
VictimPlan victim_plan(const State& state, const Rules& rules, const Lease& asked,
                       const std::optional<PreemptionRequest>& preemption_request, Time now);

// Takes the host memory of the machine into account: victims that need more than it takes at the moment are not paused.
void weigh_host(VictimPlan& room, const State& state, const Rules& rules, std::uint32_t preemptor, HostMemory host);

enum class Would { start, preempt, wait };
std::string_view to_string(Would would);

struct Rehearsal {
  Would would = Would::wait;
  Lease lease;      // as it would be, under the id that it would get
  QueueInfo queue;  // place 0: it would not have to wait
  VictimPlan room;  // who would yield; where it would start at once, nobody
};

// The refusal, or what would come of it.
Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, Time now);
// The same on a machine whose host memory takes so much: where that is too little, nobody yields.
Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, const HostMemory& host,
                           Time now);

}  // namespace sublet::core
