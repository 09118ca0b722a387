// SPDX-License-Identifier: Apache-2.0
// Readings of the devices. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const SnapshotFailed& fact);
Result<LeaseId> on(Step& step, const Snapshot& fact);
bool may_be_told_to_go_on(const Step& step, const Lease& lease);

}  // namespace sublet::core
