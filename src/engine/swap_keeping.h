// SPDX-License-Identifier: Apache-2.0
// Keeps the memory of paused programs out of swap, by the control groups of their processes. Belongs to the loop
// thread.
#pragma once

#include "engine/machine.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sublet::core {
struct State;
}

namespace sublet::engine {

class Engine;

class SwapKeeping {
 public:
  SwapKeeping(const Engine& engine, const Machine& machine);

  // Gives one order for each group of the processes. `done`: "", or why they cannot be kept from swap. May be called at
  // once.
  void keep(LeaseId lease, const std::vector<ProcessRef>& processes, std::function<void(std::string)> done);
  // Names a process that came while the others were kept, or left its group. "": there is none.
  std::string who_may_swap(const std::vector<ProcessRef>& processes) const;
  // Ends the keeping for a lease that is durably not paused.
  void end(LeaseId lease);
  // There is a new actor, or the leases were read again: it is told of all paused leases.
  void keep_all();

 private:
  // A process, and the control group that could be kept from swap; "": none.
  struct MaySwap {
    ProcessRef process;
    std::string group;
  };
  void keep_next(LeaseId lease, std::vector<MaySwap> left, std::function<void(std::string)> done);

  const Engine& engine_;
  const core::State& state_;
  machine::Host& host_;
  machine::Actor& actor_;
  machine::Programs& programs_;
  std::uint64_t naming_ = 0;  // how often keep_all() was called
};

}  // namespace sublet::engine
