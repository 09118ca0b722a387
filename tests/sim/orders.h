// SPDX-License-Identifier: Apache-2.0
// The invariants of pauses and resumes: the order of the driver calls, and that each reported result is true.
#pragma once

#include "driver.h"
#include "machine.h"

#include "pause/parker.h"

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace sublet::sim {

class Orders {
 public:
  explicit Orders(std::shared_ptr<Life> life) : life_(std::move(life)) {}

  // One order at a time, and none before the state of the lease is durable.
  void begin_park(LeaseId lease, Duration give_up);
  void begin_unpark(LeaseId lease, Duration give_up, const std::vector<pause::Room>& room);
  void weighing(LeaseId lease, const std::vector<ProcessRef>& processes);
  void weighed(LeaseId lease, bool may);
  void end(LeaseId lease, const pause::ParkOutcome& outcome);
  void forget(LeaseId lease);
  bool out(LeaseId lease) const { return orders_.contains(lease); }

  // Called by the helpers.
  void starts(LeaseId lease, const std::shared_ptr<Helper>& helper);
  void asks(LeaseId lease, ProcessRef process, const gpu::CheckpointCommand& command, Duration patience);
  void answered(LeaseId lease, ProcessRef process, const gpu::CheckpointReply& reply);

 private:
  struct Order {
    bool parks;
    Duration give_up;
    std::vector<pause::Room> room{};
    std::set<ProcessRef> not_running{};  // processes that did not run before the order
    std::set<ProcessRef> aside{};        // processes without CUDA when asked; nobody sees what they begin later
    std::set<ProcessRef> weighed{};      // processes that lived when all were locked
    std::vector<ProcessRef> locked{};    // processes that were locked and weighed
    bool refused = false;                // a process cannot be parked
    bool may = false;                    // they may be parked as weighed
    std::set<ProcessRef> parked{};       // processes that the driver reported as parked
    gpu::CheckpointCommand held{};       // the memory held for the restore
    std::set<ProcessRef> back{};         // processes restored into the memory that is held
  };
  void begin(LeaseId lease, Order order);
  void check_lock(LeaseId lease, ProcessRef process) const;
  void check_room(LeaseId lease, const Order& order, ProcessRef process, const gpu::CheckpointCommand& command) const;
  std::vector<const Process*> processes_of(LeaseId lease) const;
  bool is(ProcessRef process, gpu::ParkState state) const;  // true also if the process is gone
  template <typename What>
  void expect(bool holds, const char* invariant, LeaseId lease, const What& what) const;

  std::shared_ptr<Life> life_;
  std::map<LeaseId, Order> orders_;
  std::map<ProcessRef, std::shared_ptr<Helper>> helpers_;  // the last helper of each process
  std::set<LeaseId> forgotten_;
};

}  // namespace sublet::sim
