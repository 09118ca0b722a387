// SPDX-License-Identifier: Apache-2.0
// Which idle leases are paused for those that wait. Pure.
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sublet::idle {

// A lease that may be paused now: idle for longer than its rule allows.
struct Candidate {
  LeaseId lease;
  Duration idle{};
  std::map<std::string, Bytes> frees;  // by device: bytes that its pause frees
};

// A lease that waits for memory.
struct Waiter {
  LeaseId lease;
  int devices = 1;                     // so many of those in `needs`, all at once
  std::map<std::string, Bytes> needs;  // by device on which it could run: bytes that must be free there
};

struct Choice {
  LeaseId pause;
  LeaseId waiter;  // none: it is paused although nobody waits
  bool operator==(const Choice&) const = default;
};

// Chooses the next leases to pause, at most one on each device. A lease is chosen only if the memory of idle leases
// and the free memory are enough for a waiter, and only if its own part is needed. The longest idle goes first.
// `waiters`: in the order of the queue. `free`: by device. `taken`: devices on which another lease moves now.
std::vector<Choice> choose(std::vector<Candidate> candidates, const std::vector<Waiter>& waiters,
                           const std::map<std::string, Bytes>& free, std::set<std::string> taken);

// The same where idle leases are paused although nobody waits.
std::vector<Choice> choose_always(std::vector<Candidate> candidates, std::set<std::string> taken);

}  // namespace sublet::idle
