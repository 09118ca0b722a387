// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include "base/log.h"
#include "base/mutants.h"
#include "engine/engine.h"
#include "gpu/checkpoint_line.h"
#include "state/host_check.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace sublet::engine {

Executor::Executor(Engine& engine, const Machine& machine, boost::asio::io_context& io)
    : engine_(engine),
      state_(engine.state()),
      io_(io),
      host_(*machine.host),
      probe_(*machine.probe),
      actor_(*machine.actor),
      programs_(*machine.programs),
      parker_(*machine.parker),
      cooperation_(*machine.cooperation),
      methods_(pause::all_methods(parker_, cooperation_)),
      ends_(engine, machine),
      swap_(engine, machine) {}

void Executor::open() {
  cooperation_.open({.told = [this](LeaseId lease) { engine_.access().announce(lease); },
                     .runs_late =
                         [this](LeaseId lease) {
                           engine_.tick(core::AttemptEvent{lease, core::Unparked{}});
                           withdraw_if_gone(lease);
                         }});
  parker_.when_returned([this](LeaseId lease) { engine_.tick(core::AttemptEvent{lease, core::DriverReturned{}}); });
}

void Executor::perform(const core::Action& action) {
  if (std::holds_alternative<core::TakeSnapshot>(action)) {
    probe_.take_now();
  } else if (const auto* wanted = std::get_if<core::SignalProgram>(&action)) {
    ends_.signal(*wanted);
  } else if (const auto* yielding = std::get_if<core::Park>(&action)) {
    if (lives(yielding->lease)) park(*yielding);
  } else if (const auto* locking = std::get_if<core::Lock>(&action)) {
    may_lock(locking->lease, lives(locking->lease) ? "" : "the lease has ended");
  } else if (const auto* returning = std::get_if<core::Unpark>(&action)) {
    if (lives(returning->lease)) unpark(*returning);
  }
  // GiveBack is for the capability that declared the lease, which hears of it in happened().
}

void Executor::lease_ended(const core::Lease& lease) {
  may_lock(lease.id, "the lease has ended");
  for (const auto& method : methods_) method->forget(lease);
  unparks_waiting_.erase(lease.id);
}

void Executor::store_failed() {
  ends_.store_failed();
  for (auto& [lease, may] : std::exchange(locks_waiting_, {})) may("the store has failed");
}

void Executor::answer_later(LeaseId lease, core::Parked result) {
  boost::asio::post(io_, [this, fact = core::AttemptEvent{lease, std::move(result)}] { engine_.tick(fact); });
}

// A lease that ended before its order was durable is not parked: nothing would resume its program.
bool Executor::lives(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  return lease != nullptr && !lease->ended();
}

const proc::Member* Executor::member_of(ProcessRef process, LeaseId lease) {
  const proc::Member* member = programs_.member(process);
  if (member == nullptr || member->lease != lease) {
    programs_.scan();
    member = programs_.member(process);
  }
  return member != nullptr && member->lease == lease ? member : nullptr;
}

std::vector<ProcessRef> Executor::tree_of(LeaseId lease) {
  programs_.scan();
  return programs_.tree(lease);
}

// Returns the memory that a restore must make sure of. It is needed where free bytes may be taken before the restore,
// which would then fail for good. Unleased processes on the device may take them. A full device shows that they are
// taken, perhaps by a program above its lease or an unlisted one. A paused program that allocated again may have taken
// its own bytes. So may a program that held more than its lease, or whose processes are parked in part.
std::vector<pause::Room> Executor::room_for(LeaseId id) const {
  std::vector<pause::Room> room;
  const core::Lease* lease = core::find(state_, id);
  if (lease == nullptr || !lease->parking) return room;
  for (const std::string& uuid : lease->devices) {
    const auto device = state_.devices.by_uuid.find(uuid);
    if (device == state_.devices.by_uuid.end()) continue;
    core::ToRestore needed = core::to_restore(state_, *lease, uuid);
    const bool shared = device->second.unleased > Bytes{};
    const core::DeviceReading& seen = device->second.reading;
    // These bytes were allocated since the pause, or were never parked: host memory tells which.
    const Bytes left = core::charge_on(state_, id, uuid).used;
    const bool holds = left > lease->parking->residue;
    const bool fits = needed.all <= seen.total - seen.driver_reserved - seen.used;
    const bool alone = !shared && !holds && fits && lease->parking->measured;
    if (alone && needed.all + needed.beside <= lease->vram) continue;
    std::optional<Bytes> most;
    // The device need not list the residue.
    if (device->second.read_at) most = seen.total - seen.driver_reserved - std::max(left, lease->parking->residue);
    room.push_back({uuid, needed.all, std::move(needed.of), gpu::ballast_margin, most, holds});
  }
  return room;
}

