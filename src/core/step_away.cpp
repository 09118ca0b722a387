// SPDX-License-Identifier: Apache-2.0
// Events while a lease is parked: unleased processes take its memory, or the lease is orphaned. A control group that
// owns a lease has its first process, or none any more.
#include "core/step_away.h"
#include "core/current_step.h"
#include "core/step_end.h"
#include "core/step_owner.h"
#include "state/blocked.h"
#include "state/format.h"

#include <utility>

namespace sublet::core {

// Notes leases that wait in vain although capacity is free. A lease is told once for each unleased process that holds
// the most, and once when its card is gone.
void note_blocked(Step& step) {
  for (const LeaseId id : std::exchange(step.may_be_blocked, {})) {
    Lease* lease = find(step, id);
    if (lease == nullptr || lease->ended()) continue;
    std::int32_t& told = step.state.leases.runtime.at(id).blocked_by;
    const auto blocked = what_blocks(step.state, step.rules, *lease, step.now);
    const std::int32_t first = !blocked                              ? 0
                               : blocked->unleased_processes.empty() ? -1
                                                                     : blocked->unleased_processes.front().process.pid;
    if (first != 0 && first != told) explain(step, *lease, blocked->kind, blocked->args);
    told = first;
  }
}

Result<LeaseId> on(Step& step, const LivenessReport& fact) {
  Lease* lease = find(step, fact.lease);
  if (lease == nullptr || !lease->parking || lease->owner.kind != OwnerKind::token)
    return not_found(to_string(fact.lease) + " is not parked, or does not belong to its token");
  step.state.leases.runtime.at(lease->id).inhabited = fact.lives;
  // When the last of them ended nobody saw. Once it is seen that has to last: no daemon lives as long as it may take.
  auto& since = lease->parking->orphaned_since;
  if (fact.lives == since.has_value()) {
    since = fact.lives ? std::nullopt : std::optional(step.now);
    note(step, "liveness_changed");
    touch(step, *lease);
  }
  schedule(step.state, *lease, step.rules);
  return lease->id;
}

// A group without a process so far is still to come. Another directory of the same name is another group.
Result<LeaseId> on(Step& step, const GroupReport& fact) {
  Lease* lease = find(step, fact.lease);
  if (lease == nullptr || lease->ended() || lease->owner.kind != OwnerKind::group)
    return not_found(to_string(fact.lease) + " is not a live lease of a control group");
  const bool other = lease->owner.inode != 0 && lease->owner.inode != fact.inode;
  if (!fact.populated || other) {
    if (lease->owner.inode == 0) return lease->id;
    return on(step, ProgramEnded{.lease = lease->id, .exit_status = {}});
  }
  if (lease->owner.inode == 0) {
    lease->owner.inode = fact.inode;
    lease->had_process = true;
    note(step, "booked");
    touch(step, *lease);
  }
  // The group proves that the owner is there: nobody has to claim the offer.
  if (lease->state == LeaseState::offered) return on(step, Claim{lease->id});
  return lease->id;
}

bool orphaned(const Step& step, const Lease& lease) {
  if (!is_away(step.state, lease)) return false;
  const auto& since = lease.parking->orphaned_since;
  return since && *since + step.rules.orphan_after <= step.now;
}

void end_orphan(Step& step, Lease& lease) {
  const Duration empty = step.now - *lease.parking->orphaned_since;
  end(step, lease, EndReason::expired, ReasonKind::orphaned,
      args("paused", step.now - lease.parking->since, "empty", empty));
}

}  // namespace sublet::core
