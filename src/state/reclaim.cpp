// SPDX-License-Identifier: Apache-2.0
#include "state/reclaim.h"

#include "base/size_bounds.h"
#include "state/format.h"

#include <algorithm>

namespace sublet::core {

bool put_reclaimable(State& state, const Reclaimable& fact) {
  const auto its = state.preemption.reclaimable.find(fact.lease);
  const bool known = its != state.preemption.reclaimable.end();
  if (!known && !fact.terms) return false;
  Reclaims& declared = known ? its->second : state.preemption.reclaimable[fact.lease];
  const auto same = std::ranges::find(declared.all, fact.cause, &Reclaim::cause);
  if (same != declared.all.end() && fact.terms == *same) return false;
  if (same != declared.all.end()) declared.all.erase(same);
  if (fact.terms) declared.all.push_back(*fact.terms);
  if (declared.given_back == fact.cause && (!fact.terms || fact.terms->is_paused())) declared.given_back.reset();
  if (declared.all.empty()) state.preemption.reclaimable.erase(fact.lease);
  return true;
}

// No work stops for a lease that only wants to grow, unless that gave its memory back before, as a session that rests.
static bool serves(const Reclaim& terms, const Lease& waiter) {
  const bool stops_work = terms.taken == Reclaim::Taken::turn || terms.taken == Reclaim::Taken::end;
  const bool only_grows = waiter.resize && waiter.vram > least_lease;
  return waiter.tier >= terms.least && !(stops_work && only_grows);
}

const Reclaim* reclaim_for(const State& state, const Lease& waiter, const Lease& lease) {
  const auto declared = state.preemption.reclaimable.find(lease.id);
  if (declared == state.preemption.reclaimable.end() || lease.state != LeaseState::active) return nullptr;
  const auto found =
      std::ranges::find_if(declared->second.all, [&waiter](const Reclaim& terms) { return serves(terms, waiter); });
  return found == declared->second.all.end() ? nullptr : &*found;
}

bool is_given_back(const State& state, LeaseId id) {
  const auto declared = state.preemption.reclaimable.find(id);
  const Lease* lease = find(state, id);
  return declared != state.preemption.reclaimable.end() && declared->second.given_back && lease != nullptr &&
         lease->state == LeaseState::active;
}

GiveBack ask_back(State& state, const Victim& victim, LeaseId waiter) {
  state.preemption.reclaimable.at(victim.lease).given_back = victim.reclaim;
  return {victim.lease, *victim.reclaim, waiter};
}

PauseCause cause_of(const Reclaim& terms, const Lease& waiter, Time now) {
  PauseCause cause{terms.cause, waiter.id, terms.args};
  if (!terms.since_as.empty()) cause.args.add(terms.since_as, now - terms.since);
  cause.args.add("preemptor", name_of(waiter));
  return cause;
}

}  // namespace sublet::core
