// SPDX-License-Identifier: Apache-2.0
// Preemption requests: possible victims, leases that are kept out meanwhile, and leases that keep the memory
// afterwards.
#include "core/explain.h"
#include "core/format.h"
#include "core/prospects.h"
#include "core/stepper.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {

Result<LeaseId> Stepper::on(const Preempt& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!state_.queue_.contains(lease.id)) {
    if (lease.state == LeaseState::active || lease.state == LeaseState::offered) return lease.id;
    return Error{Code::Stale,
                 "memory is freed only for a waiting lease, and " + name_of(lease) + " is " +
                     std::string(to_string(lease.state)),
                 back_hint(state_, lease)};
  }
  PreemptionRequest by = fact.by;
  if (const auto before = state_.preemption_request(lease.id))
    by.any_user |= before->any_user;  // its owner takes no more back
  const VictimPlan plan = plan_now_or_later(state_, rules_, PreemptionQuery{lease, by}, now_);
  if (!plan.found) return cannot_make_room(lease, plan);
  request_preemption(lease, by);
  explain(lease, ReasonKind::preemption_requested,
          args("requester", requester_text(by, lease), "later", plan.wait_for));
  return lease.id;
}

Error Stepper::cannot_make_room(const Lease& lease, const VictimPlan& plan) const {
  std::string text =
      "no memory can be freed for " + name_of(lease) + ", which " + need_text(lease) + ": " + plan.why_not;
  for (const Ineligible& ineligible : plan.ineligible)
    text += "; " + name_of(*state_.find(ineligible.lease)) + ": " + ineligible.why;
  return Error{Code::CannotPreempt, std::move(text), plan.hint};
}

void Stepper::request_preemption(Lease& lease, const PreemptionRequest& by) {
  lease.preemption_request = by;
  touch(lease);
  state_.requested_.insert(lease.id);
  state_.room_stale_ = true;
}

// The tier up to which other leases are kept out. Victims above the preemptor wait to resume as soon as they are
// paused. They may not take the memory back before the last victim has freed its own.
Tier Stepper::keeps_out(const PreemptionQuery& query, const VictimPlan& plan) const {
  Tier tier = query.lease.tier;
  const auto consider = [&](const Lease& lease) {
    if (query.by_request(lease)) tier = std::max(tier, lease.tier);
  };
  const auto leaves_it = [&](const Lease& lease) {
    if (lease.state == LeaseState::paused) return lease.parking->resume_requested;
    return lease.state == LeaseState::pausing || is_leaving(state_, lease);
  };
  for (const Victim& victim : plan.victims) consider(*state_.find(victim.lease));
  for (const std::string& device : plan.devices)
    for (const LeaseId id : state_.devices_.at(device).leases)
      if (const Lease& lease = *state_.find(id); lease.parking && leaves_it(lease)) consider(lease);
  return tier;
}

// The lease has the requested memory, and keeps it: its victims would otherwise take it back at once.
void Stepper::keep_request(Lease& lease) {
  for (const LeaseId id : state_.away_)
    if (LeaseId& whom = state_.runtime_.at(id).yields_for; whom == lease.id) whom = {};
  if (lease.reserves() && !lease.parked()) {
    lease.preemption_request->given_at = now_;
  } else {
    lease.preemption_request.reset();
  }
  note("request_kept");
  touch(lease);
}

// A preemption request covers only the size that the lease wanted at that time.
void Stepper::drop_request(Lease& lease) {
  lease.preemption_request.reset();
  state_.requested_.erase(lease.id);
}

}  // namespace sublet::core
