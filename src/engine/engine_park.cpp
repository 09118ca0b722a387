// SPDX-License-Identifier: Apache-2.0
// Yielding and coming back as the core orders it, carried out by the parker.
#include "base/log.h"
#include "engine/engine.h"

#include "base/mutants.h"
#include "engine/park_hint.h"
#include "gpu/checkpoint_line.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>

namespace sublet::engine {
namespace {

// What no process of the lease has to answer for.
std::optional<core::Hindrance> hindrance_in(const ParkOutcome& outcome) {
  // An actor that was lost with its order may have told the program: that is taken back, and is no fault of it either.
  const bool nobodys = outcome.kind == ParkOutcome::Kind::undone || outcome.code == "unreachable";
  if (!nobodys || mutant(Mutant::hindrances_are_faults)) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, core::Hindrance>, 13> known{{
      {"no_right", core::Hindrance::program},
      {"not_dumpable", core::Hindrance::program},
      {"unsupported_driver", core::Hindrance::driver},
      {"no_driver", core::Hindrance::passing},  // it is being installed, or its module loaded
      {"traced", core::Hindrance::passing},
      {"stopped", core::Hindrance::passing},
      {"host_memory", core::Hindrance::passing},      // host memory is short, or its tree swaps
      {"withdrawn", core::Hindrance::passing},        // what was to be stored first could not be
      {"measure_timeout", core::Hindrance::passing},  // the store, or a card's reading, takes its time
      {"helper", core::Hindrance::passing},           // there was none
      {"gone", core::Hindrance::passing},             // who was to be told, or all that could be parked, has just ended
      {"unreachable", core::Hindrance::passing},      // who would have told it is not there
      {"internal", core::Hindrance::passing},
  }};
  const auto found = std::ranges::find(known, outcome.code, [](const auto& one) { return one.first; });
  if (found == known.end()) return std::nullopt;
  return mutant(Mutant::what_passes_lasts) ? core::Hindrance::program : found->second;
}

}  // namespace

core::HostMemory Engine::host_memory(const core::Lease* lease) const {
  if (lease == nullptr) return host_.memory({}, {});
  // Without an actor nobody keeps anybody from swap, whatever the last one could.
  std::optional<proc::SwapStopper> by;
  const bool ready = actor_.ready();
  if (ready || mutant(Mutant::any_actor_will_do)) by = {lease->uid, actor_.introduction().uid == 0};
  core::HostMemory memory = host_.memory(charged_of(*lease), by);
  memory.keeper_away = !ready;
  return memory;
}

// All that would be parked: each process is charged to its own groups.
std::vector<ProcessRef> Engine::charged_of(const core::Lease& lease) const {
  std::vector<ProcessRef> processes = programs_.tree(lease.id);
  if (processes.empty() && lease.owner.process) processes.push_back(lease.owner.process);
  return processes;
}

std::vector<ProcessRef> Engine::tree_of(LeaseId lease) {
  programs_.scan();
  return programs_.tree(lease);
}

// Where processes without a lease use the card, its free bytes are anybody's until the restore takes them; where it is
// seen to be full, they are taken, by a program that uses more than its lease, say, or one that is not listed; and a
// program that took bytes again while it was parked may have taken them out of the room for its own restore, which
// would fail for good without it. So may one that held more than its lease gives it, and one of whose processes some
// run on while the others are parked.
std::vector<Room> Engine::room_for(LeaseId id) const {
  std::vector<Room> room;
  const core::Lease* lease = state_.find(id);
  if (lease == nullptr || !lease->parking) return room;
  for (const std::string& uuid : lease->devices) {
    const auto device = state_.devices().find(uuid);
    if (device == state_.devices().end()) continue;
    core::State::ToRestore needed = state_.to_restore(*lease, uuid);
    const bool shared = device->second.unleased > Bytes{} && !mutant(Mutant::nobody_else_allocates);
    const core::DeviceReading& seen = device->second.reading;
    // What it is seen to hold there is what it took since, or was never parked: host memory tells which.
    const Bytes left = state_.charge(id, uuid).used;
    const bool holds = left > lease->parking->residue;
    const bool fits = needed.all <= seen.total - seen.driver_reserved - seen.used;
    const bool alone = !shared && !holds && fits && lease->parking->measured;
    if (alone && needed.all + needed.beside <= lease->vram) continue;
    std::optional<Bytes> most;
    // What it keeps need not be listed.
    if (device->second.read_at) most = seen.total - seen.driver_reserved - std::max(left, lease->parking->residue);
    room.push_back({uuid, needed.all, std::move(needed.of), gpu::ballast_margin, most, holds});
  }
  return room;
}

// What comes of an order from before the store failed answers nothing any more: the core, which has read the store
// anew, undoes what was half done by an order of its own, and waits for that one.

// One that ended before the order was durable is not parked any more: nobody would bring its program back.
bool Engine::lives(LeaseId id) const {
  const core::Lease* lease = state_.find(id);
  return (lease != nullptr && !lease->ended()) || mutant(Mutant::orders_for_the_dead);
}

void Engine::not_killed(LeaseId lease, const std::string& why) {
  if (!unkillable_.insert_or_assign(lease, why).second) return;  // SIGKILL is repeated
  log::warn("{}: its program should end, and cannot be ended from here: {}", to_string(lease),
            why.empty() ? "its keeper is gone, and nothing proves which process it is" : why);
}

// --- yielding

// Whoever grants that it be parked by the driver answers for what the driver cannot park; `sublet run` alone does not.
Parker::Program Engine::program_of(LeaseId id) const {
  const core::Lease* lease = state_.find(id);
  if (lease == nullptr) return {};
  const bool vouched = lease->pausable == core::Pausable::driver || state_.granted(lease->whose());
  return {vouched, std::max(static_cast<int>(lease->devices.size()), 1)};
}

void Engine::park(const core::Park& order) {
  const LeaseId lease = order.lease;
  if (parker_.busy(lease)) {  // still with an order from before the store failed: undone by what the core orders next
    core::Parked fact{lease, false, "an earlier order has not come back"};
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
    const std::string may_swap = why_not.empty() ? who_may_swap(tree_of(order.lease)) : why_not;
    if (!may_swap.empty()) {
      core::Parked fact{order.lease, false, "it cannot be kept from the swap device: " + may_swap, {}, true};
      const core::HostMemory host = host_memory(state_.find(order.lease));
      fact.hindrance = host.may_swap && !host.keeper_away ? core::Hindrance::swap : core::Hindrance::passing;
      boost::asio::post(io_, [this, fact] { tick(fact); });
      return;
    }
    order.method == core::PauseMethod::cooperative ? ask_to_yield(order) : park_by_driver(order);
  });
}

