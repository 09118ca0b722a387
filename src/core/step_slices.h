// SPDX-License-Identifier: Apache-2.0
// Time slices. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void wait_for_slice(Step& step, const Lease& waiter, const std::vector<std::string>& barred);
void announce_slices_on_several(Step& step);
void leave_slice_groups(Step& step);
bool somebody_yields(const Step& step, const std::vector<std::string>& devices);
bool contested(const Step& step);

}  // namespace sublet::core
