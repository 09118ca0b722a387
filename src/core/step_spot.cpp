// SPDX-License-Identifier: Apache-2.0
// Spot leases that cannot be paused: they are ended for a waiting lease, with time to save their work.
#include "core/step_spot.h"
#include "core/current_step.h"
#include "core/step_ask.h"
#include "core/step_end.h"
#include "core/step_preempt.h"
#include "state/format.h"
#include "state/methods.h"

namespace sublet::core {

static ReasonKind why_unpausable(const Step& step, const Lease& lease, const Lease& preemptor, ReasonArgs& why);

// The work of a spot lease may be saved first. Its lease and its program stay as they are for this time.
bool is_given_notice(Step& step, Lease& lease, const PreemptionPlan& preemption) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  if (runtime.notice <= Duration{}) return false;
  if (runtime.noticed_at == Time{}) {
    runtime.noticed_at = step.now;
    explain(step, lease, ReasonKind::spot_noticed,
            args("preemptor", name_of(*find(step.state, preemption.preemptor())), "notice", runtime.notice));
    touch(step, lease);
  }
  const Time until = runtime.noticed_at + runtime.notice;
  look_again_at(step, until);
  return step.now < until;
}

// A spot lease that cannot be paused has agreed to be ended when a higher tier needs its memory.
void end_spot(Step& step, Lease& lease, const PreemptionPlan& preemption) {
  const PauseCause cause = cause_of(step, preemption, lease);
  ReasonArgs why = args("cause", to_string(cause.kind));
  why.add(cause.args);
  if (const auto since = unanswered_for(step.state, lease, step.now); since >= step.rules.spot_unused_after) {
    why.add("silent", *since);
    return end(step, lease, EndReason::revoked, ReasonKind::spot_unresponsive, std::move(why));
  }
  const ReasonKind kind = why_unpausable(step, lease, *find(step.state, preemption.preemptor()), why);
  end(step, lease, EndReason::revoked, kind, std::move(why));
}

// Why a spot lease cannot be paused for the preemptor; adds the arguments.
static ReasonKind why_unpausable(const Step& step, const Lease& lease, const Lease& preemptor, ReasonArgs& why) {
  const MostParkable most = most_parkable(step.rules, lease, preemptor.uid);
  const auto methods = pause_methods_of(step.state, lease);
  const bool by_a_method = !methods.empty();
  const Obstacle* barred = by_a_method ? bar_of(step.state, lease.id, methods.front(), step.now) : nullptr;
  if (barred != nullptr && open_methods_of(step.state, lease, step.now).empty()) {
    why.add("obstacle", barred->detail);
    return ReasonKind::spot_obstructed;
  }
  if ((by_a_method || may_register(lease)) && lease.reserved() > most.bytes) {
    why.add(args("reserved", lease.reserved(), "most", most.bytes, "bound", most.bound));
    return ReasonKind::spot_too_large;
  }
  if (by_a_method) return ReasonKind::spot_unused;
  if (!may_register(lease)) return ReasonKind::spot_unpausable;
  why.add("idle", step.rules.spot_unused_after);
  return lease.pausable == Pausable::driver ? ReasonKind::spot_without_program : ReasonKind::spot_unregistered;
}

}  // namespace sublet::core
