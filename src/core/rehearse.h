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
  Lease lease;      // the lease after the request, with its future id
  QueueInfo queue;  // place 0: it would start at once
  VictimPlan room;  // the victims; empty if it would start at once
};

// The refusal, or the result of the request.
Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, Time now);
// The result with this host memory: no victim is paused that needs more.
Result<Rehearsal> rehearse(const State& state, const Rules& rules, const Submit& fact, const HostMemory& host,
                           Time now);

}  // namespace sublet::core
