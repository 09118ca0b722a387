// SPDX-License-Identifier: Apache-2.0
// How programs yield in the simulation: as they should, or in one of the ways in which they do not.
#include "machine.h"

#include <fmt/format.h>

namespace sublet::sim {

using namespace std::chrono_literals;
using engine::ParkOutcome;
using Kind = engine::ParkOutcome::Kind;

// One order at a time, and none before it is durable that the lease is on that way.
void SimParker::check_order(LeaseId id, bool park) const {
  life_->verdict.expect(!orders_.contains(id), "two-orders", [&] {
    return fmt::format("{} is ordered to {} while an order is out", to_string(id), park ? "park" : "unpark");
  });
  const core::Lease* lease = life_->store.find(id);
  const auto wanted = park ? core::LeaseState::pausing : core::LeaseState::resuming;
  // What it took while it is paused of its own accord, too.
  const bool on_top = park && lease != nullptr && lease->state == core::LeaseState::paused && lease->parking->told;
  life_->verdict.expect(on_top || (lease != nullptr && lease->state == wanted), "order-undecided", [&] {
    return fmt::format("{} is ordered to {}, and durably it is {}", to_string(id), park ? "park" : "unpark",
                       lease == nullptr ? "not there" : to_string(lease->state));
  });
}

void SimParker::finish(LeaseId lease, std::uint64_t number, ParkOutcome outcome) {
  const auto found = orders_.find(lease);
  if (found == orders_.end() || found->second.number != number) return;
  const Done done = std::move(found->second.done);
  orders_.erase(found);
  done(std::move(outcome));
}

void SimParker::park(LeaseId lease, List list, Done done) {
  check_order(lease, true);
  const std::uint64_t number = ++last_number_;
  orders_[lease] = {number, std::move(done)};
  const std::vector<ProcessRef> tree = list();
  life_->world.lock(lease);
  Random& random = life_->random;
  const bool stuck = life_->faults && random.chance(life_->world.config().stuck);
  const Duration took = random.time(1ms, stuck ? 60s : 4s);
  later(life_, took, [this, lease, number] {
    if (orders_.contains(lease)) finish(lease, number, parked(lease));
  });
}

ParkOutcome SimParker::parked(LeaseId lease) {
  World& world = life_->world;
  Random& random = life_->random;
  const Config& config = world.config();
  const Program* program = world.program_of(lease);
  ParkOutcome outcome{.kind = Kind::done};
  if (program == nullptr || !program->lives) {
    outcome = {.kind = Kind::undone, .code = "gone", .detail = "its process has ended"};
  } else if (life_->faults && random.chance(config.refusals)) {
    world.restore(lease);
    outcome = {.kind = Kind::undone, .code = "timeout", .detail = "its work was not done in time"};
  } else if (life_->faults && random.chance(config.unknowns)) {
    world.yield(lease, static_cast<int>(random.below(101)));
    outcome = {.kind = Kind::unknown, .code = "helper", .detail = "the helper ended"};
  } else if (life_->faults && random.chance(config.liars)) {
    outcome = lied(lease);
  } else {
    world.yield(lease, 100);
  }
  if (outcome.kind == Kind::done && random.chance(80)) {
    outcome.parked = {program->main};
    outcome.host_bytes = world.parked_by(lease);
  }
  return outcome;
}

// It says that it has yielded.
ParkOutcome SimParker::lied(LeaseId lease) {
  World& world = life_->world;
  Random& random = life_->random;
  switch (random.below(4)) {
    case 0: break;  // and holds all
    case 1: world.yield(lease, 50); break;
    case 2:  // and will, later; perhaps when nobody waits for it any more
      life_->agenda.in(random.time(100ms, 30s), [&world, lease] {
        if (world.quiet(lease)) world.yield(lease, 100);
      });
      break;
    default:  // and has, but not for long
      world.yield(lease, 100);
      life_->agenda.in(random.time(100ms, 30s), [&world, lease, random]() mutable {
        if (world.quiet(lease)) world.grab_again(lease, random);
      });
      break;
  }
  return {.kind = Kind::done};
}

void SimParker::unpark(LeaseId lease, std::vector<ProcessRef>, std::vector<gpu::BallastWish> ballast, Done done) {
  check_order(lease, false);
  const std::uint64_t number = ++last_number_;
  orders_[lease] = {number, std::move(done)};
  const bool stuck = life_->faults && life_->random.chance(life_->world.config().stuck);
  const Duration took = life_->random.time(1ms, stuck ? 60s : 2s);
  later(life_, took, [this, lease, number, ballast = std::move(ballast)] {
    if (!orders_.contains(lease)) return;
    for (const gpu::BallastWish& wish : ballast) {
      const auto card = life_->world.card_of(wish.uuid);
      if (!card || life_->world.room(*card) >= wish.bytes) continue;
      return finish(lease, number, {.kind = Kind::unknown, .code = "no_room", .detail = "the ballast does not fit"});
    }
    finish(lease, number, unparked(lease));
  });
}

ParkOutcome SimParker::unparked(LeaseId lease) {
  World& world = life_->world;
  Random& random = life_->random;
  const Config& config = world.config();
  if (life_->faults && random.chance(config.unknowns))
    return {.kind = Kind::unknown, .code = "helper", .detail = "the helper ended"};
  if (life_->faults && random.chance(config.final_faults))
    return {.kind = Kind::final, .code = "failed", .detail = "the driver failed it for good"};
  if (!world.restore(lease)) return {.kind = Kind::unknown, .code = "no_room", .detail = "there is no room"};
  return {.kind = Kind::done};
}

void SimParker::forget(LeaseId lease) { orders_.erase(lease); }

}  // namespace sublet::sim
