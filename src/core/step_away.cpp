// SPDX-License-Identifier: Apache-2.0
// Events while a lease is parked: unleased processes take its memory, or the lease is orphaned.
#include "core/blocked.h"
#include "core/format.h"
#include "core/stepper.h"

#include <utility>

namespace sublet::core {

// Notes leases that wait in vain although capacity is free. A lease is told once for each unleased process that holds
// the most, and once when its card is gone.
void Stepper::note_blocked() {
  for (const LeaseId id : std::exchange(may_be_blocked_, {})) {
    Lease* lease = find(id);
    if (lease == nullptr || lease->ended()) continue;
    std::int32_t& told = state_.runtime_.at(id).blocked_by;
    const auto blocked = what_blocks(state_, rules_, *lease, now_);
    const std::int32_t first = !blocked                              ? 0
                               : blocked->unleased_processes.empty() ? -1
                                                                     : blocked->unleased_processes.front().process.pid;
    if (first != 0 && first != told) explain(*lease, blocked->kind, blocked->args);
    told = first;
  }
}

Result<LeaseId> Stepper::on(const LivenessReport& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || !lease->parking || lease->owner.kind != OwnerKind::token)
    return not_found(to_string(fact.lease) + " is not parked, or does not belong to its token");
  state_.runtime_.at(lease->id).inhabited = fact.lives;
  // When the last of them ended nobody saw. Once it is seen that has to last: no daemon lives as long as it may take.
  auto& since = lease->parking->orphaned_since;
  if (fact.lives == since.has_value()) {
    since = fact.lives ? std::nullopt : std::optional(now_);
    note("liveness_changed");
    touch(*lease);
  }
  state_.schedule(*lease, rules_);
  return lease->id;
}

bool Stepper::orphaned(const Lease& lease) const {
  if (!state_.is_away(lease)) return false;
  const auto& since = lease.parking->orphaned_since;
  return since && *since + rules_.orphan_after <= now_;
}

void Stepper::end_orphan(Lease& lease) {
  const Duration empty = now_ - *lease.parking->orphaned_since;
  end(lease, EndReason::expired, ReasonKind::orphaned, args("paused", now_ - lease.parking->since, "empty", empty));
}

}  // namespace sublet::core
