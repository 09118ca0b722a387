// SPDX-License-Identifier: Apache-2.0
// Finds the likely cause when a program fails inside its lease: others took the memory that was promised to it.
#pragma once

#include "lease/plan.h"
#include "state/state.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sublet::guard {

// The memory that a lease could not have had at a reading, and the largest taker of it.
struct Shortage {
  Time at;             // when the device was read
  std::string device;  // its name, "gpu0"
  Bytes free;          // on the device
  Bytes left;          // of the size of the lease, not yet used
  std::string taker;   // "lease-2 (leak, ana)" or "processes without a lease"
  Bytes taken;         // in use by the taker
  Bytes size;          // of the taker's lease; 0: it has none
};

// The shortage of an active lease on one of its devices by the last reading. None: what is left of its size was free,
// or nobody took more than belongs to them.
std::optional<Shortage> shortage_of(const core::State& state, const core::Lease& lease);

// Remembers the shortages of living leases, and explains the ends that follow. Belongs to the loop thread.
class Shortages {
 public:
  void measured(const core::State& state);
  // Returns the remarks for programs that failed soon after a shortage.
  std::vector<core::Remark> explain(const core::Plan& plan, Time now);
  void forget_all() { last_.clear(); }

 private:
  std::map<LeaseId, Shortage> last_;
};

}  // namespace sublet::guard
