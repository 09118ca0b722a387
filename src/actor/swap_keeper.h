// SPDX-License-Identifier: Apache-2.0
// Keeps the control groups of what is parked from being written to a swap device, and gives them their limits back.
// What a limit was is written down (records.h) before it is changed, so that whoever comes after us can undo it.
// Belongs to one thread.
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
  // `records`: where limits are written down; null: nowhere. Refers to both.
  SwapKeeper(const proc::ProcRoot& root, const Records* records);

  // Finds the hierarchy, and what an earlier run kept: until let_others() that stays as it is, whoever it was for.
  void open();
  // Keeps the innermost group of the process that has a limit on swap space from swap, for this lease. "", or why not,
  // a sentence: where somebody else than that user and root is in the group, whom it would concern, say.
  std::string keep(LeaseId lease, std::int32_t pid, std::uint32_t uid);
  // Not for this lease any more. What is kept for no other gets its limit back, once let_others() was called. "", or
  // why some group did not get it: it is tried again at the next call.
  std::string let(LeaseId lease);
  // All that are parked were named by keep(): what an earlier run kept for others gets its limit back.
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
