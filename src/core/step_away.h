// SPDX-License-Identifier: Apache-2.0
// Parked leases: their orphans, and the processes that block their return. Control groups that own leases. Private to
// this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void note_blocked(Step& step);
Result<LeaseId> on(Step& step, const LivenessReport& fact);
Result<LeaseId> on(Step& step, const GroupReport& fact);
bool orphaned(const Step& step, const Lease& lease);
void end_orphan(Step& step, Lease& lease);

}  // namespace sublet::core
