// SPDX-License-Identifier: Apache-2.0
#include "cooperation.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;
using pause::ParkOutcome;

namespace {

constexpr Duration retry_interval = 1s;  // of a program that cannot take its bytes back yet

ParkOutcome failed(core::ObstacleCode code, std::string detail) {
  return {.kind = ParkOutcome::Kind::unknown, .code = code, .detail = std::move(detail)};
}

}  // namespace

// ------------------------------------------------------------------------------------------------ told

// No order comes before the state of the lease is durable, and none while another waits for its result.
SimCooperation::Order& SimCooperation::begin(const core::Lease& lease, Kind kind, Duration at_most, Done done) {
  Order& order = orders_[lease.id];
  const auto says = [&](std::string_view what) {
    return [&lease, kind, what] {
      return fmt::format("{} is told to {}: {}", to_string(lease.id), pause::to_string(kind), what);
    };
  };
  // A resume order may come at any time, and replaces the order before.
  life_->verdict.expect(!order.done || kind == Kind::resume, "two-orders", says("another order is out"));
  const core::Lease* durable = life_->store.find(lease.id);
  const auto wanted = kind == Kind::yield ? core::LeaseState::pausing : core::LeaseState::resuming;
  life_->verdict.expect(durable != nullptr && durable->state == wanted, "order-undecided",
                        says("durably it is not on that way"));
  const bool again = kind == Kind::resume && order.kind == kind && !order.answered;
  order.done = std::move(done);
  order.at_most = at_most;
  order.wait = ++last_wait_;
  if (kind == Kind::resume && order.untold) return go_on_untold(lease.id, order), order;
  if (!again) {
    order.kind = kind;
    order.number = ++last_;
    order.answered = order.sent = order.untold = false;
    order.told = lease.cooperation ? lease.cooperation->process : ProcessRef{};
  }
  if (nobody_tells()) return could_not(lease.id, order), order;
  if (!std::exchange(order.sent, true)) hear_in(life_->random.time(1ms, 2s), lease.id, order.number);
  later(life_, at_most, [this, id = lease.id, wait = order.wait] {
    const auto found = orders_.find(id);
    if (found == orders_.end() || found->second.wait != wait || !found->second.done) return;
    // No caller waits for its yield any more, but a resume order always has a caller.
    if (found->second.kind == Kind::yield) found->second.answered = true;
    finish(found->second, failed(core::ObstacleCode::late, "it has not answered in time"));
  });
  return order;
}

// True while the actor is away, for moments or for minutes.
bool SimCooperation::nobody_tells() {
  const std::int64_t now = life_->agenda.now_ns();
  if (life_->faults && now >= back_at_ns_ && life_->random.chance(1))
    back_at_ns_ = now + life_->random.time(1s, 5min).count();
  return life_->faults && now < back_at_ns_;
}

void SimCooperation::could_not(LeaseId lease, const Order& order) {
  later(life_, 1ms, [this, lease, wait = order.wait] {
    const auto found = orders_.find(lease);
    if (found == orders_.end() || found->second.wait != wait || !found->second.done) return;
    Order& its = found->second;
    ParkOutcome outcome = failed(core::ObstacleCode::unreachable, "it cannot be told: the actor is not there");
    if (its.kind == Kind::yield) {
      its.answered = its.untold = true;
      outcome.kind = ParkOutcome::Kind::undone;
    }
    finish(its, std::move(outcome));
  });
}

// It knows nothing of what it was to be told before.
void SimCooperation::go_on_untold(LeaseId lease, const Order& order) {
  later(life_, 1ms, [this, lease, wait = order.wait] {
    const auto found = orders_.find(lease);
    if (found == orders_.end() || found->second.wait != wait) return;
    found->second.kind = Kind::resume;
    finish(found->second, {.kind = ParkOutcome::Kind::done});
  });
}

void SimCooperation::yield(const core::Lease& lease, const std::string&, Duration at_most, Done done) {
  life_->parks(lease.id, {});
  begin(lease, Kind::yield, at_most, std::move(done));
}

void SimCooperation::resume(const core::Lease& lease, Duration at_most, Done done) {
  begin(lease, Kind::resume, at_most, std::move(done));
}

// ------------------------------------------------------------------------------------------------ heard

SimCooperation::Order* SimCooperation::waited_for(LeaseId lease, std::uint64_t number) {
  const auto found = orders_.find(lease);
  const bool same = found != orders_.end() && found->second.number == number && !found->second.answered;
  return same ? &found->second : nullptr;
}

