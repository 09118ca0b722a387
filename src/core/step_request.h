// SPDX-License-Identifier: Apache-2.0
// Preemption requests. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Preempt& fact);
void request_preemption(Step& step, Lease& lease, const PreemptionRequest& by);
Tier keeps_out(const Step& step, const PreemptionQuery& query, const VictimPlan& plan);
void keep_request(Step& step, Lease& lease);
void drop_request(Step& step, Lease& lease);

}  // namespace sublet::core
