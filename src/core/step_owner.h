// SPDX-License-Identifier: Apache-2.0
// Requests of owners, and their connections. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Claim& fact);
Result<LeaseId> on(Step& step, const Attach& fact);
Result<LeaseId> on(Step& step, const Renew& fact);
void restart_clocks(Step& step, Lease& lease, const Parking& parking);
void take_cause(Step& step, Lease& lease, const PauseCause& cause);
Result<LeaseId> hold_back(Step& step, Lease& lease);
Result<LeaseId> let_queue(Step& step, Lease& lease);
Result<LeaseId> on(Step& step, const ClockGap& fact);
Result<LeaseId> on(Step& step, const HeldChanged& fact);

}  // namespace sublet::core
