// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "base/log.h"
#include "base/mutants.h"
#include "proc/exit_record.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <csignal>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

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

// Returns the time, and detects a clock gap. Deadlines that passed meanwhile must not fire before the
// affected clients could be heard.
Time Engine::notice() {
  const Duration asleep = clock_.take_sleep();
  const Time now = clock_.now();
  const Duration away = now - std::exchange(alive_at_, now) - asleep;
  if (asleep > Duration::zero()) fell_asleep(asleep, now);
  else if (away <= standstill(options_.rules) || mutant(Mutant::standstills_go_unnoticed)) return now;
  else log::warn("the daemon stood still for {}; all deadlines are extended by that time", format_duration(away));
  undisturbed_since_ = now;
  const Duration stood_still = asleep > Duration::zero() ? Duration::zero() : away;
  activities_.forgive(asleep + stood_still);
  lost_time_ = lost_time_ + asleep + stood_still;
  time_asleep_ = time_asleep_ + asleep;
  intend(core::step(state_, options_.rules, core::ClockGap{asleep, stood_still}, now), now);
  return now;
}

// The machine slept with all its programs. The clock has moved forward by this time, and the following step moves all
// deadlines too.
void Engine::fell_asleep(Duration asleep, Time now) {
  log::warn("the machine slept for {}; all deadlines are extended by that time", format_duration(asleep));
  woke_at_ns_ = now.ns - clock_.offset_ns();
  boot_id_stored_ = false;  // stored again with the new offset of the clock
  if (!store_problem_.empty()) return;
  hand_over();
  write_events({log_.of_daemon("woke", now, asleep)}, now);
}

void Engine::beat() {
  heartbeat_->set(standstill(options_.rules) / 2, [this] {
    (void)notice();
    beat();
  });
}

void Engine::tick(const core::Fact& fact) {
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  auto kills = kills_in(plan, now);
  intend(std::move(plan), now);
  for (auto& [lease, kill] : kills) await_end(lease, std::move(kill));
}

Result<Answered> Engine::request(const core::Fact& fact, const Remember& remember, const Answer& answer) {
  core::Fact timed = fact;
  if (auto* ended = std::get_if<core::ProgramEnded>(&timed)) {
    const core::Lease* lease = core::find(state_, ended->lease);
    // Its keeper reports an end from before the daemon's start.
    if (lease != nullptr && lease->granted_at < started_at_) *ended = with_time(recorded(*ended, *lease));
  }
  if (const Status may = may_take(fact); !may) {
    const auto ended = decide_end(fact, may.error());
    return ended ? not_stored(*ended) : ended.error();
  }
  const Transaction transaction(*this);
  const Time now = notice();
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
  auto end = end_in(fact, plan, now);
  intend(std::move(plan), now);
  const std::uint64_t stored_by = answer_with(remember, answered);
  await_end(id, std::move(end));
  // The batch contains the lease of the request and the remembered answer. A queued lease's answer also depends on
  // other leases.
  if (!state_.queue.contains(id)) answered.after = std::max(stored_by, intended_of(id));
  return answered;
}

void Engine::reach(std::span<const std::string_view> transitions, std::string_view step) const {
  if (options_.failpoints != nullptr) options_.failpoints->at(transitions, step);
}

void Engine::perform(const core::Action& action) {
  if (std::holds_alternative<core::TakeSnapshot>(action)) {
    probe_.take_now();
  } else if (const auto* wanted = std::get_if<core::SignalProgram>(&action)) {
    // A living keeper sees the lease and stops its program itself. A keeper may hang, so SIGKILL is also sent from
    // here.
    const bool keeper = programs_.keeper_alive(wanted->lease);
    const std::uint32_t asked_by = wanted->asked_by.value_or(actor::the_daemon);
    if (!wanted->kill) asked_to_end_.try_emplace(wanted->lease, Asked{!keeper, clock_.now()});
    if (keeper && !wanted->kill) return programs_.wake_keeper(wanted->lease, asked_by);
    if (was_sent(*wanted)) return;
    if (programs_.signal(wanted->lease, wanted->kill ? SIGKILL : SIGTERM, asked_by)) return;
    not_killed(wanted->lease, programs_.why_not_signalled(wanted->lease));
  } else if (const auto* yielding = std::get_if<core::Park>(&action)) {
    if (lives(yielding->lease)) park(*yielding);
  } else if (const auto* locking = std::get_if<core::Lock>(&action)) {
    may_lock(locking->lease, lives(locking->lease));
  } else if (const auto* returning = std::get_if<core::Unpark>(&action)) {
    if (lives(returning->lease)) unpark(*returning);
  }
}

