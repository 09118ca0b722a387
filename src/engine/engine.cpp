// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "base/log.h"
#include "explain/dry_run.h"
#include "proc/exit_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::engine {
namespace {

// A loop that does not run for this long was stopped: no load delays it so much.
Duration standstill(const core::Rules& rules) {
  return std::max<Duration>(rules.reconnect / 3, std::chrono::seconds(1));
}

// The end of a program, with the time from its keeper's record.
core::ProgramEnded recorded(core::ProgramEnded ended, const core::Lease& lease) {
  if (ended.at || lease.owner.exit_record.empty()) return ended;
  if (const auto record = proc::read_exit_record(lease.owner.exit_record, lease.uid)) ended.at = record->ended_at;
  return ended;
}

}  // namespace

// --- the tick ---

// Deadlines that passed during a clock gap must not fire before the affected clients could be heard: all deadlines move
// by that time.
Time Engine::notice() {
  const auto gap = clock_.look(standstill(options_.rules));
  const Time now = clock_.looked_at();
  if (!gap) return now;
  observer_.forgive(gap->asleep + gap->stood_still);
  core::Plan plan = core::step(state_, options_.rules, core::ClockGap{gap->asleep, gap->stood_still}, now);
  if (gap->asleep > Duration::zero()) {
    commits_.store_offset_again();
    pending_.asleep = gap->asleep;
    pending_.stores = true;
  }
  intend(std::move(plan), now);
  return now;
}

void Engine::beat() {
  heartbeat_->set(standstill(options_.rules) / 2, [this] {
    { const Transaction transaction(*this); }
    beat();
  });
}

void Engine::tick(const core::Fact& fact) {
  const Transaction transaction(*this);
  std::map<LeaseId, Ends::Unstored> kills;
  (void)take(fact, [&](const core::Plan& plan) { kills = executor_.ends().kills_in(plan, clock_.now()); });
  for (auto& [lease, kill] : kills) executor_.ends().await(lease, std::move(kill));
}

Result<LeaseId> Engine::take(const core::Fact& fact, const std::function<void(core::Plan&)>& look) {
  const Transaction transaction(*this);
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  if (look) look(plan);
  Result<LeaseId> outcome = plan.outcome;
  intend(std::move(plan), now);
  return outcome;
}

Result<Answered> Engine::request(const core::Fact& fact, const Remember& remember, const Answer& answer) {
  Ends& ends = executor_.ends();
  core::Fact timed = fact;
  if (auto* ended = std::get_if<core::ProgramEnded>(&timed)) {
    const core::Lease* lease = core::find(state_, ended->lease);
    // Its keeper reports an end from before the daemon's start.
    if (lease != nullptr && lease->granted_at < clock_.started_at()) *ended = with_time(recorded(*ended, *lease));
  }
  if (const Status may = ends.may_take(fact); !may) {
    const auto ended = ends.decide(fact, may.error());
    return ended ? ends.not_stored(*ended) : ended.error();
  }
  const Transaction transaction(*this);
  const Time now = notice();
  if (const auto* submit = std::get_if<core::Submit>(&fact); submit != nullptr && !submit->may_queue)
    if (const Status may = explain::would_start(state_, options_.rules, *submit, now); !may) return may.error();
  core::Plan plan = core::step(state_, options_.rules, timed, now);
  if (!plan.outcome) {
    Error refusal = plan.outcome.error();
    intend(std::move(plan), now);  // a refused request may follow timers that were due
    return refusal;
  }
  const LeaseId id = *plan.outcome;
  const auto changed = std::find_if(plan.changed.rbegin(), plan.changed.rend(),
                                    [&](const core::Lease& lease) { return lease.id == id; });
  const core::Lease* lease = changed != plan.changed.rend() ? &*changed : find(id);
  if (lease == nullptr) return not_found(fmt::format("{} no longer exists", to_string(id)));
  Answered answered = answer(*lease);
  auto end = ends.end_in(fact, plan, now);
  intend(std::move(plan), now);
  const std::uint64_t stored_by = answer_with(remember, answered);
  ends.await(id, std::move(end));
  // The batch contains the lease of the request and the remembered answer. A queued lease's answer also depends on
  // other leases.
  if (!state_.queue.contains(id)) answered.after = std::max(stored_by, commits_.last_of(id));
  return answered;
}

Result<LeaseId> Engine::decide(const core::Fact& fact) {
  Ends& ends = executor_.ends();
  if (const Status may = ends.may_take(fact); !may) return ends.decide(fact, may.error());
  const Transaction transaction(*this);
  std::optional<Ends::Unstored> end;
  Result<LeaseId> outcome = take(fact, [&](const core::Plan& plan) { end = ends.end_in(fact, plan, clock_.now()); });
  if (end) ends.await(*outcome, std::move(end));
  return outcome;
}

