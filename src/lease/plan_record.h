// SPDX-License-Identifier: Apache-2.0
// A preemption plan as it is stored: what a restart must know to go on with it. Plain data.
#pragma once

#include "lease/lease.h"

#include <cstdint>
#include <string>
#include <vector>

namespace sublet::core {

// Why victims are paused: they are of a lower tier, the preemptor's time slice begins, a user or admin requested
// memory, a capability declares them reclaimable, or the preemptor is within the guarantee of its tenant.
enum class Cause : std::uint8_t { tier, slice, request, reclaim, quota };

struct PlanRecord {
  std::uint64_t id = 0;
  Cause cause = Cause::tier;
  Tier tier = Tier::standard;           // see PreemptionPlan, as for the following fields
  std::vector<LeaseId> beneficiaries;   // never empty
  std::vector<std::string> devices;     // uuids
  std::vector<LeaseId> victims, asked;  // victims still to ask, and those that were asked
  bool operator==(const PlanRecord&) const = default;
};

struct PlanChange {
  PlanRecord record;  // the new value
  bool over = false;  // it is removed instead
};

}  // namespace sublet::core