// Updates the watches for the changed leases.
void Engine::follow_changes(const core::Plan& plan) {
  for (const core::Lease& lease : plan.changed) {
    if (lease.owner.kind == core::OwnerKind::process && !lease.ended()) programs_.follow(lease, false);
    const bool group = lease.owner.kind == core::OwnerKind::group;
    if ((group || !lease.booked.empty()) && !lease.ended()) programs_.book(lease);
    if (!lease.ended()) continue;
    // A process that was attached in the step that ended its lease is not followed yet, and its program must be ended.
    if (lease.stop_requested && lease.owner.process && core::find(state_, lease.id) != nullptr)
      programs_.follow(lease, false);
    keep_ended(lease);
    may_lock(lease.id, false);
    parker_.forget(lease.id);
    cooperation_.forget(lease);
    unparks_waiting_.erase(lease.id);
    if (core::find(state_, lease.id) != nullptr) settling_.insert(lease.id);
    else programs_.forget(lease.id), asked_to_end_.erase(lease.id);
  }
  for (const LeaseId id : plan.settled) {
    settling_.erase(id);
    asked_to_end_.erase(id);
    programs_.forget(id);
  }
}

const core::Lease* Engine::find(LeaseId id) const {
  if (const core::Lease* live = core::find(state_, id)) return live;
  const auto ended = recently_ended_.find(id);
  return ended == recently_ended_.end() ? nullptr : &ended->second;
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

Engine::Engine(asio::io_context& io, store::Store& store, Machine machine, Options options)
    : io_(io),
      store_(store),
      options_(std::move(options)),
      machine_(std::move(machine)),
      clock_(*machine_.clock),
      host_(*machine_.host),
      probe_(*machine_.probe),
      actor_(*machine_.actor),
      programs_(*machine_.programs),
      parker_(*machine_.parker),
      cooperation_(*machine_.cooperation),
      started_at_(clock_.now()),
      undisturbed_since_(started_at_),
      alive_at_(started_at_) {}

Engine::~Engine() = default;

// The keeper's record tells when a program ended while no daemon ran. Otherwise the daemon knows.
core::ProgramEnded Engine::with_time(core::ProgramEnded ended) const {
  if (ended.at && *ended.at < started_at_) ended.at = std::max(*ended.at, earlier_until_);
  else ended.at.reset();
  return ended;
}

Status Engine::start() {
  watch_safe_mode();
  Status watched =
      programs_.open({.ended = [this](const core::ProgramEnded& ended) { tick(with_time(ended)); },
                      .unkillable = [this](LeaseId lease, const std::string& why) { not_killed(lease, why); },
                      .keeper_lost =
                          [this](LeaseId lease) {
                            for (Capability* capability : capabilities_) capability->keeper_lost(lease);
                            call_capabilities();
                          }});
  if (!watched) return watched;
  cooperation_.open({.told = [this](LeaseId lease) { announce(lease); },
                     .runs_late =
                         [this](LeaseId lease) {
                           tick(core::Unparked{lease});
                           withdraw_if_gone(lease);
                         }});
  parker_.when_returned([this](LeaseId lease) { tick(core::DriverReturned{lease}); });
  if (Status opened = open_store(); !opened) {
    if (opened.error().code == Code::InUse) return opened;  // another daemon holds the store, so this one must not run
    store_problem_ = opened.error().detail;
    if (!opened.error().hint.empty()) store_problem_ += " (" + opened.error().hint + ")";
    store_problem_since_ = clock_.now();
    log::error("the store cannot be used: {}. No leases are granted.", store_problem_);
    reopen_later();
  }
  probe_.start({.snapshot = [this](gpu::GpuSnapshot snapshot,
                                   std::int64_t asked_ns) { on_snapshot(std::move(snapshot), asked_ns); },
                .problem =
                    [this](const std::string& problem) {
                      tick(core::SnapshotFailed{problem});
                      fail_measurements(problem);
                      end_looks(INT64_MAX);
                      tell_changes();
                    },
                .late =
                    [this](const std::string& problem) {
                      tick(core::SnapshotFailed{problem});
                      end_looks(INT64_MAX);
                      tell_changes();
                    }});
  await_first_reading();
  actor_.start([this] {
    programs_.introduce_all();
    keep_all_from_swap();
  });
  beat();
  return {};
}

void Engine::stop() {
  if (store_problem_.empty()) write_events({log_.of_daemon("stopped", clock_.now())}, clock_.now());
  stopping_ = true;
  probe_.stop();
  end_looks(INT64_MAX);
  actor_.stop();
  for (const auto* alarm : {&timer_, &reopen_timer_, &heartbeat_, &safe_mode_over_, &capability_alarm_, &signals_alarm_,
                            &commit_alarm_, &first_reading_alarm_})
    (*alarm)->cancel();
  store_.close();
}

Time Engine::now() const { return clock_.now(); }

}  // namespace sublet::engine
