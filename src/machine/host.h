// SPDX-License-Identifier: Apache-2.0
// The engine's view of the machine without programs and devices: host memory, locks of devices, and exit records.
// Belongs to the loop thread. Each call may read or remove a few small files.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "lease/facts.h"
#include "proc/swap.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sublet::machine {

// Host memory of several processes together.
struct HostUse {
  Bytes resident;
  Bytes swapped;  // bytes on a swap device
};

class Host {
 public:
  virtual ~Host() = default;

  // Returns the host memory that is left for bytes of these processes, which are charged for them; without processes:
  // on the machine. `by`: the process that could keep them from swap, if there is one.
  virtual core::HostMemory memory(std::span<const ProcessRef> processes,
                                  const std::optional<proc::SwapStopper>& by) const = 0;
  // Returns for each process the group that could be kept from swap; "": none.
  virtual std::vector<std::string> swap_groups(std::span<const ProcessRef> processes) const = 0;
  // Returns the use of the living processes. Reads two small files of each.
  virtual HostUse use(std::span<const ProcessRef> processes) const = 0;
  // Takes the lock of a device for this daemon. InUse names the daemon that has it.
  virtual Status lock_card(const std::string& uuid) = 0;
  // Removes the exit record of a lease whose end is stored.
  virtual void remove_exit_record(const std::string& path) = 0;
  // Removes exit records in `dir` of leases that are not needed any more (`keep` is false).
  virtual void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep) = 0;
};

}  // namespace sublet::machine
