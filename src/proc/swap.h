// SPDX-License-Identifier: Apache-2.0
// Whether what processes take of memory may be written to a swap device, and the control group by which that can be
// prevented: the innermost one that has a limit on swap space. Read only; any thread.
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
  bool stopped = false;  // nothing below it is written to a swap device: its own limit is 0, or that of one above it
};
// Unset: no group with such a limit is visible (version 1 of control groups has none that would do).
std::optional<SwapGroup> swap_group(const Hierarchies& hierarchies, const ProcessCgroups& groups);

// The group may be kept from swap for the sake of that user's program: nobody else is in it, but for root's processes.
// Else a sentence that names who is.
Status belongs_to(const ProcRoot& root, const std::string& path, std::uint32_t uid);

// Who could keep a group from swap, and for whom.
struct SwapStopper {
  std::uint32_t uid = 0;  // whose program it is
  bool root = false;      // whoever does it may write to any group, else to what this process may
};
bool may_stop_swap(const ProcRoot& root, const SwapGroup& group, const SwapStopper& by);

}  // namespace sublet::proc
