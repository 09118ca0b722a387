// SPDX-License-Identifier: Apache-2.0
// The longest wait of a lease that the rules allow, whatever other leases do. It is stated only where such a rule
// exists, and assumes that pauses and resumes take no longer than predicted.
#pragma once

#include "lease/rules.h"
#include "state/state.h"

#include <optional>
#include <string>

namespace sublet::explain {

struct Bound {
  Duration within{};   // from now until its start
  std::string from;    // the rule, one clause
  std::string unless;  // the only event that may delay its start further, one clause; "": none
};

// Unset: no rule bounds its wait.
std::optional<Bound> bound_of(const core::State& state, const core::Rules& rules, const core::Lease& waiter, Time now);

}  // namespace sublet::explain
