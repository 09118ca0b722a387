// SPDX-License-Identifier: Apache-2.0
// Preemption requests: possible victims, leases that are kept out meanwhile, and leases that keep the memory
// afterwards.
#include "core/step_request.h"
#include "core/current_step.h"
#include "core/victims.h"
#include "state/format.h"

#include <algorithm>

namespace sublet::core {

static Error cannot_make_room(const Step& step, const Lease& lease, const VictimPlan& plan);

Result<LeaseId> on(Step& step, const Preempt& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!step.state.queue.contains(lease.id)) {
    if (lease.state == LeaseState::active || lease.state == LeaseState::offered) return lease.id;
    return Error{Code::Stale,
                 "memory is freed only for a waiting lease, and " + name_of(lease) + " is " +
                     std::string(to_string(lease.state)),
                 back_hint(step.state, lease)};
  }
  PreemptionRequest by = fact.by;
  if (const auto before = request_of(step.state, lease.id))
    by.any_user |= before->any_user;  // its owner takes no more back
  const VictimPlan plan = plan_now_or_later(step.state, step.rules, PreemptionQuery{lease, by}, step.now);
  if (!plan.found) return cannot_make_room(step, lease, plan);
  request_preemption(step, lease, by);
  explain(step, lease, ReasonKind::preemption_requested,
          args("requester", requester_text(by, lease), "later", plan.wait_for));
  return lease.id;
}

static Error cannot_make_room(const Step& step, const Lease& lease, const VictimPlan& plan) {
  std::string text =
      "no memory can be freed for " + name_of(lease) + ", which " + need_text(step.state, lease) + ": " + plan.why_not;
  for (const Ineligible& ineligible : plan.ineligible)
    text += "; " + name_of(*find(step.state, ineligible.lease)) + ": " + ineligible.why;
  return Error{Code::CannotPreempt, std::move(text), {}};
}

void request_preemption(Step& step, Lease& lease, const PreemptionRequest& by) {
  lease.preemption_request = by;
  touch(step, lease);
  step.state.preemption.requested.insert(lease.id);
  step.state.preemption.stale = true;
}

// The tier up to which other leases are kept out. Victims above the preemptor wait to resume as soon as they are
// paused. They may not take the memory back before the last victim has freed its own.
Tier keeps_out(const Step& step, const PreemptionQuery& query, const VictimPlan& plan) {
  Tier tier = query.lease.tier;
  const auto consider = [&](const Lease& lease) {
    if (query.by_request(lease)) tier = std::max(tier, lease.tier);
  };
  const auto leaves_it = [&](const Lease& lease) {
    if (lease.state == LeaseState::paused) return lease.parking->resume_requested;
    return lease.state == LeaseState::pausing || is_leaving(step.state, lease);
  };
  for (const Victim& victim : plan.victims) consider(*find(step.state, victim.lease));
  for (const std::string& device : plan.devices)
    for (const LeaseId id : step.state.devices.by_uuid.at(device).leases)
      if (const Lease& lease = *find(step.state, id); lease.parking && leaves_it(lease)) consider(lease);
  return tier;
}

// The lease has the requested memory, and keeps it: its victims would otherwise take it back at once.
void keep_request(Step& step, Lease& lease) {
  if (lease.reserves() && !lease.parked()) {
    lease.preemption_request->given_at = step.now;
  } else {
    lease.preemption_request.reset();
  }
  note(step, "request_kept");
  touch(step, lease);
}

// A preemption request covers only the size that the lease wanted at that time.
void drop_request(Step& step, Lease& lease) {
  lease.preemption_request.reset();
  step.state.preemption.requested.erase(lease.id);
}

}  // namespace sublet::core
