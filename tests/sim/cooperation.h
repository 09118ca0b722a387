// SPDX-License-Identifier: Apache-2.0
// Cooperative programs as one life of the daemon meets them: honest programs, and programs that lie, free half, answer
// late or never, or allocate again.
#pragma once

#include "machine.h"

namespace sublet::sim {

class SimCooperation final : public pause::Cooperation {
 public:
  explicit SimCooperation(std::shared_ptr<Life> life) : life_(std::move(life)) {}
  void open(Events events) override { events_ = std::move(events); }
  void number_from(std::uint64_t number) override { last_ = std::max(last_, number); }
  void yield(const core::Lease& lease, const std::string& reason, Duration at_most, Done done) override;
  void resume(const core::Lease& lease, Duration at_most, Done done) override;
  void adopt(const core::Lease&) override {}
  void forget(const core::Lease& lease) override { orders_.erase(lease.id); }
  void let_go(LeaseId) override {}

  // Calls of the HTTP edge, which is not part of a simulation.
  pause::YieldOrder order(LeaseId) const override { return {}; }
  Status answer(LeaseId, std::uint64_t, pause::YieldAnswer, const std::string&) override {
    return bad_request("a simulated program answers by itself");
  }
  std::string answer_file(const core::Lease&) const override { return {}; }

 private:
  using Kind = pause::YieldOrder::Kind;
  struct Order {
    Kind kind = Kind::none;
    std::uint64_t number = 0;
    bool answered = true;
    bool sent = false;    // the program is told of it, now or soon
    bool untold = false;  // a pause order that never reached the program
    ProcessRef told;      // the process that was told; none: by a call
    Duration at_most{};
    Done done;  // called with the result
    std::uint64_t wait = 0;
  };
  Order& begin(const core::Lease& lease, Kind kind, Duration at_most, Done done);
  bool nobody_tells();
  void could_not(LeaseId lease, const Order& order);
  void go_on_untold(LeaseId lease, const Order& order);
  Order* waited_for(LeaseId lease, std::uint64_t number);
  bool lives(LeaseId lease, const Order& order) const;
  void hear_in(Duration from_now, LeaseId lease, std::uint64_t number);
  void hear(LeaseId lease, std::uint64_t number);
  void hear_yield(LeaseId lease, Order& order, Program& program);
  void hear_resume(LeaseId lease, Order& order);
  void yield_late(LeaseId lease, Program& program, Duration after);
  void grab_again_later(LeaseId lease);
  pause::ParkOutcome yielded(LeaseId lease) const;
  void finish(Order& order, pause::ParkOutcome outcome);

  std::shared_ptr<Life> life_;
  Events events_;
  std::map<LeaseId, Order> orders_;
  std::uint64_t last_ = 0, last_wait_ = 0;
  std::int64_t back_at_ns_ = 0;  // the actor is away before that
};

}  // namespace sublet::sim
