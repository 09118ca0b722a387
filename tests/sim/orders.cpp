// SPDX-License-Identifier: Apache-2.0
#include "orders.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using gpu::CheckpointCall;
using gpu::ParkState;
using pause::ParkOutcome;

template <typename What>
void Orders::expect(bool holds, const char* invariant, LeaseId lease, const What& what) const {
  life_->verdict.expect(holds, invariant, [&] { return to_string(lease) + ": " + what(); });
}

std::vector<const Process*> Orders::processes_of(LeaseId lease) const {
  std::vector<const Process*> found;
  for (const auto& [ref, process] : life_->world.processes()) {
    if (process.lease == lease) found.push_back(&process);
  }
  return found;
}

bool Orders::is(ProcessRef process, ParkState state) const {
  const auto found = life_->world.processes().find(process);
  return found == life_->world.processes().end() || found->second.state == state;
}

// ------------------------------------------------------------------------------------------------ ordered

void Orders::begin(LeaseId id, Order order) {
  const char* what = order.parks ? "park" : "unpark";
  expect(!out(id), "two-orders", id, [&] { return fmt::format("ordered to {} while an order is out", what); });
  const core::Lease* lease = life_->store.find(id);
  const auto wanted = order.parks ? core::LeaseState::pausing : core::LeaseState::resuming;
  expect(lease != nullptr && lease->state == wanted, "order-undecided", id, [&] {
    return fmt::format("ordered to {}, and durably it is {}", what,
                       lease == nullptr ? "not there" : to_string(lease->state));
  });
  for (const Process* process : processes_of(id))
    if (process->state != ParkState::running) order.not_running.insert(process->ref);
  orders_.insert_or_assign(id, std::move(order));
}

void Orders::begin_park(LeaseId lease, Duration give_up) {
  life_->parks(lease, {});
  begin(lease, {.parks = true, .give_up = give_up});
}

void Orders::begin_unpark(LeaseId lease, Duration give_up, const std::vector<pause::Room>& room) {
  life_->restores(lease, room);
  begin(lease, {.parks = false, .give_up = give_up, .room = room});
}

void Orders::weighing(LeaseId lease, const std::vector<ProcessRef>& processes) {
  expect(std::all_of(processes.begin(), processes.end(), [this](ProcessRef p) { return is(p, ParkState::locked); }),
         "weighed-unlocked", lease, [] { return std::string("it can still take more"); });
  const auto order = orders_.find(lease);
  if (order == orders_.end()) return;
  order->second.locked = processes;
  for (const Process* process : processes_of(lease)) order->second.weighed.insert(process->ref);
}

void Orders::weighed(LeaseId lease, bool may) {
  const auto order = orders_.find(lease);
  if (order == orders_.end()) return;
  order->second.may = may;
  if (may) life_->parks(lease, order->second.locked);
}

void Orders::forget(LeaseId lease) {
  orders_.erase(lease);
  forgotten_.insert(lease);
}

// An order is carried out for all processes, or for none.
void Orders::end(LeaseId lease, const ParkOutcome& outcome) {
  using Kind = ParkOutcome::Kind;
  const auto found = orders_.extract(lease);
  if (outcome.kind != Kind::done) life_->verdict.met.failed(to_string(outcome.code));
  expect(!found.empty(), "answered-unasked", lease, [] { return std::string("no order is out"); });
  if (found.empty()) return;
  const Order& order = found.mapped();
  for (const Process* process : processes_of(lease)) {
    const auto says = [&] {
      return fmt::format("process {} is {}, and the order is said to be {}: {}", process->ref.pid,
                         to_string(process->state), outcome.kind == Kind::done ? "done" : "undone", outcome.detail);
    };
    const bool runs = process->state == ParkState::running;
    const bool before = order.not_running.contains(process->ref);
    if (outcome.kind == Kind::undone) expect(runs || before, "undone-by-halves", lease, says);
    if (outcome.kind != Kind::done) continue;
    if (!order.parks) expect(runs, "back-by-halves", lease, says);
    else if (order.weighed.contains(process->ref) && !order.aside.contains(process->ref))
      expect(process->state == ParkState::checkpointed, "parked-by-halves", lease, says);
  }
}

// ------------------------------------------------------------------------------------------------ asked

// Two for one process would unlock it under each other's hands.
void Orders::starts(LeaseId lease, const std::shared_ptr<Helper>& helper) {
  std::shared_ptr<Helper>& last = helpers_[helper->target];
  const bool at_work = last && last->at_work && !last->dead;
  expect(!at_work || forgotten_.contains(lease), "second-helper", lease,
         [&] { return fmt::format("for process {}, and the first is inside the driver", helper->target.pid); });
  last = helper;
}

