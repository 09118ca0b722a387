// SPDX-License-Identifier: Apache-2.0
// When leases will probably end, from what is known of them. For this folder and src/explain.
#pragma once

#include "lease/rules.h"
#include "state/state.h"

#include <optional>
#include <string>

namespace sublet::core {

// The source of an expected end, or why there is none.
enum class Basis { settling, stopping, stop_overdue, limit, limit_overdue, history, history_overdue, nothing };

struct Expected {
  Basis basis = Basis::nothing;
  Time at;  // valid for stopping, limit and history

  bool known() const { return basis == Basis::stopping || basis == Basis::limit || basis == Basis::history; }
};

// When a lease gives its bytes back. `start`: when its run began, or would begin.
Expected expected_end(const State& state, const Rules& rules, const Lease& lease, Time start, Time now);

// The expected end in words, to stand behind the lease's name.
std::string expected_text(const State& state, const Lease& lease, Basis basis, Time start, Time now);

}  // namespace sublet::core
