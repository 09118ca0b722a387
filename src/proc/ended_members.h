// SPDX-License-Identifier: Apache-2.0
// Remembers processes of leases that have ended, while their leases last. A process below one of them is spared.
// Belongs to one thread.
#pragma once

#include "proc/lineage.h"
#include "proc/process_record.h"

#include <deque>
#include <functional>
#include <span>

namespace sublet::proc {

class EndedMembers {
 public:
  // Remembers the members that are in `before` and not in `now`. Beyond `most` the oldest are forgotten.
  void note(const Lineage& before, const Lineage& now);
  void forget_others(const std::function<bool(LeaseId)>& keep);
  // The lease of a process that has ended. Start times are compared loosely, since records of dead processes have them
  // to some seconds only. None: it belonged to no lease.
  LeaseId lease_of(ProcessRef process) const;

 private:
  static constexpr std::size_t most = 16384;
  std::deque<Member> members_;  // the oldest first
};

// Whether both may be the same process: a start time that is not known, or known loosely, decides nothing.
bool may_be_same(ProcessRef one, ProcessRef other);

// The lease to which one of these processes belongs or belonged. None: no lease. Such a link spares a process, and
// condemns none.
LeaseId lease_above(std::span<const Ancestor> ancestry, const Lineage& lineage, const EndedMembers& ended,
                    std::span<const LeaseRoots> roots);

}  // namespace sublet::proc