// --- pausing

// The owner vouches by a pause grant that the driver can park the program. `sublet run` alone does not vouch.
pause::Parker::Program Executor::program_of(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  if (lease == nullptr) return {};
  const bool vouched = lease->pausable == core::Pausable::driver || core::is_granted(state_, lease->whose());
  return {vouched, std::max(static_cast<int>(lease->devices.size()), 1)};
}

void Executor::park(const core::Park& order) {
  const LeaseId lease = order.lease;
  // An order from before a store failure is not finished; the next order of the core undoes it.
  if (parker_.busy(lease)) {
    return answer_later(lease, {.detail = "an earlier order was not answered yet", .code = core::ObstacleCode::busy});
  }
  engine_.observer().begin_moving(lease);
  const std::uint64_t number = ++last_park_;
  parking_[lease] = number;
  swap_.keep(lease, tree_of(lease),
             [this, order, number, epoch = engine_.commits().epoch()](const std::string& why_not) {
               const auto newest = parking_.find(order.lease);
               if (newest == parking_.end() || newest->second != number) return;
               parking_.erase(newest);
               if (epoch != engine_.commits().epoch() || !is_asked(order.lease)) return;
               if (auto refused = refusal(order.lease, why_not)) return answer_later(order.lease, std::move(*refused));
               begin(order);
             });
}

// Whether the lease has an unanswered order to park; else the order was withdrawn meanwhile.
bool Executor::is_asked(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  return lease != nullptr && (lease->state == core::LeaseState::pausing || lease->state == core::LeaseState::paused);
}

// The core decides by the memory of the machine; the control groups of the processes are examined here. `not_kept`: why
// they cannot be kept out of swap.
std::optional<core::Parked> Executor::refusal(LeaseId id, const std::string& not_kept) {
  const core::Lease& lease = *core::find(state_, id);
  const std::string swaps = not_kept.empty() ? swap_.who_may_swap(tree_of(id)) : not_kept;
  const core::HostMemory host = engine_.observer().host_memory(&lease);
  const bool may_swap = host.may_swap && actor_.ready();
  core::Parked result{.undone = true, .code = may_swap ? core::ObstacleCode::swap : core::ObstacleCode::withdrawn};
  result.detail = "its memory cannot be kept out of swap: " + swaps;
  if (!swaps.empty()) return result;
  const Status takes = core::check_host(state_, engine_.rules(), lease, host);
  if (takes) return std::nullopt;
  if (!may_swap) result.code = core::ObstacleCode::host_memory;
  result.detail = takes.error().detail;
  result.hint = takes.error().hint;
  return result;
}

pause::Method& Executor::method(core::PauseMethod name) const {
  return **std::ranges::find(methods_, name, [](const auto& method) { return method->name(); });
}

void Executor::begin(const core::Park& order) {
  const LeaseId lease = order.lease;
  const core::Lease& known = *core::find(state_, lease);
  const bool by_driver = order.method == core::PauseMethod::driver;
  if (!by_driver && (!known.parking || !known.cooperation))  // withdrawn between the decision and its commit
    return answer_later(lease, {.detail = "its program is no longer cooperative"});
  pause::Method::Questions ask{program_of(lease), [this, lease] { return tree_of(lease); }, {}, {}};
  ask.touch = [this, lease](std::vector<ProcessRef> processes, std::function<void(bool)> may) {
    store_first(lease, core::LockIntent{std::move(processes)},
                [may = std::move(may)](const std::string& why_not) { may(why_not.empty()); });
  };
  ask.weigh = [this, lease](std::vector<ProcessRef> processes, std::function<void(std::string)> say) {
    weigh(lease, {engine_.now(), std::move(processes), std::move(say)});
  };
  method(order.method)
      .pause(known, order, std::move(ask),
             [this, lease, epoch = engine_.commits().epoch()](const pause::ParkOutcome& outcome) {
               // A late answer to its questions must not answer the questions of the next order.
               locks_waiting_.erase(lease);
               weighing_.erase(lease);
               if (const auto waiting = unparks_waiting_.extract(lease)) return unpark(waiting.mapped());
               if (epoch == engine_.commits().epoch()) parked(lease, outcome);
             });
}

// Lets the driver go on once what it does next is durable: after a crash the next daemon must know which processes to
// unlock, and by which bytes to make sure of their restores. A `fact` that changes nothing waits for no commit.
void Executor::store_first(LeaseId lease, decltype(core::AttemptEvent::what) fact, GoOn go_on) {
  if (const Status may = engine_.may_decide(); !may) return go_on(may.error().detail);
  const bool locks = std::holds_alternative<core::LockIntent>(fact);
  locks_waiting_.insert_or_assign(lease, std::move(go_on));
  const auto taken = engine_.take(core::AttemptEvent{lease, std::move(fact)});
  if (!taken) may_lock(lease, taken.error().detail);
  else if (mutant(locks ? Mutant::locked_before_durable : Mutant::parked_before_durable)) may_lock(lease, {});
}

