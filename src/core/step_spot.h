// SPDX-License-Identifier: Apache-2.0
// Ends of spot leases for others. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

bool is_given_notice(Step& step, Lease& lease, const PreemptionPlan& preemption);
void end_spot(Step& step, Lease& lease, const PreemptionPlan& preemption);

}  // namespace sublet::core