void Orders::asks(LeaseId lease, ProcessRef process, const gpu::CheckpointCommand& command, Duration patience) {
  const auto found = orders_.find(lease);
  if (found == orders_.end()) return;  // forgotten: it goes on to its end
  const Order& order = found->second;
  const auto says = [&](std::string_view what) {
    return [&, what] { return fmt::format("{} of process {}: {}", to_string(command.call), process.pid, what); };
  };
  // How a process is, and what it uses, is told at once, or not while another is locked.
  const bool asks_first = command.call == CheckpointCall::state || command.call == CheckpointCall::preflight;
  const Duration least =
      (asks_first ? std::min<Duration>(order.give_up, std::chrono::seconds(10)) : order.give_up) + command.timeout;
  expect(patience >= least, "given-up-in-time", lease, says("less time than it was to have"));
  const bool there = command.call == CheckpointCall::preflight || command.call == CheckpointCall::lock ||
                     command.call == CheckpointCall::checkpoint;
  const bool back = command.call == CheckpointCall::restore || command.call == CheckpointCall::hold;
  expect(order.parks ? !back : !there, "wrong-way", lease, says("that is not what was ordered"));
  if (command.call == CheckpointCall::lock) {
    expect(!order.refused, "locked-though-refused", lease, says("another of them cannot be parked"));
    check_lock(lease, process);
  } else if (command.call == CheckpointCall::checkpoint) {
    expect(order.may, "parked-unweighed", lease, says("nobody said that it may be parked as it is"));
  } else if (command.call == CheckpointCall::restore) {
    if (command.ballast.empty()) found->second.back.insert(process);
    check_room(lease, order, process, command);
  } else if (command.call == CheckpointCall::hold && !command.ballast.empty()) {
    found->second.held = command;
    found->second.back.clear();
  }
}

void Orders::answered(LeaseId lease, ProcessRef process, const gpu::CheckpointReply& reply) {
  const auto found = orders_.find(lease);
  if (found == orders_.end()) return;
  using Refusal = gpu::CheckpointRefusal;
  if (reply.state == ParkState::checkpointed) found->second.parked.insert(process);
  if (reply.call == CheckpointCall::preflight) {
    if (reply.refusal == Refusal::no_cuda) found->second.aside.insert(process);
    else found->second.refused |= !reply.ok() && reply.refusal != Refusal::gone;
  }
  if (reply.call == CheckpointCall::hold && !reply.ok()) found->second.held = {};
}

// No process is locked before its name is durable: a restarted daemon knows no other processes.
void Orders::check_lock(LeaseId lease, ProcessRef process) const {
  const core::Lease* durable = life_->store.find(lease);
  const bool known = durable != nullptr && durable->parking && durable->parking->locked_processes;
  const auto& locked_processes = known ? *durable->parking->locked_processes : std::vector<ProcessRef>();
  const bool noted = std::find(locked_processes.begin(), locked_processes.end(), process) != locked_processes.end();
  expect(noted || life_->reconciled, "locked-unnoted", lease,
         [&] { return fmt::format("process {} is locked, and that is not stored", process.pid); });
}

// A restore that is tried without free memory is the last one. Nobody knows how much a process takes that was not
// measured. Processes that are restored together share the memory that is held; a process that answers late is restored
// alone.
void Orders::check_room(LeaseId lease, const Order& order, ProcessRef process,
                        const gpu::CheckpointCommand& command) const {
  const bool together = command.ballast.empty();
  for (const pause::Room& room : order.room) {
    const auto card = life_->world.card_of(room.uuid);
    if (!card) continue;
    Bytes needed;
    for (const Process* its : processes_of(lease)) {
      const bool comes = together ? order.back.contains(its->ref) : its->ref == process;
      if (!comes || !order.parked.contains(its->ref)) continue;
      const auto known = room.of.find(its->ref);
      if (known != room.of.end()) needed += std::min(its->parked[*card], known->second);
    }
    Bytes sure;
    for (const gpu::BallastWish& wish : together ? order.held.ballast : command.ballast)
      if (wish.uuid == room.uuid) sure = wish.bytes;
    // Bytes that the driver left there and parks after all, once the return was weighed, free memory for the
    // process itself.
    const Config& config = life_->world.config();
    if (room.holds && room.most) sure += config.cards[*card] - config.driver_reserved - *room.most;
    expect(sure >= std::min(needed, room.all), "memory-unsure", lease, [&] {
      return fmt::format("process {} is restored, {} of {} sure on {}", process.pid, format_size(sure),
                         format_size(std::min(needed, room.all)), room.uuid);
    });
  }
}

}  // namespace sublet::sim
