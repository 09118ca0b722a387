// SPDX-License-Identifier: Apache-2.0
// Fills machines with requests until nothing fits, as published comparisons of placements do. The jobs come in a random
// order, and then random jobs again, until they have asked for `fill` times all devices. Nothing ends. A request that
// fits on no machine is refused. Each placement is granted by the shipped decisions.
#pragma once

#include "placement/cluster.h"
#include "simulate/trace.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace sublet::simulate {

struct Filling {
  placement::Policy policy = placement::Policy::fragmentation;
  placement::Chooser chooser = {};  // in place of the policy, for comparisons
  double fill = 1.3;
  std::uint64_t seed = 42;
  std::function<bool(double part)> goes_on = {};  // called now and then; false ends it
};

// All figures are percent of the memory of all devices.
struct Filled {
  std::vector<double> allocated;   // once the jobs have asked for 0, 1, 2 … percent
  std::vector<double> fragmented;  // the same: memory that the mix of all jobs cannot use
  std::size_t placed = 0, refused = 0;
  bool partial = false;

  double allocated_at(std::size_t percent) const { return allocated[std::min(percent, allocated.size() - 1)]; }
};

Filled fill(const std::vector<Job>& jobs, const std::vector<Node>& nodes, const Filling& how);

}  // namespace sublet::simulate
