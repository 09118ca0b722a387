// SPDX-License-Identifier: Apache-2.0
// Sizes that change. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const Resize& fact);
void grow(Step& step, Lease& lease);
void withdraw_resize(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args = {});

}  // namespace sublet::core