// By an order that is not answered: else it was withdrawn meanwhile.
bool Engine::is_asked(LeaseId id) const {
  const core::Lease* lease = state_.find(id);
  return lease != nullptr && (lease->state == core::LeaseState::pausing || lease->state == core::LeaseState::paused);
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
      [this, lease, epoch = store_epoch_](const ParkOutcome& outcome) {
        // What it asked and was not told in time must not answer the next one.
        locks_waiting_.erase(lease);
        weighing_.erase(lease);
        if (const auto waiting = unparks_waiting_.extract(lease)) return unpark(waiting.mapped());
        if (epoch == store_epoch_) parked(lease, core::PauseMethod::driver, outcome);
      });
}

// What is locked has to be stored first: whoever comes after us has to know whom to unlock.
void Engine::touching(const core::LockIntent& fact, std::function<void(bool)> may) {
  if (!may_decide()) return may(false);
  locks_waiting_.insert_or_assign(fact.lease, std::move(may));
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  const bool refused = !plan.outcome.has_value();
  intend(std::move(plan), now, std::nullopt);
  if (refused || mutant(Mutant::locked_before_durable)) may_lock(fact.lease, !refused);
}

void Engine::may_lock(LeaseId lease, bool may) {
  if (const auto waiting = locks_waiting_.extract(lease)) waiting.mapped()(may);
}

// What they hold is measured anew once they cannot take any more.
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
    // Nobody is to be kept from swap any more: that was done before they were locked.
    const Time now = notice();
    core::Plan plan =
        core::step(state_, options_.rules, core::MeasuredWhileLocked{lease, host_.memory(weighing.processes, {})}, now);
    const std::string why_not = plan.outcome ? std::string() : plan.outcome.error().detail;
    if (why_not.empty()) {
      // What each of them holds is what their way back is made sure of by: it is stored before it is parked.
      locks_waiting_.insert_or_assign(lease, [this, lease = lease, say = weighing.say](bool stored) {
        if (stored) begin_copying(lease);
        say(stored ? std::string() : "what it holds cannot be stored");
      });
      plan.actions.emplace_back(core::Lock{lease});
    }
    intend(std::move(plan), now, std::nullopt);
    if (!why_not.empty()) weighing.say(why_not);
    else if (mutant(Mutant::parked_before_durable)) may_lock(lease, true);
  }
}

