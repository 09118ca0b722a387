// SPDX-License-Identifier: Apache-2.0
// Which leases are paused for those that wait, by capabilities that pause leases. Pure.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "core/state.h"

#include <map>
#include <set>
#include <string>
#include <vector>

namespace sublet::engine {

// A lease that may be paused now.
struct Candidate {
  LeaseId lease;
  Duration length{};                    // for how long its pause has been due; the longest goes first
  std::map<std::string, Bytes> frees;   // by device: bytes that its pause frees
  core::Tier least = core::Tier::spot;  // it is paused only for waiters of this tier or a higher one
};

// A lease that waits for memory.
struct Waiter {
  LeaseId lease;
  int devices = 1;                     // so many of those in `needs`, all at once
  std::map<std::string, Bytes> needs;  // by device on which it could run: bytes that must be free there
  core::Tier tier = core::Tier::critical;
};

struct Choice {
  LeaseId pause;
  LeaseId waiter;  // none: it is paused although nobody waits
  bool operator==(const Choice&) const = default;
};

// Chooses the next leases to pause, at most one on each device. A lease is chosen only if the memory of candidates
// and the free memory are enough for a waiter, and only if its own part is needed. The longest due goes first.
// `waiters`: in the order of the queue. `free`: by device. `taken`: devices on which another lease moves now.
std::vector<Choice> choose(std::vector<Candidate> candidates, const std::vector<Waiter>& waiters,
                           const std::map<std::string, Bytes>& free, std::set<std::string> taken);

// The same where leases are paused although nobody waits.
std::vector<Choice> choose_always(std::vector<Candidate> candidates, std::set<std::string> taken);

// --- what they choose from ---

// The memory that the pause of this lease frees.
std::map<std::string, Bytes> freed_by(const core::State& state, const core::Lease& lease);
// The first `most` leases of the queue.
std::vector<Waiter> waiters(const core::State& state, std::size_t most);
// Free memory of the devices that can be read.
std::map<std::string, Bytes> free_memory(const core::State& state, const core::Rules& rules, Time now);
// Devices on which the core moves memory now, or prepares it.
std::set<std::string> moving_devices(const core::State& state);

}  // namespace sublet::engine
