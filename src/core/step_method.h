// SPDX-License-Identifier: Apache-2.0
// Pause methods: how cooperative programs yield, and the results of earlier pauses. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Cooperate& fact);
Result<LeaseId> on(Step& step, const Grant& fact);
void note_unfit(Step& step, Lease& lease, const Obstacle& obstacle);
ObstacleCode judge_driver(Step& step, ObstacleCode code);
Duration yield_time(const Step& step, const Lease& lease);
void remember_pause(Step& step, const Lease& lease, PauseMethod method, bool verified);
bool try_next(Step& step, Lease& lease, Parking parking, const HostMemory& host);
void note_relapses(Step& step, std::set<LeaseId> holding);

}  // namespace sublet::core
