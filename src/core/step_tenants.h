// SPDX-License-Identifier: Apache-2.0
// Private to this folder: see current_step.h.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const SetTenants& set);

}  // namespace sublet::core
