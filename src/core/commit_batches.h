// SPDX-License-Identifier: Apache-2.0
// A plan that changes thousands of leases, in portions that may be stored, and told, one after the other: the first
// are answered while the last are still being written. Pure functions over values.
#pragma once

#include "core/plan.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace sublet::core {

// The plan itself if it gives room to at most `size` leases. Else portions with so many each, and with their reasons,
// in the order of the grants. All that gives room is in the first: whatever a crash leaves of the row never promises
// VRAM twice. So is the lease that the outcome names, wherever it stands: the answer that tells of it is remembered
// with the first. What is not about one lease (outcome, settled, learned, records, grants, transitions) is the first's
// too, the actions are the last's. The transition of the others is "portion".
// One after the other, so that the first is on its way to the store while the others are still put together.
void each_commit_batch(Plan plan, std::size_t size, const std::function<void(Plan)>& take);

std::vector<Plan> commit_batches(Plan plan, std::size_t size);

}  // namespace sublet::core
