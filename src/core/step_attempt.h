// SPDX-License-Identifier: Apache-2.0
// Events of attempts, as the executor reports them. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const AttemptEvent& fact);

}  // namespace sublet::core