void Executor::may_lock(LeaseId lease, const std::string& why_not) {
  if (const auto waiting = locks_waiting_.extract(lease)) waiting.mapped()(why_not);
}

// Measures the bytes of the processes again when they are locked and cannot allocate any more.
void Executor::weigh(LeaseId lease, Weighing weighing) {
  weighing_.insert_or_assign(lease, std::move(weighing));
  probe_.take_now();
}

void Executor::measure(Time began) {
  std::vector<std::pair<LeaseId, Weighing>> measured;
  for (auto& [lease, weighing] : weighing_) {
    if (began >= weighing.since) measured.emplace_back(lease, std::move(weighing));
  }
  for (const auto& entry : measured) weighing_.erase(entry.first);
  for (auto& [lease, weighing] : measured) {
    // Keeping groups from swap happened before the lock.
    const core::MeasuredWhileLocked fact{host_.memory(weighing.processes, {})};
    store_first(lease, fact, [this, lease = lease, say = std::move(weighing.say)](const std::string& why_not) {
      if (why_not.empty()) engine_.observer().begin_copying(lease);
      say(why_not);
    });
  }
}

void Executor::fail_measurements(const std::string& problem) {
  for (const auto& [lease, weighing] : std::exchange(weighing_, {}))
    weighing.say("the memory that it holds cannot be measured: " + problem);
}

void Executor::parked(LeaseId lease, const pause::ParkOutcome& outcome) {
  const bool done = outcome.kind == pause::ParkOutcome::Kind::done;
  log::info({.lease = lease}, "{}",
            done ? fmt::format("paused: {} processes freed their VRAM in {}", outcome.parked.size(),
                               format_duration(outcome.took))
                 : "not paused: " + outcome.detail);
  engine_.tick(core::AttemptEvent{lease, core::Parked{done, outcome.detail, outcome.host_bytes,
                                                      outcome.kind == pause::ParkOutcome::Kind::undone, outcome.code}});
}

// --- resuming

void Executor::unpark(const core::Unpark& order) {
  const LeaseId lease = order.lease;
  // The program has reported that it runs while this order waited for its commit. Another resume order would not be a
  // repetition: it could withdraw the next order to yield.
  const core::Lease* known = core::find(state_, lease);
  if (known != nullptr && known->state != core::LeaseState::resuming) return;
  if (parker_.busy(lease) && !mutant(Mutant::two_orders_at_once)) {
    if (mutant(Mutant::returns_ask_again)) return boost::asio::post(io_, [this, order] { unpark(order); });
    unparks_waiting_.insert_or_assign(lease, order);
    return;
  }
  if (known == nullptr) return;
  engine_.observer().begin_moving(lease);
  method(order.method)
      .resume(
          *known, order,
          [this, &order] {
            return pause::Method::Needs{order.locked_processes ? *order.locked_processes : tree_of(order.lease),
                                        room_for(order.lease)};
          },
          [this, lease, epoch = engine_.commits().epoch()](const pause::ParkOutcome& outcome) {
            if (const auto waiting = unparks_waiting_.extract(lease)) return unpark(waiting.mapped());
            if (epoch == engine_.commits().epoch()) unparked(lease, outcome);
          });
}

void Executor::unparked(LeaseId lease, const pause::ParkOutcome& outcome) {
  using How = core::Unparked::How;
  How how = How::not_yet;
  if (outcome.kind == pause::ParkOutcome::Kind::done) how = How::runs;
  else if (outcome.kind == pause::ParkOutcome::Kind::final) how = How::never;
  if (how != How::runs) log::warn({.lease = lease}, "its program is not running again: {}", outcome.detail);
  const core::Lease* known = core::find(state_, lease);
  const auto host = known != nullptr ? std::optional(engine_.observer().host_memory(known)) : std::nullopt;
  core::Unparked fact{how, outcome.detail, host, outcome.code};
  fact.nothing_parked = how == How::never && outcome.parked.empty();
  engine_.tick(core::AttemptEvent{lease, std::move(fact)});
  if (how == How::runs) withdraw_if_gone(lease);
}

// The process that yields for the program may have ended meanwhile. A program that was resumed does not need it any
// more.
void Executor::withdraw_if_gone(LeaseId lease) {
  const core::Lease* known = core::find(state_, lease);
  const bool told = known != nullptr && known->cooperation && known->cooperation->process;
  if (told && !programs_.lives(known->cooperation->process)) engine_.tick(core::Cooperate{lease});
}

}  // namespace sublet::engine
