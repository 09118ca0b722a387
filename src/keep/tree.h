// SPDX-License-Identifier: Apache-2.0
// The processes below this one, and signals to all of them. They stay below, whatever they do, because the keeper is a
// child subreaper.
#pragma once

#include "base/error.h"
#include "proc/process_table.h"

#include <set>
#include <vector>

namespace sublet::keep {

class Tree {
 public:
  // Children that this process has already are not the program's (a shell may have started some before it became us):
  // neither they nor what is below them belongs to the tree.
  static Result<Tree> open();

  // The living processes below us.
  Result<std::vector<proc::ProcessInfo>> processes() const;

  // Sends `signal` to each that is below us now, by pidfd, except, if `spare_our_group`, those in our own process
  // group. Returns how many got it. What was forked meanwhile may have been missed: repeat until it is 0.
  Result<int> signal(int signal, bool spare_our_group = false) const;

 private:
  explicit Tree(proc::ProcRoot root) : root_(std::move(root)) {}
  proc::ProcRoot root_;
  std::set<ProcessRef> foreign_;
};

}  // namespace sublet::keep
