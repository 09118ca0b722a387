// SPDX-License-Identifier: Apache-2.0
// Finds what blocks a lease although no other lease has the memory: unleased processes, or a device that is gone.
// Computed from the state on request; reads only.
#pragma once

#include "base/error.h"
#include "lease/reason.h"
#include "lease/rules.h"
#include "state/state.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// An unleased process with bytes that a lease needs. pid 0: bytes that belong to no listed process.
struct UnleasedProcess {
  ProcessRef process;
  std::string name;    // name of its program that all users may see; "": unknown
  std::string device;  // uuid
  Bytes bytes;
};

// A waiting lease is blocked if capacity is free for it and the device itself is full. A paused lease is also blocked
// if its device is gone.
struct Blocked {
  Code code = Code::External;                          // ResumeBlocked for a paused lease that waits to resume
  std::vector<UnleasedProcess> unleased_processes;     // the largest first, a few of them; empty if its card is gone
  ReasonKind kind = ReasonKind::blocked_by_processes;  // the block as a reason
  ReasonArgs args = {};
  std::string text = {};  // its sentence, which begins with the code
};

// Nothing if the lease does not wait, waits because of other leases, or waits for a card that is merely unknown.
std::optional<Blocked> what_blocks(const State& state, const Rules& rules, const Lease& lease, Time now);

}  // namespace sublet::core
