// SPDX-License-Identifier: Apache-2.0
// Runs in processes of their own, so that one that dies is a finding like any other; and the smallest run that still
// fails in the same way.
#pragma once

#include "simulation.h"

namespace sublet::sim {

// Forks. A child that dies, by an assertion for example, is reported as invariant "died".
Outcome run_apart(std::uint64_t seed, const std::vector<Event>& events, bool trace = false);

// The events without which the same invariant does not fail any more, as far as `tries` runs can tell.
std::vector<Event> shrink(std::uint64_t seed, std::vector<Event> events, const std::string& invariant, int tries);

}  // namespace sublet::sim
