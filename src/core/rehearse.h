// SPDX-License-Identifier: Apache-2.0
// What would happen if it were asked for now: for previews and dry runs. Reads only. A rehearsal costs a copy of the
// state, so it is for people who ask, never for a decision.
#pragma once

#include "core/explain.h"
#include "core/facts.h"
#include "core/preemption_plan.h"

#include <optional>

namespace sublet::core {

// Who would yield for a lease that waits, or is only thought of (id none), now or once they may be asked, and at what
// cost; or why nobody can, and what else there is.
VictimPlan victim_plan(const State& state, const Rules& rules, const Lease& asked,
                       const std::optional<PreemptionRequest>& preemption_request, Time now);

// What is known of the machine's host memory counts too: who is more than it takes at the moment does not yield.
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
