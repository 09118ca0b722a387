// SPDX-License-Identifier: Apache-2.0
// Finds and signals the processes below this one. They stay below, because the keeper is a child subreaper.
#pragma once

#include "base/error.h"
#include "proc/process_table.h"

#include <set>
#include <vector>

namespace sublet::keep {

class Tree {
 public:
  // Opens the tree. Existing children of this process do not belong to the program: a shell may have started them
  // before its exec. They and their descendants are not in the tree.
  static Result<Tree> open();

  // Returns the living processes of the tree.
  Result<std::vector<proc::ProcessInfo>> processes() const;

  // Sends `signal` by pidfd to each process of the tree. With `spare_our_group`, processes in our own process group are
  // left out. Returns how many got it. Processes that were forked meanwhile may be missed, so repeat the call until it
  // returns 0.
  Result<int> signal(int signal, bool spare_our_group = false) const;

 private:
  explicit Tree(proc::ProcRoot root) : root_(std::move(root)) {}
  proc::ProcRoot root_;
  std::set<ProcessRef> foreign_;
};

}  // namespace sublet::keep
