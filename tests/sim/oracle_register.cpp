// SPDX-License-Identifier: Apache-2.0
// What is checked of spot leases of which nothing has said yet how they yield: none is ended for others while it still
// may, and none keeps its room for ever because nothing ever does (0016).
#include "oracle.h"

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using core::Pausable;
using namespace std::chrono_literals;

void Oracle::follow_silent(const Lease* before, const Lease& lease, Time now) {
  if (before != nullptr && before->cooperation && !lease.cooperation) silent_[lease.id] = now;
  const bool resumes = lease.state == LeaseState::resuming;
  if (resumes && (before == nullptr || before->state != LeaseState::resuming)) told_since_[lease.id] = now;
}

void Oracle::unreached(LeaseId lease) {
  if (engine_ != nullptr) told_since_[lease] = engine_->now();
}

Time Oracle::silent_since(const Lease& lease) const {
  const auto at = silent_.find(lease.id);
  return std::max(lease.granted_at.value_or(Time{}), at == silent_.end() ? Time{} : at->second);
}

// What it is asked to yield by is still to come: its word, or a program that the driver could park.
bool Oracle::in_its_moment(const Lease& lease, Time now) const {
  const bool by_itself = lease.pausable == Pausable::automatic || lease.pausable == Pausable::cooperative;
  const bool comes = lease.pausable == Pausable::driver && lease.owner.kind == core::OwnerKind::connection;
  const bool may = (by_itself && !lease.cooperation && !lease.unfit) || (comes && !lease.had_process);
  return may && now - silent_since(lease) < config_.rules.spot_unused_after;
}

// It allows nothing but to be asked itself, and nothing has said how for long enough.
bool Oracle::surely_ends(const core::State& state, const Lease& lease, core::Tier preemptor, Time now) const {
  const bool spot = lease.tier == core::Tier::spot && lease.tier < preemptor && lease.state == LeaseState::active;
  const bool silent = lease.pausable == Pausable::cooperative && !lease.cooperation;
  const bool ours = (lease.owner.kind == core::OwnerKind::process && lease.owner.keeper) || !lease.had_process;
  const core::Standing standing = state.standing(lease.id);
  return spot && silent && ours && !lease.preemption_request && !lease.stop_requested && now - standing.restored > 3s &&
         standing.ineligible_until + 3s <= now &&
         now - std::max(silent_since(lease), heard_from_) > config_.rules.spot_unused_after + 3s;
}

}  // namespace sublet::sim
