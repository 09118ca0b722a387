// SPDX-License-Identifier: Apache-2.0
// Parks and brings back whole leases by the driver's checkpoint: every process of a lease that uses CUDA, each through
// a helper of its own (checkpoint_helper.h).
#pragma once

#include "engine/alarm.h"
#include "engine/checkpoint_helper.h"
#include "engine/parker.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>

namespace sublet::engine {

struct ParkerOptions {
  // A helper for a process of a lease, which starts when it is first asked.
  std::function<std::shared_ptr<CheckpointHelper>(LeaseId, ProcessRef)> helper;
  std::function<Bytes(ProcessRef)> resident;         // of its memory on the host, and on swap devices
  Duration lock_timeout = std::chrono::seconds(10);  // for one process to finish the work that it has submitted
  // For whoever gave the order to measure and store what is asked of it: meanwhile the processes stand still, and no
  // driver is to blame for that.
  Duration said_within = std::chrono::seconds(10);
  std::function<std::unique_ptr<Alarm>()> alarm = {};  // unset: by the time of the loop
};

class DriverParker final : public Parker {
 public:
  DriverParker(boost::asio::io_context& io, ParkerOptions options);
  ~DriverParker() override;  // the helpers end by themselves; nobody is told of what was under way
  DriverParker(const DriverParker&) = delete;
  DriverParker& operator=(const DriverParker&) = delete;

  void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh, Done done) override;
  void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<Room> room, Duration give_up,
              Done done) override;
  bool busy(LeaseId lease) const override;
  void when_returned(std::function<void(LeaseId)> told) override;
  // Its helpers end, which unlocks processes that only wait; one that is parked stays so. A stuck helper is kept, so
  // that its process never gets a second.
  void forget(LeaseId lease) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sublet::engine
