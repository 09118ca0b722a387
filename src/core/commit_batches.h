// SPDX-License-Identifier: Apache-2.0
// Splits a plan that changes thousands of leases into batches that are stored and announced one after the other. The
// first leases are answered while the last are still written. Pure functions over values.
#pragma once

#include "core/plan.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace sublet::core {

// A plan that grants memory to at most `size` leases stays one batch. A larger plan is split into batches of `size`
// grants with their reasons, in the order of the grants. The first batch has all changes that free memory: a crash
// between two batches never promises VRAM twice. The first batch also has the lease of the outcome, because the answer
// about that lease is remembered with it. Outcome, settled, learned, records, grants and transitions are in the first
// batch, the actions in the last. The transition of the other batches is "portion". `take` gets one batch after the
// other: the first is on its way to the store while the next ones are built.
void each_commit_batch(Plan plan, std::size_t size, const std::function<void(Plan)>& take);

std::vector<Plan> commit_batches(Plan plan, std::size_t size);

}  // namespace sublet::core
