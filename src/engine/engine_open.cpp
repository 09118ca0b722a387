// SPDX-License-Identifier: Apache-2.0
// Reading the state: at the start, and after a failure of the store.
#include "base/log.h"
#include "base/mutants.h"
#include "engine/engine.h"
#include "store/plan_row.h"

#include <utility>

namespace sublet::engine {
namespace {

// While no daemon ran, the wall clock may have been moved and the machine may have slept. All deadlines move by this
// time. The start of waiting does not move, so that places in the queue stay. Returns the changed leases; they must be
// stored with the new offset of the clock, or the next restart would move them again.
std::vector<core::Lease> forgive_jump(std::vector<core::Lease>& leases, Duration jump) {
  std::vector<core::Lease> changed;
  if (jump <= Duration::zero()) return changed;
  for (core::Lease& lease : leases) {
    bool moved = false;
    const auto move = [&](std::optional<Time>& due) {
      if (!due) return;
      if (*due < Time::never() - jump) *due = *due + jump;
      moved = true;
    };
    move(lease.stop_at);
    if (!lease.parking) move(lease.expires_at);  // the time of a paused lease stands still anyhow
    if (lease.parking) move(lease.parking->orphaned_since);
    if (moved) changed.push_back(lease);
  }
  return changed;
}

// Ends all leases of an earlier boot: their programs and their VRAM are gone.
core::Plan lose_all(std::vector<core::Lease> leases, Time now) {
  core::Plan plan;
  if (leases.empty()) return plan;
  for (core::Lease& lease : leases) {
    plan.settled.push_back(lease.id);
    if (lease.ended()) continue;
    lease.state = core::LeaseState::ended;
    lease.end_reason = core::EndReason::lost;
    lease.ended_at = now;
    lease.count_parked(now);
    // No bytes of the lease are parked any more, and it waits for nothing.
    lease.parking.reset();
    lease.resize.reset();
    lease.preemption_request.reset();
    lease.offer_ends_at.reset();
    lease.unheld_since.reset();
    ++lease.generation;
    plan.reasons.push_back(
        {lease.id, now, core::ReasonKind::machine_rebooted, core::args("end", core::to_string(core::EndReason::lost))});
  }
  plan.changed = std::move(leases);
  plan.transitions = {core::to_string(core::EndReason::lost)};
  return plan;
}

}  // namespace

void Engine::reopen() {
  if (stopping_) return;
  (void)notice();  // a sleep of the machine has moved the clock, and counts as time without a daemon
  if (const Status opened = open_store(); !opened) return commits_.fail_open(opened.error());
  log::info("the store works again: read {} leases", state_.leases.by_id.size());
  observer_.take_snapshot();
}

Status Engine::open_store() {
  auto loaded = commits_.open();
  if (!loaded) return loaded.error();
  clock_.go_on_from(loaded->last_time);
  const Time now = clock_.now();
  // Microseconds of that clock: greater than any number of an earlier run.
  executor_.cooperation().number_from(static_cast<std::uint64_t>(now.ns / 1000));
  std::map<core::Consumer, core::ConsumerHistory> history;
  for (auto& [consumer, runs] : loaded->history)
    history[consumer] = {std::move(runs.runs), runs.peak_used, runs.last_used};
  const bool rebooted = !loaded->boot_id.empty() && loaded->boot_id != options_.boot_id;
  core::Plan restart;
  if (rebooted) {
    restart = lose_all(std::exchange(loaded->leases, {}), now);
  } else if (loaded->clock_offset_ns) {
    restart.changed = forgive_jump(loaded->leases, Duration(clock_.offset_ns() - *loaded->clock_offset_ns));
    restart.transitions = {"deadlines_extended_at_start"};
  }
  // An id that was given but not stored is not given again, because a client may still use it.
  const std::uint64_t last_id =
      mutant(Mutant::lost_ids_come_again) ? loaded->last_id : std::max(loaded->last_id, state_.leases.last_id);
  std::set<core::Consumer> grants;
  for (core::Grant& grant : loaded->grants) grants.insert({grant.uid, std::move(grant.consumer)});
  state_ = core::State::load(std::move(loaded->leases), std::move(history), last_id, options_.rules, now, loaded->moves,
                             std::move(grants), loaded->records);
  projections_.forget();
  core::restore_plans(state_, store::plans_in(loaded->rows), now);
  const std::optional<Warning> was_down = commits_.go_on_from(*loaded);
  observer_.loaded();
  executor_.loaded();
  recently_ended_ = {};
  pending_ = {};
  capabilities_.loaded(*loaded, now);
  if (!restart.changed.empty()) intend(std::move(restart), now);
  counters_.reset(state_, now);
  access_.loaded(std::move(loaded->tokens), loaded->last_token);
  std::vector<EventLog::Event> events;
  EventLog& log = commits_.log();
  if (was_down) {  // could not be stored before
    events.push_back(log.of_warning(*was_down, true, was_down->since));
    events.push_back(log.of_warning(*was_down, false, now));
  }
  if (!std::exchange(told_start_, true)) events.push_back(log.of_daemon("started", now));
  hand_over();  // what the capabilities learned from the rows is in the first batch, which has the new boot id
  commits_.write_events(events, now);
  adopt();
  return {};
}

// Adopts leases that lived on while the daemon or its store was away.
void Engine::adopt() {
  machine::Programs& programs = *machine_.programs;
  const auto known = [this](LeaseId id) { return core::find(state_, id) != nullptr; };
  programs.forget_others(known);
  executor_.ends().forget_others(known);
  machine_.host->sweep_exit_records(options_.exit_dir, known);
  std::vector<core::Lease> leases;  // a copy, because following a lease may end another
  for (const auto& [id, lease] : state_.leases.by_id) {
    if (lease.ended()) observer_.settles(id);
    leases.push_back(lease);
  }
  for (const core::Lease& lease : leases) {
    const bool program = lease.owner.kind == core::OwnerKind::process;
    if (program) programs.follow(lease, true);
    if (!lease.booked.empty() || lease.owner.kind == core::OwnerKind::group) programs.book(lease);
    if (!lease.ended()) executor_.cooperation().adopt(lease);
    executor_.swap().end(lease.id);  // the order to yield may be lost with the store
  }
  // A commit that was reported as failed may have been kept.
  for (const LeaseId id : std::exchange(ends_in_doubt_, {})) {
    const core::Lease* live = core::find(state_, id);
    if (live == nullptr || live->ended()) executor_.cooperation().let_go(id);
  }
  executor_.swap().keep_all();
  // Before all other facts: limits and devices out of service hold from the first decision on.
  for (const core::Fact& fact : capabilities_.first_facts()) tick(fact);
  access_.tell_holders();
  executor_.ends().decide_again();
  tick(core::Tick{});
  access_.announce_all();  // all waiting calls look at the new state
  observer_.pace(now());
}

}  // namespace sublet::engine
