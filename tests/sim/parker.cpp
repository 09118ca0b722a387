// SPDX-License-Identifier: Apache-2.0
#include "parker.h"

#include "helper.h"

namespace sublet::sim {

using pause::ParkOutcome;

SimParker::SimParker(std::shared_ptr<Life> life, boost::asio::io_context& io,
                     std::function<std::unique_ptr<machine::Alarm>()> alarm)
    : life_(std::move(life)),
      orders_(std::make_shared<Orders>(life_)),
      parker_(io, {.helper = [&io, life = life_, orders = orders_, let_go = life_->random.chance(50)](
                                 LeaseId lease, ProcessRef process) -> std::shared_ptr<pause::CheckpointHelper> {
                     return std::make_shared<SimHelper>(io, life, orders, lease, process, let_go);
                   },
                   .resident = [life = life_](ProcessRef process) { return life->world.driver().resident(process); },
                   .alarm = std::move(alarm)}) {}

void SimParker::park(LeaseId lease, Program program, Duration give_up, List list, Touch touch, Weigh weigh, Done done) {
  orders_->begin_park(lease, give_up);
  const auto weighs = [orders = orders_, lease, weigh = std::move(weigh)](std::vector<ProcessRef> processes,
                                                                          const std::function<void(std::string)>& say) {
    orders->weighing(lease, processes);
    weigh(std::move(processes), [orders, lease, say](std::string why_not) {
      orders->weighed(lease, why_not.empty());
      say(std::move(why_not));
    });
  };
  parker_.park(lease, program, give_up, std::move(list), std::move(touch), weighs, checked(lease, std::move(done)));
}

void SimParker::unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<pause::Room> room, Duration give_up,
                       Done done) {
  orders_->begin_unpark(lease, give_up, room);
  parker_.unpark(lease, std::move(tree), std::move(room), give_up, checked(lease, std::move(done)));
}

SimParker::Done SimParker::checked(LeaseId lease, Done done) {
  return [this, lease, done = std::move(done)](ParkOutcome outcome) {
    orders_->end(lease, outcome);
    (void)busy(lease);
    const Config& config = life_->world.config();
    // From now on nothing is believed of it but what its card shows; and it may not show all.
    if (outcome.kind == ParkOutcome::Kind::done && config.missing > 0 && life_->random.chance(config.liars / 2))
      life_->world.hide(lease, life_->random);
    done(std::move(outcome));
  };
}

bool SimParker::busy(LeaseId lease) const {
  const bool busy = parker_.busy(lease);
  life_->verdict.expect(busy == orders_->out(lease), "busy-unsaid", [&] {
    return to_string(lease) + (busy ? " is busy, and no order is out" : " is not busy, and an order is out");
  });
  return busy;
}

void SimParker::forget(LeaseId lease) {
  orders_->forget(lease);
  parker_.forget(lease);
}

}  // namespace sublet::sim
