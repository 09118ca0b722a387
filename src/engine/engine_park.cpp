// SPDX-License-Identifier: Apache-2.0
// Carries out the core's orders to pause and resume, through the parker.
#include "base/log.h"
#include "engine/engine.h"

#include "base/mutants.h"
#include "core/host_check.h"
#include "gpu/checkpoint_line.h"
#include "pause/park_hint.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>

namespace sublet::engine {
namespace {

// Returns the obstacle in an outcome that no process of the lease is to blame for.
std::optional<core::Hindrance> hindrance_in(const pause::ParkOutcome& outcome) {
  // An actor that was lost with its order may have told the program. The order is taken back, and the program is not to
  // blame.
  const bool nobodys = outcome.kind == pause::ParkOutcome::Kind::undone || outcome.code == "unreachable";
  if (!nobodys) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, core::Hindrance>, 13> known{{
      {"no_right", core::Hindrance::program},
      {"not_dumpable", core::Hindrance::program},
      {"unsupported_driver", core::Hindrance::driver},
      {"no_driver", core::Hindrance::passing},  // it is being installed, or its module reloaded
      {"traced", core::Hindrance::passing},
      {"stopped", core::Hindrance::passing},
      {"host_memory", core::Hindrance::passing},      // host memory is short, or its tree swaps
      {"withdrawn", core::Hindrance::passing},        // a state that had to be stored first could not be stored
      {"measure_timeout", core::Hindrance::passing},  // the store or a reading of the device is slow
      {"helper", core::Hindrance::passing},           // there was no helper
      // The process to be told, or all that could be parked, has just ended.
      {"gone", core::Hindrance::passing},
      {"unreachable", core::Hindrance::passing},  // the way to the program is missing
      {"internal", core::Hindrance::passing},
  }};
  const auto found = std::ranges::find(known, outcome.code, [](const auto& one) { return one.first; });
  if (found == known.end()) return std::nullopt;
  return found->second;
}

}  // namespace

core::HostMemory Engine::host_memory(const core::Lease* lease) const {
  if (lease == nullptr) return host_.memory({}, {});
  // Without an actor no process keeps groups from swap, whatever the last actor could.
  std::optional<proc::SwapStopper> by;
  if (actor_.ready()) by = {lease->uid, actor_.introduction().uid == 0};
  return host_.memory(charged_of(*lease), by);
}

// Returns all processes that would be parked. Each is charged to its own groups. Empty: they are not known. The
// processes of a cooperative program may not all be booked.
std::vector<ProcessRef> Engine::charged_of(const core::Lease& lease) const {
  if (lease.owner.kind != core::OwnerKind::process && lease.cooperation) return {};
  std::vector<ProcessRef> processes = programs_.tree(lease.id);
  if (processes.empty() && lease.owner.process) processes.push_back(lease.owner.process);
  return processes;
}

std::vector<ProcessRef> Engine::tree_of(LeaseId lease) {
  programs_.scan();
  return programs_.tree(lease);
}

// Returns the memory that a restore must make sure of. It is needed where free bytes may be taken before the restore,
// which would then fail for good. Unleased processes on the device may take them. A full device shows that they are
// taken, perhaps by a program above its lease or an unlisted one. A paused program that allocated again may have taken
// its own bytes. So may a program that held more than its lease, or whose processes are parked in part.
std::vector<pause::Room> Engine::room_for(LeaseId id) const {
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

// The outcome of an order from before a store failure answers nothing. The core has read the store again; it undoes a
// half-done pause by its own order, and waits for that order.

// A lease that ended before its order was durable is not parked: nothing would resume its program.
bool Engine::lives(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  return lease != nullptr && !lease->ended();
}

void Engine::not_killed(LeaseId lease, const std::string& why) {
  if (!unkillable_.insert_or_assign(lease, why).second) return;  // SIGKILL is repeated, so it was logged already
  log::warn({.lease = lease}, "the daemon cannot end its program: {}",
            why.empty() ? "its keeper is gone, and nothing proves which process it is" : why);
}

// --- pausing

// The owner vouches by a pause grant that the driver can park the program. `sublet run` alone does not vouch.
pause::Parker::Program Engine::program_of(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  if (lease == nullptr) return {};
  const bool vouched = lease->pausable == core::Pausable::driver || core::is_granted(state_, lease->whose());
  return {vouched, std::max(static_cast<int>(lease->devices.size()), 1)};
}

void Engine::park(const core::Park& order) {
  const LeaseId lease = order.lease;
  // An order from before a store failure is not finished; the next order of the core undoes it.
  if (parker_.busy(lease)) {
    core::Parked fact{lease, false, "an earlier order was not answered yet"};
    fact.hindrance = core::Hindrance::passing;
    boost::asio::post(io_, [this, fact] { tick(fact); });
    return;
  }
  begin_moving(lease);
  const std::uint64_t number = ++last_park_;
  parking_[lease] = number;
  keep_from_swap(lease, tree_of(lease), [this, order, number, epoch = store_epoch_](const std::string& why_not) {
    const auto newest = parking_.find(order.lease);
    if (newest == parking_.end() || newest->second != number) return;
    parking_.erase(newest);
    if (epoch != store_epoch_ || !is_asked(order.lease)) return;
    if (const auto fact = refusal(order.lease, why_not)) {
      boost::asio::post(io_, [this, fact] { tick(*fact); });
      return;
    }
    order.method == core::PauseMethod::cooperative ? ask_to_yield(order) : park_by_driver(order);
  });
}

// Whether the lease has an unanswered order to park; else the order was withdrawn meanwhile.
bool Engine::is_asked(LeaseId id) const {
  const core::Lease* lease = core::find(state_, id);
  return lease != nullptr && (lease->state == core::LeaseState::pausing || lease->state == core::LeaseState::paused);
}

// The core decides by the memory of the machine; the control groups of the processes are examined here. `not_kept`: why
// they cannot be kept out of swap.
std::optional<core::Parked> Engine::refusal(LeaseId id, const std::string& not_kept) {
  const core::Lease& lease = *core::find(state_, id);
  const std::string swaps = not_kept.empty() ? who_may_swap(tree_of(id)) : not_kept;
  const core::HostMemory host = host_memory(&lease);
  core::Parked fact{id, false, "its memory cannot be kept out of swap: " + swaps, {}, true};
  fact.hindrance = host.may_swap && actor_.ready() ? core::Hindrance::swap : core::Hindrance::passing;
  if (!swaps.empty()) return fact;
  const Status takes = core::check_host(state_, options_.rules, lease, host);
  if (takes) return std::nullopt;
  fact.detail = takes.error().detail;
  fact.hint = takes.error().hint;
  return fact;
}

void Engine::park_by_driver(const core::Park& order) {
  const LeaseId lease = order.lease;
  parker_.park(
      lease, program_of(lease), order.give_up, [this, lease] { return tree_of(lease); },
      [this, lease](std::vector<ProcessRef> processes, std::function<void(bool)> may) {
        touching({lease, std::move(processes)}, std::move(may));
      },
      [this, lease](std::vector<ProcessRef> processes, std::function<void(std::string)> say) {
        weigh(lease, {now(), std::move(processes), std::move(say)});
      },
      [this, lease, epoch = store_epoch_](const pause::ParkOutcome& outcome) {
        // A late answer to its questions must not answer the questions of the next order.
        locks_waiting_.erase(lease);
        weighing_.erase(lease);
        if (const auto waiting = unparks_waiting_.extract(lease)) return unpark(waiting.mapped());
        if (epoch == store_epoch_) parked(lease, core::PauseMethod::driver, outcome);
      });
}

// The processes to lock are stored first: after a crash the next daemon must know which processes to unlock.
void Engine::touching(const core::LockIntent& fact, std::function<void(bool)> may) {
  if (!may_decide()) return may(false);
  locks_waiting_.insert_or_assign(fact.lease, std::move(may));
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  const bool refused = !plan.outcome.has_value();
  intend(std::move(plan), now);
  if (refused || mutant(Mutant::locked_before_durable)) may_lock(fact.lease, !refused);
}

void Engine::may_lock(LeaseId lease, bool may) {
  if (const auto waiting = locks_waiting_.extract(lease)) waiting.mapped()(may);
}

// Measures the bytes of the processes again when they are locked and cannot allocate any more.
void Engine::weigh(LeaseId lease, Weighing weighing) {
  weighing_.insert_or_assign(lease, std::move(weighing));
  probe_.take_now();
}

void Engine::measure_weighed(Time began) {
  std::vector<std::pair<LeaseId, Weighing>> measured;
  for (auto& [lease, weighing] : weighing_) {
    if (began >= weighing.since) measured.emplace_back(lease, std::move(weighing));
  }
  for (const auto& entry : measured) weighing_.erase(entry.first);
  for (const auto& [lease, weighing] : measured) {
    if (const Status may = may_decide(); !may) {
      weighing.say(may.error().detail);
      continue;
    }
    // Keeping groups from swap happened before the lock.
    const Time now = notice();
    core::Plan plan =
        core::step(state_, options_.rules, core::MeasuredWhileLocked{lease, host_.memory(weighing.processes, {})}, now);
    const std::string why_not = plan.outcome ? std::string() : plan.outcome.error().detail;
    if (why_not.empty()) {
      // The bytes of each process are stored before it is parked, because its restore must be made sure of by them.
      locks_waiting_.insert_or_assign(lease, [this, lease = lease, say = weighing.say](bool stored) {
        if (stored) begin_copying(lease);
        say(stored ? std::string() : "the memory that it holds cannot be stored");
      });
      plan.actions.emplace_back(core::Lock{lease});
    }
    intend(std::move(plan), now);
    if (!why_not.empty()) weighing.say(why_not);
    else if (mutant(Mutant::parked_before_durable)) may_lock(lease, true);
  }
}

void Engine::fail_measurements(const std::string& problem) {
  for (const auto& [lease, weighing] : std::exchange(weighing_, {}))
    weighing.say("the memory that it holds cannot be measured: " + problem);
}

// Gives one order for each group of the processes, also for a group that is kept already. It may be kept for another
// lease, which ends that when it resumes. A new actor does not know of it. If the actor refuses, the owner of the group
// may have stopped its swap.
void Engine::keep_from_swap(LeaseId lease, const std::vector<ProcessRef>& processes,
                            std::function<void(std::string)> done) {
  if (options_.rules.allow_swap || mutant(Mutant::swap_is_not_prevented) || processes.empty() ||
      !host_.memory({}, {}).may_swap)
    return done({});
  const std::vector<std::string> groups = host_.swap_groups(processes);
  std::vector<MaySwap> all;
  for (std::size_t i = 0; i < processes.size(); ++i) all.push_back({processes[i], groups[i]});
  keep_next_from_swap(lease, std::move(all), std::move(done));
}

void Engine::keep_next_from_swap(LeaseId lease, std::vector<MaySwap> left, std::function<void(std::string)> done) {
  if (left.empty()) return done({});
  const MaySwap next = std::move(left.back());
  left.pop_back();
  programs_.keep_from_swap(
      lease, next.process, true,
      [this, lease, next, left = std::move(left), done = std::move(done)](const std::string& why_not) mutable {
        // The lease has resumed meanwhile and its groups were released. Another order would keep them for ever.
        const core::Lease* known = core::find(state_, lease);
        if (known == nullptr || !known->parking) return done("the pause was withdrawn");
        if (why_not.empty()) {
          std::erase_if(left, [&](const MaySwap& other) { return other.group == next.group && !next.group.empty(); });
        } else if (programs_.lives(next.process) && host_.memory({&next.process, 1}, {}).may_swap) {
          return done(why_not);
        }
        keep_next_from_swap(lease, std::move(left), std::move(done));
      });
}

// Names a process that came while the others were kept, or left its group. "": there is none.
std::string Engine::who_may_swap(const std::vector<ProcessRef>& processes) const {
  if (options_.rules.allow_swap || mutant(Mutant::swap_is_not_prevented) || processes.empty()) return {};
  if (!host_.memory(processes, {}).may_swap) return {};
  for (const ProcessRef& process : processes)
    if (host_.memory({&process, 1}, {}).may_swap)
      return fmt::format("process {} is in a control group whose memory.swap.max cannot be set", process.pid);
  return {};
}

// Ends the keeping from swap for a lease that is durably not paused. Most leases have no kept groups.
void Engine::let_swap(LeaseId lease) {
  if (const core::Lease* known = core::find(state_, lease); known != nullptr && known->parking) return;
  programs_.keep_from_swap(lease, {}, false, [lease](const std::string& why_not) {
    if (!why_not.empty()) log::warn({.lease = lease}, "its control group is still kept out of swap: {}", why_not);
  });
}

// A new actor finds groups that are kept from swap, and does not know for which leases. It is told all paused leases,
// and then that these are all. This is not done while the paused leases are not known. If the actor refuses a lease,
// nothing was kept for that lease: the actor takes over kept groups without a check.
void Engine::keep_all_from_swap() {
  const std::uint64_t number = ++naming_;
  // Called once for each lease, and once at the end.
  if (!actor_.ready()) return;
  const auto named = std::make_shared<std::size_t>(state_.pauses.away.size() + 1);
  const auto one_named = [this, number, named] {
    if (--*named != 0 || number != naming_ || !store_problem_.empty()) return;
    programs_.all_are_kept();
  };
  if (!state_.pauses.away.empty()) programs_.scan();
  for (const LeaseId id : state_.pauses.away) {
    keep_from_swap(id, programs_.tree(id), [this, id, one_named](const std::string& why_not) {
      const core::Lease* known = core::find(state_, id);
      const bool away = known != nullptr && known->parking;  // false: there is nothing to keep any more
      if (!why_not.empty() && away) log::warn({.lease = id}, "parked memory may be swapped out: {}", why_not);
      one_named();
    });
  }
  one_named();
}

void Engine::ask_to_yield(const core::Park& order) {
  const LeaseId lease = order.lease;
  const core::Lease* known = core::find(state_, lease);
  if (known == nullptr || !known->parking || !known->cooperation) {  // withdrawn between the decision and its commit
    boost::asio::post(io_, [this, lease] { tick(core::Parked{lease, false, "its program is no longer cooperative"}); });
    return;
  }
  cooperation_.yield(*known, core::text_of(known->parking->cause), order.at_most,
                     [this, lease, epoch = store_epoch_](const pause::ParkOutcome& outcome) {
                       if (epoch == store_epoch_) parked(lease, core::PauseMethod::cooperative, outcome);
                     });
}

void Engine::parked(LeaseId lease, core::PauseMethod method, const pause::ParkOutcome& outcome) {
  const bool done = outcome.kind == pause::ParkOutcome::Kind::done;
  log::info({.lease = lease}, "{}",
            done ? fmt::format("paused: {} processes freed their VRAM in {}", outcome.parked.size(),
                               format_duration(outcome.took))
                 : "not paused: " + outcome.detail);
  core::Parked fact{lease, done, outcome.detail, outcome.host_bytes, outcome.kind == pause::ParkOutcome::Kind::undone};
  fact.may_be_by_chance = outcome.code == "shared_memory";
  if (outcome.code == "not_parkable" || fact.may_be_by_chance) fact.unfit = core::Unfit::never;
  if (outcome.code == "owner_must_vouch") fact.unfit = core::Unfit::unvouched;
  fact.stuck = outcome.code == "stuck";
  fact.hindrance = hindrance_in(outcome);
  const bool by_driver = method == core::PauseMethod::driver;
  if (by_driver && driver_away_.lasts(outcome, options_.rules.cooldown, clock_.now()))
    fact.hindrance = core::Hindrance::driver;
  fact.hint = pause::park_hint(outcome.code);
  tick(fact);
}

// --- resuming

void Engine::unpark(const core::Unpark& order) {
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
  begin_moving(lease);
  if (order.method != core::PauseMethod::driver) return send_resume_order(order);
  parker_.unpark(lease, order.locked_processes ? *order.locked_processes : tree_of(lease), room_for(lease),
                 order.give_up, [this, order, epoch = store_epoch_](const pause::ParkOutcome& outcome) {
                   if (const auto waiting = unparks_waiting_.extract(order.lease)) return unpark(waiting.mapped());
                   if (epoch != store_epoch_) return;
                   unparked(order.lease, outcome);
                 });
}

void Engine::send_resume_order(const core::Unpark& order) {
  const core::Lease* known = core::find(state_, order.lease);
  if (known == nullptr || !order.told) return unparked(order.lease, {.kind = pause::ParkOutcome::Kind::done});
  cooperation_.resume(*known, order.at_most,
                      [this, lease = order.lease, epoch = store_epoch_](const pause::ParkOutcome& outcome) {
                        if (epoch == store_epoch_) unparked(lease, outcome);
                      });
}

void Engine::unparked(LeaseId lease, const pause::ParkOutcome& outcome) {
  using How = core::Unparked::How;
  How how = How::not_yet;
  if (outcome.kind == pause::ParkOutcome::Kind::done) how = How::runs;
  else if (outcome.kind == pause::ParkOutcome::Kind::final) how = How::never;
  if (how != How::runs) log::warn({.lease = lease}, "its program is not running again: {}", outcome.detail);
  const core::Lease* known = core::find(state_, lease);
  const auto host = known != nullptr ? std::optional(host_memory(known)) : std::nullopt;
  core::Unparked fact{lease, how, outcome.detail, host, outcome.code == "no_room", outcome.code};
  fact.nothing_parked = how == How::never && outcome.parked.empty();
  tick(fact);
  if (how == How::runs) withdraw_if_gone(lease);
}

// The process that yields for the program may have ended meanwhile. A program that was resumed does not need it any
// more.
void Engine::withdraw_if_gone(LeaseId lease) {
  const core::Lease* known = core::find(state_, lease);
  const bool told = known != nullptr && known->cooperation && known->cooperation->process;
  if (told && !programs_.lives(known->cooperation->process)) tick(core::Cooperate{lease});
}

// --- cooperative programs

const proc::Member* Engine::member_of(ProcessRef process, LeaseId lease) {
  const proc::Member* member = programs_.member(process);
  if (member == nullptr || member->lease != lease) {
    programs_.scan();
    member = programs_.member(process);
  }
  return member != nullptr && member->lease == lease ? member : nullptr;
}

Result<Answered> Engine::set_grant(const core::Grant& grant, const Remember& remember, Answered answer) {
  if (const Status may = may_decide(); !may) return may.error();
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, grant, now);
  const Transaction transaction(*this);
  intend(std::move(plan), now);
  answer_with(remember, answer);
  return answer;
}

}  // namespace sublet::engine
