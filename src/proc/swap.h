// SPDX-License-Identifier: Apache-2.0
// Tells whether memory of processes may go to a swap device, and finds the control group that can prevent it: the
// innermost group with a swap limit. Read only; any thread.
#pragma once

#include "base/error.h"
#include "proc/cgroup.h"
#include "proc/process_table.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::proc {

struct SwapGroup {
  std::string path;      // its directory
  bool stopped = false;  // the swap limit of the group, or of a group above it, is 0
};
// Returns the innermost group with a swap limit. Unset: none is visible. Control groups of version 1 have no suitable
// limit.
std::optional<SwapGroup> swap_group(const Hierarchies& hierarchies, const ProcessCgroups& groups);

// Checks that all processes in the group belong to that user or to root. The error is a sentence that names another
// user's process.
Status belongs_to(const ProcRoot& root, const std::string& path, std::uint32_t uid);

// The process that could keep a group from swap, and the user of the program.
struct SwapStopper {
  std::uint32_t uid = 0;  // user of the program
  bool root = false;      // true: the process may write to any group; false: this process's rights count
};
bool may_stop_swap(const ProcRoot& root, const SwapGroup& group, const SwapStopper& by);

}  // namespace sublet::proc
