// SPDX-License-Identifier: Apache-2.0
// Preemption. Private to this folder.
#pragma once

#include "core/current_step.h"
#include "core/victims.h"

namespace sublet::core {

void preempt(Step& step);
// The question for victims of a waiter, as a decision asks it.
PreemptionQuery query_of(const Step& step, const Lease& waiter);
std::vector<std::string> barred_from(const Step& step, const Lease& waiter);
void look_again_at(Step& step, Time at);

}  // namespace sublet::core