bool SimCooperation::lives(LeaseId lease, const Order& order) const {
  if (order.told) return life_->world.processes().contains(order.told);
  const Program* program = life_->world.program_of(lease);
  return program != nullptr && program->lives;
}

void SimCooperation::hear_in(Duration from_now, LeaseId lease, std::uint64_t number) {
  later(life_, from_now, [this, lease, number] { hear(lease, number); });
}

void SimCooperation::hear(LeaseId lease, std::uint64_t number) {
  Order* order = waited_for(lease, number);
  if (order == nullptr) return;
  if (!lives(lease, *order)) {  // one of which no process is left goes on by itself
    order->answered = true;
    life_->world.go_on_without(lease);
    if (order->kind == Kind::resume) return finish(*order, {.kind = ParkOutcome::Kind::done});
    ParkOutcome gone = failed(core::ObstacleCode::gone, "its process has ended");
    gone.kind = ParkOutcome::Kind::undone;
    return finish(*order, std::move(gone));
  }
  Program& program = *life_->world.program_of(lease);
  // It is still about something else: what it was told before, or it hears nothing at all.
  if (const Duration busy(program.busy_until_ns - life_->agenda.now_ns()); busy > 0ns)
    return hear_in(busy + 1ms, lease, number);
  if (std::exchange(program.yields_late, false)) life_->world.put_away(lease, 100);
  if (order->kind == Kind::yield) hear_yield(lease, *order, program);
  else hear_resume(lease, *order);
}

void SimCooperation::hear_yield(LeaseId lease, Order& order, Program& program) {
  World& world = life_->world;
  Random& random = life_->random;
  const Manners manners = life_->faults ? program.manners : Manners::honest;
  switch (manners) {
    case Manners::late: return yield_late(lease, program, order.at_most + random.time(1ms, 20s));
    case Manners::unresponsive:
      program.busy_until_ns = life_->agenda.now_ns() + random.time(1s, 90s).count();
      return hear_in(Duration(program.busy_until_ns - life_->agenda.now_ns()), lease, order.number);
    case Manners::refuses:
      order.answered = true;
      return finish(order, failed(core::ObstacleCode::refused, "it refuses to yield"));
    case Manners::liar: break;
    case Manners::half: world.put_away(lease, 50); break;
    case Manners::honest: world.put_away(lease, 100); break;
    case Manners::again:
      world.put_away(lease, 100);
      grab_again_later(lease);
      break;
  }
  order.answered = true;
  finish(order, yielded(lease));
}

void SimCooperation::hear_resume(LeaseId lease, Order& order) {
  if (!life_->world.take_back(lease)) return hear_in(retry_interval, lease, order.number);
  order.answered = true;
  if (order.done) return finish(order, {.kind = ParkOutcome::Kind::done});
  events_.runs_late(lease);
}

// The order is on its way, whatever other orders come meanwhile.
void SimCooperation::yield_late(LeaseId lease, Program& program, Duration after) {
  program.busy_until_ns = life_->agenda.now_ns() + after.count();
  program.yields_late = true;
  life_->agenda.in(after, [&world = life_->world, lease, main = program.main] {
    Program* its = world.program_of(lease);
    if (its == nullptr || its->main != main || !std::exchange(its->yields_late, false)) return;
    if (world.processes().contains(main)) world.put_away(lease, 100);
  });
}

void SimCooperation::grab_again_later(LeaseId lease) {
  life_->agenda.in(life_->random.time(100ms, 5s), [&world = life_->world, lease, random = life_->random]() mutable {
    if (world.quiet(lease)) world.grab_again(lease, random);
  });
}

// ------------------------------------------------------------------------------------------------ what came of it

ParkOutcome SimCooperation::yielded(LeaseId lease) const {
  ParkOutcome outcome{.kind = ParkOutcome::Kind::done};
  if (!life_->random.chance(80)) return outcome;  // what it grew by is not known
  const Program& program = *life_->world.program_of(lease);
  outcome.parked = {program.main};
  outcome.host_bytes = life_->world.put_away_by(lease);
  return outcome;
}

void SimCooperation::finish(Order& order, ParkOutcome outcome) {
  const Done done = std::exchange(order.done, {});
  if (!done) return;
  if (outcome.kind != ParkOutcome::Kind::done) life_->verdict.met.failed(to_string(outcome.code));
  done(std::move(outcome));
}

}  // namespace sublet::sim
