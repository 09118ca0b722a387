// SPDX-License-Identifier: Apache-2.0
// The effect that a request would have now: for previews and dry runs. Reads only. It copies the state, so
// that it is for answers to users, never for a decision.
#pragma once

#include "core/step.h"
#include "explain/explain.h"
#include "lease/facts.h"
#include "state/preemption_plan.h"

#include <optional>
#include <string>

namespace sublet::explain {

// The victims for a waiting lease, or for the lease of a preview (id none), now or once they are eligible, with their
// cost. Without victims: the reason, and what else there is.
core::VictimPlan victim_plan(const core::State& state, const core::Rules& rules, const core::Lease& asked,
                             const std::optional<core::PreemptionRequest>& preemption_request, Time now);

// Takes the host memory of the machine into account: victims that need more than it takes at the moment are not paused.
void limit_to_host(core::VictimPlan& room, const core::State& state, const core::Rules& rules, std::uint32_t preemptor);

// Why the request would be refused whatever memory is free.
Status refusal(const core::State& state, const core::Rules& rules, const core::Submit& fact, Time now);

// The refusal of a request that may not queue, if the lease would have to wait.
Status would_start(const core::State& state, const core::Rules& rules, const core::Submit& fact, Time now);

enum class Would { start, preempt, wait };
std::string_view to_string(Would would);

struct DryRun {
  Would would = Would::wait;
  core::Lease lease;      // the lease after the request, with its future id
  QueueInfo queue;        // place 0: it would start at once
  core::VictimPlan room;  // the victims; empty if it would start at once
};

// The lease of a request after its step, which may have ended at once.
core::Lease outcome_of(const core::State& after, const core::Plan& plan);

// The basis of a start for which a lease is ended.
std::string ended_for_it_text(const core::Lease& ended);

// The refusal, or the result of the request. `would` takes host memory into account; `room` may be found for a time
// when there is more of it (limit_to_host).
Result<DryRun> dry_run(const core::State& state, const core::Rules& rules, const core::Submit& fact, Time now);

}  // namespace sublet::explain
