// SPDX-License-Identifier: Apache-2.0
// Runs simulations in processes of their own, so that a crash is a finding like any other. Finds the smallest run that
// fails in the same way.
#pragma once

#include "simulation.h"

namespace sublet::sim {

// Forks. A child that dies, by an assertion for example, is reported as invariant "died".
Outcome run_apart(std::uint64_t seed, const std::vector<Event>& events, bool trace = false);

// The fewest events with which the same invariant still fails, as far as `tries` runs can tell.
std::vector<Event> shrink(std::uint64_t seed, std::vector<Event> events, const std::string& invariant, int tries);

}  // namespace sublet::sim
