// SPDX-License-Identifier: Apache-2.0
// Asks the victims of preemption plans. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

bool advance(Step& step, const PreemptionPlan& preemption);
void settle_undone(Step& step);
PauseCause cause_of(const Step& step, const PreemptionPlan& preemption, const Lease& victim);

}  // namespace sublet::core
