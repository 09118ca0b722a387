// SPDX-License-Identifier: Apache-2.0
// Resumes. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Resume& fact);
void want_back(Step& step, Lease& lease);
void bring_back(Step& step, Lease& lease);
void bring_back(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args);
void withdraw_return(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args = {});
void unpark(Step& step, Lease& lease);
Result<LeaseId> happened(Step& step, Lease& lease, const DriverReturned& fact);
Result<LeaseId> happened(Step& step, Lease& lease, const Unparked& fact);
void runs_again(Step& step, Lease& lease, const Parking& parking);
void finish_half_done(Step& step);

}  // namespace sublet::core
