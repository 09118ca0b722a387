// SPDX-License-Identifier: Apache-2.0
// Preemption plans. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void preempt(Step& step);
std::vector<std::string> barred_from(const Step& step, const Lease& waiter);
const PreemptionPlan* started_for(const Step& step, LeaseId preemptor);  // null: no victim was asked before this step
void look_again_at(Step& step, Time at);
bool begin_plan(Step& step, PreemptionPlan preemption);

}  // namespace sublet::core