void Engine::nothing_weighed(const std::string& problem) {
  for (const auto& [lease, weighing] : std::exchange(weighing_, {}))
    weighing.say("what it holds cannot be measured: " + problem);
}

// One order for each group that they are in. One that is kept already is asked for, too: whoever has it kept for
// another lease lets it be when that one is back, and an actor that came later does not know of it. Where nobody obeys,
// it may be kept all the same, by its owner.
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
  if (mutant(Mutant::groups_are_asked_once))
    std::erase_if(left, [this](const MaySwap& its) { return !host_.memory({&its.process, 1}, {}).may_swap; });
  if (left.empty()) return done({});
  const MaySwap next = std::move(left.back());
  left.pop_back();
  programs_.keep_from_swap(
      lease, next.process, true,
      [this, lease, next, left = std::move(left), done = std::move(done)](const std::string& why_not) mutable {
        // It is back already, and was let be: what comes after that would keep it for ever.
        const core::Lease* known = state_.find(lease);
        if (known == nullptr || !known->parking) return done("it is not to yield any more");
        if (why_not.empty()) {
          std::erase_if(left, [&](const MaySwap& other) { return other.group == next.group && !next.group.empty(); });
        } else if (programs_.lives(next.process) && host_.memory({&next.process, 1}, {}).may_swap) {
          return done(why_not);
        }
        keep_next_from_swap(lease, std::move(left), std::move(done));
      });
}

// Whoever came while the others were kept, or has left their groups. "": nobody did.
std::string Engine::who_may_swap(const std::vector<ProcessRef>& processes) const {
  if (options_.rules.allow_swap || mutant(Mutant::swap_is_not_prevented) || processes.empty()) return {};
  if (!host_.memory(processes, {}).may_swap) return {};
  for (const ProcessRef& process : processes)
    if (host_.memory({&process, 1}, {}).may_swap)
      return fmt::format("process {} is in a control group that nobody keeps from it", process.pid);
  return {};
}

// Of one that is not parked any more, durably; of most nobody is kept.
void Engine::let_swap(LeaseId lease) {
  if (mutant(Mutant::once_kept_always_kept)) return;
  if (const core::Lease* known = state_.find(lease); known != nullptr && known->parking) return;
  programs_.keep_from_swap(lease, {}, false, [lease](const std::string& why_not) {
    if (!why_not.empty()) log::warn("{}: its control group is still kept from swap: {}", to_string(lease), why_not);
  });
}

// The actor does not know for whom the one before it, or the daemon before us, has kept what it finds kept: it is told
// of all who are away, and then that these are all. Not while it is unknown who is away. Where it refuses one nothing
// was kept for that one: whatever it finds kept it takes over without asking for a right.
void Engine::keep_all_from_swap() {
  const std::uint64_t number = ++naming_;
  if (mutant(Mutant::who_comes_keeps_nobody) || !actor_.ready()) return;
  // Called once by each, and at last by us.
  const auto named = std::make_shared<std::size_t>(state_.away().size() + 1);
  const auto one_named = [this, number, named] {
    if (--*named != 0 || number != naming_ || !store_problem_.empty()) return;
    if (!mutant(Mutant::who_comes_keeps_the_rest)) programs_.all_are_kept();
  };
  if (!state_.away().empty()) programs_.scan();
  for (const LeaseId id : state_.away()) {
    keep_from_swap(id, programs_.tree(id), [this, id, one_named](const std::string& why_not) {
      const core::Lease* known = state_.find(id);
      const bool away = known != nullptr && known->parking;  // else there is nothing to keep any more
      if (!why_not.empty() && away) log::warn("{}: what is parked may be swapped out: {}", to_string(id), why_not);
      one_named();
    });
  }
  one_named();
}

void Engine::ask_to_yield(const core::Park& order) {
  const LeaseId lease = order.lease;
  const core::Lease* known = state_.find(lease);
  if (known == nullptr || !known->parking || !known->cooperation) {  // withdrawn between the decision and its commit
    boost::asio::post(io_, [this, lease] { tick(core::Parked{lease, false, "it no longer yields by itself"}); });
    return;
  }
  cooperation_.yield(*known, core::text_of(known->parking->cause), order.at_most,
                     [this, lease, epoch = store_epoch_](const ParkOutcome& outcome) {
                       if (epoch == store_epoch_) parked(lease, core::PauseMethod::cooperative, outcome);
                     });
}

