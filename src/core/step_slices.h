// SPDX-License-Identifier: Apache-2.0
// Time slices. Private to this folder.
#pragma once

#include "core/current_step.h"
#include "core/slices.h"

namespace sublet::core {

// Where the waiter may have a time slice. `barred`: uuids where no lease is paused for it.
SliceWaiter slice_waiter(const Step& step, const Lease& waiter, const std::vector<std::string>& barred);
// Announces the next slices for these waiters, and begins those that are due. The waiters are in the order of the
// queue.
void share_devices(Step& step, std::vector<SliceWaiter> waiters);
bool somebody_yields(const Step& step, const std::vector<std::string>& devices);
bool contested(const Step& step);

}  // namespace sublet::core
