// SPDX-License-Identifier: Apache-2.0
// Changes by capabilities. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Amend& fact);
Result<LeaseId> on(Step& step, const End& fact);
Result<LeaseId> on(Step& step, const Remark& fact);
Result<LeaseId> on(Step& step, const Reclaimable& fact);
Result<LeaseId> on(Step& step, const Keep& fact);
Result<LeaseId> on(Step& step, const Serve& fact);
void drop_kept(Step& step, Lease& lease);
void take_over(Step& step, LeaseId kept, Lease& lease);

}  // namespace sublet::core
