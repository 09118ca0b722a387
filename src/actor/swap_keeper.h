// SPDX-License-Identifier: Apache-2.0
// Keeps the control groups of parked programs from being written to a swap device, and restores their limits. The old
// limit is recorded (records.h) before the change, so that a later actor can undo the change. Belongs to one thread.
#pragma once

#include "actor/records.h"
#include "base/ids.h"
#include "proc/cgroup.h"
#include "proc/process_table.h"

#include <map>
#include <set>
#include <string>

namespace sublet::actor {

class SwapKeeper {
 public:
  // `records`: where limits are recorded; null: nowhere. Keeps references to both.
  SwapKeeper(const proc::ProcRoot& root, const Records* records);

  // Finds the hierarchy and the groups that an earlier actor kept. Those stay kept until let_others().
  void open();
  // Keeps the innermost group of the process that has a swap limit from swap, for this lease. Returns "" or a sentence
  // about the failure, for example if the group has processes of other users than `uid` and root.
  std::string keep(LeaseId lease, std::int32_t pid, std::uint32_t uid);
  // Ends it for this lease. After let_others() was called, groups that are kept for no other lease get their limit
  // back. Returns "" or why a group did not get its limit back; the next call tries again.
  std::string let(LeaseId lease);
  // keep() has named all parked processes. Groups that an earlier actor kept for other leases get their limits back.
  std::string let_others();

 private:
  struct Kept {
    Records::Limit limit;
    std::set<LeaseId> by;
  };
  void forget(const Records::Limit& limit) const;
  std::string give_back();

  const proc::ProcRoot& root_;
  const Records* records_;
  proc::Hierarchies hierarchies_;
  std::map<std::string, Kept> kept_;  // by path
  bool all_named_ = false;
};

}  // namespace sublet::actor
