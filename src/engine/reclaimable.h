// SPDX-License-Identifier: Apache-2.0
// The leases that a capability declares reclaimable, for one cause. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "lease/plan.h"
#include "lease/reclaim.h"

#include <map>

namespace sublet::engine {

class Reclaimable {
 public:
  // Keeps a reference.
  Reclaimable(Engine& engine, core::PauseCauseKind cause) : engine_(engine), cause_(cause) {}

  // Declares an active lease reclaimable, or changes its terms. `terms.cause` is set here. Not within happened().
  void declare(LeaseId lease, core::Reclaim terms);
  void withdraw(LeaseId lease);
  bool has(LeaseId lease) const { return made_.contains(lease); }
  const std::map<LeaseId, core::Reclaim>& made() const { return made_; }
  // The waiter for which the core has asked the capability to take the memory of this lease; none: it has not.
  LeaseId wanted_for(LeaseId lease) const;

  // --- called by the function of the capability of the same name ---
  void loaded() { made_.clear(), wanted_.clear(); }  // the state was read again, without them
  void happened(const core::Plan& plan);

 private:
  Engine& engine_;
  const core::PauseCauseKind cause_;
  std::map<LeaseId, core::Reclaim> made_;
  std::map<LeaseId, LeaseId> wanted_;  // by lease: the waiter
};

}  // namespace sublet::engine
