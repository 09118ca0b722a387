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
  // What it took while it is paused of its own accord, too; by then it may be decided, and durable with the same
  // commit, that it comes back after that.
  const bool on_top = park && lease != nullptr && lease->parking && lease->parking->told &&
                      (lease->state == core::LeaseState::paused || lease->state == core::LeaseState::resuming);
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

bool SimParker::goes_on(LeaseId lease, std::uint64_t number) const {
  const auto found = orders_.find(lease);
  return found != orders_.end() && found->second.number == number;
}

void SimParker::park(LeaseId lease, Program, Duration, List list, Touch touch, Weigh weigh, Done done) {
  check_order(lease, true);
  const std::uint64_t number = ++last_number_;
  orders_[lease] = {number, std::move(done)};
  later(life_, life_->random.time(1ms, 200ms), [this, lease, number, list = std::move(list), touch, weigh] {
    if (!goes_on(lease, number)) return;
    const std::vector<ProcessRef> tree = list();
    if (life_->faults && life_->random.chance(life_->world.config().refusals)) {
      return finish(lease, number, {.kind = Kind::undone, .code = "unsupported_driver", .detail = "it cannot park"});
    }
    touch(tree, [this, lease, number, tree, weigh](bool may) {
      later(life_, 1ms, [this, lease, number, tree, may, weigh] {
        if (!goes_on(lease, number)) return;
        if (may) return lock(lease, number, tree, weigh);
        finish(lease, number, {.kind = Kind::undone, .code = "withdrawn", .detail = "the order was withdrawn"});
      });
    });
  });
}

// None before it is durable who is: a daemon that comes back knows nobody else.
void SimParker::lock(LeaseId lease, std::uint64_t number, const std::vector<ProcessRef>& processes,
                     const Weigh& weigh) {
  const core::Lease* durable = life_->store.find(lease);
  const bool noted = durable != nullptr && durable->parking && durable->parking->touched == processes;
  life_->verdict.expect(noted || life_->reconciled, "locked-unnoted",
                        [&] { return fmt::format("{} is locked, and it is not stored who is", to_string(lease)); });
  life_->world.lock(lease);
  weigh(processes, [this, lease, number](const std::string& why_not) {
    if (!goes_on(lease, number)) return;
    if (why_not.empty()) return checkpoint(lease, number);
    life_->world.restore(lease);
    finish(lease, number, {.kind = Kind::undone, .code = "outgrown", .detail = why_not});
  });
}

void SimParker::checkpoint(LeaseId lease, std::uint64_t number) {
  returns_in(lease, number, 4s, [this, lease, number] { finish(lease, number, parked(lease)); });
}

// A driver call: within its time, or much later, or never, as long as there are faults.
void SimParker::returns_in(LeaseId lease, std::uint64_t number, Duration at_most, std::function<void()> then) {
  Random& random = life_->random;
  const bool stuck = life_->faults && random.chance(life_->world.config().stuck);
  if (stuck) life_->world.note_hung(lease);
  if (stuck && random.chance(50)) return hang(lease, number, std::move(then));
  later(life_, random.time(1ms, stuck ? 60s : at_most), [this, lease, number, then = std::move(then)] {
    if (goes_on(lease, number)) then();
  });
}

void SimParker::hang(LeaseId lease, std::uint64_t number, std::function<void()> then) {
  later(life_, 30s, [this, lease, number, then = std::move(then)] {
    if (!goes_on(lease, number)) return;
    if (!life_->faults || life_->random.chance(5)) return then();
    hang(lease, number, then);
  });
}

ParkOutcome SimParker::parked(LeaseId lease) {
  World& world = life_->world;
  Random& random = life_->random;
  const Config& config = world.config();
  const sim::Program* program = world.program_of(lease);
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
  switch (random.below(life_->world.config().missing > 0 ? 7 : 4)) {
    case 0: break;  // and holds all
    case 4:
    case 5:
    case 6: world.hide(lease, random); break;  // and holds all, but is not listed any more
    case 1: world.yield(lease, 50); break;
    case 2:  // and will, later; perhaps when nobody waits for it any more
      life_->agenda.in(random.time(100ms, 30s), [&world, lease] {
        if (world.waits_for_the_driver(lease)) world.yield(lease, 100);
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

// How much more than there is has to be free on the card. A process that is parked in part still holds the rest.
Bytes SimParker::lacking(const std::vector<ProcessRef>& tree, const engine::Room& room) const {
  const auto card = life_->world.card_of(room.uuid);
  if (!card) return {};
  Bytes needed, held;
  for (const ProcessRef& process : tree) {
    const auto found = life_->world.processes().find(process);
    if (found == life_->world.processes().end() || found->second.parked[*card] <= Bytes{}) continue;
    const auto known = room.of.find(process);
    needed += known == room.of.end() ? room.all : known->second;
    held += found->second.held[*card];
  }
  return std::min(needed, room.all) - held - life_->world.room(*card);
}

void SimParker::unpark(LeaseId lease, std::vector<ProcessRef> tree, std::vector<engine::Room> room, Duration,
                       Done done) {
  check_order(lease, false);
  const std::uint64_t number = ++last_number_;
  orders_[lease] = {number, std::move(done)};
  returns_in(lease, number, 2s, [this, lease, number, tree = std::move(tree), room = std::move(room)] {
    for (const engine::Room& needed : room) {
      if (lacking(tree, needed) <= Bytes{}) continue;
      return finish(lease, number, {.kind = Kind::unknown, .code = "no_room", .detail = "the ballast does not fit"});
    }
    finish(lease, number, unparked(lease, tree));
  });
}

// Of those who may be parked, and of nobody else.
ParkOutcome SimParker::unparked(LeaseId lease, const std::vector<ProcessRef>& tree) {
  if (tree.empty()) return {.kind = Kind::done};
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