void Engine::parked(LeaseId lease, core::PauseMethod method, const ParkOutcome& outcome) {
  const bool done = outcome.kind == ParkOutcome::Kind::done;
  log::info("{}: {}", to_string(lease),
            done ? fmt::format("{} processes yielded in {}", outcome.parked.size(), format_duration(outcome.took))
                 : "not parked: " + outcome.detail);
  core::Parked fact{lease, done, outcome.detail, outcome.host_bytes, outcome.kind == ParkOutcome::Kind::undone};
  fact.may_be_by_chance = outcome.code == "shared_memory";
  if (outcome.code == "not_parkable" || fact.may_be_by_chance) fact.unfit = core::Unfit::never;
  if (outcome.code == "owner_must_vouch") fact.unfit = core::Unfit::unvouched;
  fact.stuck = outcome.code == "stuck";
  fact.hindrance = hindrance_in(outcome);
  const bool by_driver = method == core::PauseMethod::driver;
  if (by_driver && driver_away_.lasts(outcome, options_.rules.cooldown, clock_.now()))
    fact.hindrance = core::Hindrance::driver;
  fact.hint = park_hint(outcome.code);
  tick(fact);
}

// What it took while it was paused is parked too, if anything can.
void Engine::pause_again(LeaseId lease) {
  const core::Lease* known = state_.find(lease);
  if (known == nullptr) return;
  tick(core::Pause{lease, 0, {core::PauseCauseKind::allocated_while_paused}, host_memory(known), /*again=*/true});
}

// --- back again

void Engine::unpark(const core::Unpark& order) {
  const LeaseId lease = order.lease;
  // Its program has said that it goes on while this order waited for its commit: what it is told now is no repetition,
  // but could take back what is asked of it next.
  const core::Lease* known = state_.find(lease);
  if (known != nullptr && known->state != core::LeaseState::resuming) return;
  if (parker_.busy(lease) && !mutant(Mutant::two_orders_at_once)) {
    if (mutant(Mutant::returns_ask_again)) return boost::asio::post(io_, [this, order] { unpark(order); });
    if (!mutant(Mutant::returns_wait_for_nobody)) unparks_waiting_.insert_or_assign(lease, order);
    return;
  }
  begin_moving(lease);
  if (order.method != core::PauseMethod::driver) return tell_to_go_on(order);
  parker_.unpark(lease, order.locked_processes ? *order.locked_processes : tree_of(lease), room_for(lease),
                 order.give_up, [this, order, epoch = store_epoch_](const ParkOutcome& outcome) {
                   if (const auto waiting = unparks_waiting_.extract(order.lease)) return unpark(waiting.mapped());
                   if (epoch != store_epoch_) return;
                   const bool tell = order.told && !mutant(Mutant::restored_is_running);
                   if (tell && outcome.kind == ParkOutcome::Kind::done) return tell_to_go_on(order);
                   unparked(order.lease, outcome);
                 });
}

void Engine::tell_to_go_on(const core::Unpark& order) {
  const core::Lease* known = state_.find(order.lease);
  if (known == nullptr || !order.told) return unparked(order.lease, {.kind = ParkOutcome::Kind::done});
  cooperation_.resume(*known, order.at_most,
                      [this, lease = order.lease, epoch = store_epoch_](const ParkOutcome& outcome) {
                        if (epoch == store_epoch_) unparked(lease, outcome);
                      });
}

void Engine::unparked(LeaseId lease, const ParkOutcome& outcome) {
  using How = core::Unparked::How;
  How how = How::not_yet;
  if (outcome.kind == ParkOutcome::Kind::done) how = How::runs;
  else if (mutant(Mutant::unknown_is_running) && outcome.kind == ParkOutcome::Kind::unknown) how = How::runs;
  else if (outcome.kind == ParkOutcome::Kind::final) how = How::never;
  if (how != How::runs) log::warn("{}: its program does not run again: {}", to_string(lease), outcome.detail);
  const core::Lease* known = state_.find(lease);
  const auto host = known != nullptr ? std::optional(host_memory(known)) : std::nullopt;
  core::Unparked fact{lease, how, outcome.detail, host, outcome.code == "no_room", outcome.code};
  fact.nothing_parked = how == How::never && outcome.parked.empty();
  tick(fact);
  if (how == How::runs) withdraw_if_gone(lease);
}

// Who said how the program yields may have ended meanwhile; told to go on it need not be any more.
void Engine::withdraw_if_gone(LeaseId lease) {
  const core::Lease* known = state_.find(lease);
  const bool told = known != nullptr && known->cooperation && known->cooperation->process;
  if (told && !programs_.lives(known->cooperation->process)) tick(core::Cooperate{lease});
}

// --- programs that yield by themselves

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
  intend(std::move(plan), now, remembered_answer(remember, answer, now));
  return answer;
}

}  // namespace sublet::engine
