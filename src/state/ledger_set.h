// SPDX-License-Identifier: Apache-2.0
// Checks that host memory takes all victims of a plan together, so that no pause begins for nothing. Private to this
// folder; reads only.
#pragma once

#include "lease/rules.h"
#include "state/methods.h"
#include "state/preemption_plan.h"
#include "state/state.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// Why host memory does not take these victims, one after the other; "" if it does. By the ledger's own limits, and by
// host memory if it is known.
std::string beyond_ledger(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host = {});

// Names the victims that would have to be paused and that host memory does not take, with the reason.
std::string too_many_text(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host = {});

}  // namespace sublet::core
