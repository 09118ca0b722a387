// SPDX-License-Identifier: Apache-2.0
// The life of a preemption plan: proposed, draining, ready, over. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

// Drops the proposals. Works out again what each other plan needs, and ends plans that are over.
void review_plans(Step& step);
// False: another plan has one of its devices and is not displaced.
bool propose(Step& step, PreemptionPlan plan);
// A victim of the plan is asked now: the plan lasts from here on.
void note_victim_asked(Step& step, const PreemptionPlan& plan, LeaseId victim);
// Adds the plans that changed in this step to the changes that are stored.
void store_plans(Step& step);
// True while the last reading of one of its devices is too old to decide anything. The plan is kept as it is.
bool waits_for_reading(const Step& step, const PreemptionPlan& plan);

}  // namespace sublet::core
