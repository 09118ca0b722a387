// SPDX-License-Identifier: Apache-2.0
// The shipped parker over simulated helpers; its calls and results are checked.
#pragma once

#include "orders.h"

#include "pause/driver_parker.h"

namespace sublet::sim {

class SimParker final : public pause::Parker {
 public:
  SimParker(std::shared_ptr<Life> life, boost::asio::io_context& io,
            std::function<std::unique_ptr<machine::Alarm>()> alarm);
  void park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh, Done done) override;
  void unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<pause::Room> room, Duration give_up,
              Done done) override;
  bool busy(LeaseId lease) const override;
  void when_returned(std::function<void(LeaseId)> told) override { parker_.when_returned(std::move(told)); }
  void forget(LeaseId lease) override;

 private:
  Done checked(LeaseId lease, Done done);

  std::shared_ptr<Life> life_;
  std::shared_ptr<Orders> orders_;
  pause::DriverParker parker_;
};

}  // namespace sublet::sim
