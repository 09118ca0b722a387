// SPDX-License-Identifier: Apache-2.0
// New leases. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void enqueue(Step& step, Lease& lease);
ReasonArgs place_args(const Step& step, const Lease& lease);
void announce_wait(Step& step, Lease& lease);
Result<LeaseId> on(Step& step, const Submit& fact);

}  // namespace sublet::core
