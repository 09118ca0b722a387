// SPDX-License-Identifier: Apache-2.0
#include "engine/reclaimable.h"

#include <utility>

namespace sublet::engine {

void Reclaimable::declare(LeaseId lease, core::Reclaim terms) {
  terms.cause = cause_;
  if (terms.is_paused()) wanted_.erase(lease);
  const auto known = made_.find(lease);
  if (known != made_.end() && known->second == terms) return;
  made_.insert_or_assign(lease, terms);
  if (!engine_.decide(core::Reclaimable{lease, cause_, std::move(terms)})) made_.erase(lease);
}

void Reclaimable::withdraw(LeaseId lease) {
  wanted_.erase(lease);
  if (made_.erase(lease) > 0) (void)engine_.decide(core::Reclaimable{lease, cause_, std::nullopt});
}

LeaseId Reclaimable::wanted_for(LeaseId lease) const {
  const auto found = wanted_.find(lease);
  return found == wanted_.end() ? LeaseId{} : found->second;
}

void Reclaimable::happened(const core::Plan& plan) {
  for (const core::Lease& lease : plan.changed)
    if (lease.ended()) made_.erase(lease.id), wanted_.erase(lease.id);
  for (const core::Action& action : plan.actions)
    if (const auto* order = std::get_if<core::GiveBack>(&action); order != nullptr && order->cause == cause_)
      wanted_[order->lease] = order->waiter;
}

}  // namespace sublet::engine
