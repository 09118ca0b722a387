// SPDX-License-Identifier: Apache-2.0
// Whether host memory takes all of those who would be parked for somebody, not only each alone: a pause of which
// nothing can come is not begun. Private to this folder; reads only.
#pragma once

#include "core/methods.h"
#include "core/preemption_plan.h"
#include "core/rules.h"
#include "core/state.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// Why host memory does not take what they hold, one after the other in their order; "" if it does. By the ledger's own
// limits alone; where it is known what the machine has, by that too.
std::string beyond_ledger(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host = {});

// Names the victims that would have to be paused and that host memory does not take, with the reason.
std::string too_many_text(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host = {});

}  // namespace sublet::core