Result<Answered> Engine::set_grant(const core::Grant& grant, const Remember& remember, Answered answer) {
  if (const Status may = may_decide(); !may) return may.error();
  const Transaction transaction(*this);
  (void)take(grant);
  answer_with(remember, answer);
  return answer;
}

// Updates the watches for the changed leases.
void Engine::follow_changes(const core::Plan& plan) {
  machine::Programs& programs = *machine_.programs;
  const auto settled = [this, &programs](LeaseId id) {
    programs.forget(id);
    executor_.ends().forget(id);
  };
  for (const core::Lease& lease : plan.changed) {
    if (lease.owner.kind == core::OwnerKind::process && !lease.ended()) programs.follow(lease, false);
    const bool group = lease.owner.kind == core::OwnerKind::group;
    if ((group || !lease.booked.empty()) && !lease.ended()) programs.book(lease);
    if (!lease.ended()) continue;
    const bool settles = core::find(state_, lease.id) != nullptr;
    // A process that was attached in the step that ended its lease is not followed yet, and its program must be ended.
    if (lease.stop_requested && lease.owner.process && settles) programs.follow(lease, false);
    recently_ended_.keep(lease);
    executor_.lease_ended(lease);
    if (settles) observer_.settles(lease.id);
    else settled(lease.id);
  }
  for (const LeaseId id : plan.settled) {
    observer_.settled(id);
    settled(id);
  }
}

const core::Lease* Engine::find(LeaseId id) const {
  if (const core::Lease* live = core::find(state_, id)) return live;
  return recently_ended_.find(id);
}

void Engine::arm(Time wake_at) {
  if (wake_at == armed_for_) return;
  armed_for_ = wake_at;
  if (wake_at == Time::never()) return timer_->cancel();
  Duration left = std::max(wake_at - clock_.now(), Duration::zero());
  timer_->set(left + std::chrono::milliseconds(1), [this] {
    armed_for_ = Time::never();
    tick(core::Tick{});
  });
}

// --- life ---

Engine::Engine(boost::asio::io_context& io, store::Store& store, Machine machine, Options options)
    : options_(std::move(options)),
      machine_(std::move(machine)),
      clock_(*machine_.clock),
      commits_(io, store, machine_, options_,
               {.ready = [this](const AfterCommit& effects) { start(effects); },
                .committed =
                    [this](std::uint64_t sequence) {
                      executor_.ends().committed(sequence);
                      capabilities_.committed(sequence);
                    },
                .failed =
                    [this](const std::vector<LeaseId>& ends) {
                      ends_in_doubt_.insert(ends.begin(), ends.end());
                      executor_.store_failed();
                    },
                .reopen = [this] { reopen(); },
                .warned = [this] { tell_changes(); }}),
      executor_(*this, machine_, io),
      observer_(*this, machine_, io),
      access_(*this, io),
      capabilities_(*this, machine_, io),
      timer_(machine_.alarm()),
      heartbeat_(machine_.alarm()),
      safe_mode_alarm_(machine_.alarm()) {}

Engine::~Engine() = default;

// The keeper's record tells when a program ended while no daemon ran. Otherwise the daemon knows.
core::ProgramEnded Engine::with_time(core::ProgramEnded ended) const {
  if (ended.at && *ended.at < clock_.started_at()) ended.at = std::max(*ended.at, clock_.earlier_until());
  else ended.at.reset();
  return ended;
}

Status Engine::start() {
  watch_safe_mode();
  const Status watched = machine_.programs->open(
      {.ended = [this](const core::ProgramEnded& ended) { tick(with_time(ended)); },
       .unkillable = [this](LeaseId lease, const std::string& why) { executor_.ends().not_killed(lease, why); },
       .keeper_lost = [this](LeaseId lease) { capabilities_.keeper_lost(lease); }});
  if (!watched) return watched;
  executor_.open();
  if (Status opened = open_store(); !opened) {
    if (opened.error().code == Code::InUse) return opened;  // another daemon holds the store, so this one must not run
    commits_.fail_open(opened.error());
  }
  observer_.start();
  machine_.actor->start([this] {
    machine_.programs->introduce_all();
    executor_.swap().keep_all();
  });
  beat();
  return {};
}

void Engine::stop() {
  if (store_problem().empty()) commits_.write_events({commits_.log().of_daemon("stopped", clock_.now())}, clock_.now());
  stopping_ = true;
  observer_.stop();
  machine_.actor->stop();
  for (const auto* alarm : {&timer_, &heartbeat_, &safe_mode_alarm_}) (*alarm)->cancel();
  capabilities_.stop();
  executor_.ends().stop();
  commits_.stop();
}

}  // namespace sublet::engine
