// SPDX-License-Identifier: Apache-2.0
// Advice to those who wait or whose request finds no victims, and the words for victims. For answers to users, never
// for a decision. Private to this folder.
#pragma once

#include "core/victims.h"
#include "state/preemption_plan.h"

#include <string>
#include <vector>

namespace sublet::explain {

// "lease-1 (train, ana), lease-3 (crawl, ben)"
std::string names_of(const core::State& state, const std::vector<LeaseId>& leases);
// "its pause takes about 4 s"; several pauses come one after the other.
std::string takes_text(std::size_t count, Duration takes);
// The same for victims, of which some may be ended.
std::string takes_text(const core::State& state, const std::vector<core::Victim>& victims);

// Further advice where no victims are found (`plan`), in plain words.
std::string what_else(const core::State& state, const core::Rules& rules, const core::PreemptionQuery& query,
                      const core::VictimPlan& plan, Time now);

// A request with which the waiter's owner could get memory at once; "" if there is none.
std::string owners_word(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now);

// How the memory of a holder could be freed; "" if no request can.
std::string how_to_have_it(const core::State& state, const core::Rules& rules, const core::Lease& holder,
                           const core::Lease& waiter, Time now);

}  // namespace sublet::explain
