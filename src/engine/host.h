// SPDX-License-Identifier: Apache-2.0
// What the engine asks of the machine beside its programs and its cards: host memory, who manages a card, the notes
// that keepers leave. Belongs to the loop thread; each call may read or remove a few small files.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "core/facts.h"
#include "proc/swap.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sublet::engine {

// What processes take of host memory, together.
struct HostUse {
  Bytes resident;
  Bytes swapped;  // written to a swap device
};

class Host {
 public:
  virtual ~Host() = default;

  // What host memory takes of the bytes of these processes, which are charged for them; none: of the machine alone.
  // `by`: who could keep them from a swap device, if anybody.
  virtual core::HostMemory memory(std::span<const ProcessRef> processes,
                                  const std::optional<proc::SwapStopper>& by) const = 0;
  // For each process the control group by which it can be kept from a swap device; "": there is none.
  virtual std::vector<std::string> swap_groups(std::span<const ProcessRef> processes) const = 0;
  // Of those that live; reads two small files of each.
  virtual HostUse use(std::span<const ProcessRef> processes) const = 0;
  // This daemon manages the card from now on. InUse names the daemon that does already.
  virtual Status lock_card(const std::string& uuid) = 0;
  // Of a lease whose end is stored.
  virtual void remove_exit_record(const std::string& path) = 0;
  // Those in `dir` of leases that nobody waits for any more (`keep` is false of them).
  virtual void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep) = 0;
};

}  // namespace sublet::engine
