// SPDX-License-Identifier: Apache-2.0
// The obstacles to a preemption, as told to the waiter. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void note_obstacles(Step& step, const Lease& waiter);

}  // namespace sublet::core
