// SPDX-License-Identifier: Apache-2.0
// Pauses. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Status check_pause(const Step& step, const Lease& lease, const HostMemory& host);
Result<LeaseId> on(Step& step, const Pause& fact);
void begin_pause(Step& step, Lease& lease, PauseCause cause, bool resume_requested);
void ask_to_yield(Step& step, Lease& lease, PauseMethod method, Parking parking);
Result<LeaseId> happened(Step& step, Lease& lease, const LockIntent& fact);
Result<LeaseId> happened(Step& step, Lease& lease, const MeasuredWhileLocked& fact);
Result<LeaseId> happened(Step& step, Lease& lease, const Parked& fact);
Error never_runs_again(const Step& step, const Lease& lease);
// The longest time that such a move should ever take.
Duration driver_time(const Step& step, const Lease& lease, Move move);
void mark_overdue(Step& step, Lease& lease);

}  // namespace sublet::core
