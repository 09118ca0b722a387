// SPDX-License-Identifier: Apache-2.0
// Ends of leases, and changes by time alone. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Release& fact);
Result<LeaseId> on(Step& step, const ProgramEnded& fact);
Result<LeaseId> on(Step& step, const ProgramFailed& fact);
bool program_may_live(const Step& step, const Lease& lease);
bool may_allocate(const Step& step, const Lease& lease);
void stop_program(Step& step, Lease& lease);
void end_as_it_is(Step& step, Lease& lease);
void note_unanswered(Step& step, const Lease& lease, const Unparked& fact);
void end_unresponsive(Step& step, Lease& lease);
void end(Step& step, Lease& lease, EndReason why, ReasonKind kind, ReasonArgs args = {});
void run_timers(Step& step);
void kill(Step& step, const Lease& lease, ReasonArgs args = {});

}  // namespace sublet::core
