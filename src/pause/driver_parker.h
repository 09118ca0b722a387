// SPDX-License-Identifier: Apache-2.0
// Parks and unparks whole leases by the driver's checkpoint: every process of a lease that uses CUDA, each through its
// own helper (checkpoint_helper.h).
#pragma once

#include "machine/alarm.h"
#include "pause/checkpoint_helper.h"
#include "pause/parker.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>

namespace sublet::pause {

struct ParkerOptions {
  // Returns the helper for a process of a lease, which starts at its first question.
  std::function<std::shared_ptr<CheckpointHelper>(LeaseId, ProcessRef)> helper;
  std::function<Bytes(ProcessRef)> resident;         // bytes of a process in host memory and on swap devices
  Duration lock_timeout = std::chrono::seconds(10);  // time for a process to finish its submitted work
  // Time for the engine to measure and store before it answers; meanwhile the processes are locked.
  Duration said_within = std::chrono::seconds(10);
  std::function<std::unique_ptr<machine::Alarm>()> alarm = {};  // unset: uses the loop's timer
};

class DriverParker final : public Parker {
 public:
  DriverParker(boost::asio::io_context& io, ParkerOptions options);
  ~DriverParker() override;  // the helpers end by themselves; `done` of running orders is not called
  DriverParker(const DriverParker&) = delete;
  DriverParker& operator=(const DriverParker&) = delete;

  void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh, Done done) override;
  void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
              Done done) override;
  bool busy(LeaseId lease) const override;
  void when_returned(std::function<void(LeaseId)> told) override;
  // Ends the helpers of the lease, which unlocks its waiting processes. A parked process stays parked. A stuck helper
  // is kept, so that its process never gets a second helper.
  void forget(LeaseId lease) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sublet::pause
