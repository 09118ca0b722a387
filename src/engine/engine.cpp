// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "base/log.h"
#include "base/mutants.h"
#include "core/commit_batches.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <csignal>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

// How long snapshots stay frequent after a change.
constexpr Duration busy_after_change = std::chrono::seconds(3);

// A loop that does not run for this long was stopped: no load delays it so much.
Duration standstill(const core::Rules& rules) {
  return std::max<Duration>(rules.reconnect / 3, std::chrono::seconds(1));
}

}  // namespace

// --- the tick ---

// Returns the time, and detects a loop that stood still. Deadlines that passed meanwhile must not fire before the
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
  intend(core::step(state_, options_.rules, core::ClockGap{asleep, stood_still}, now), now, std::nullopt);
  return now;
}

// The machine slept with all its programs. The clock has moved forward by this time, and the following step moves all
// deadlines too.
void Engine::fell_asleep(Duration asleep, Time now) {
  log::warn("the machine slept for {}; all deadlines are extended by that time", format_duration(asleep));
  woke_at_ns_ = now.ns - clock_.offset_ns();
  boot_id_stored_ = false;  // stored again with the new offset of the clock
  if (store_problem_.empty()) write_events({log_.of_daemon("woke", now, asleep)}, now);
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
  intend(std::move(plan), now, std::nullopt);
}

Result<Answered> Engine::request(const core::Fact& fact, const Remember& remember, const Answer& answer) {
  if (const Status may = may_decide(); !may) return may.error();
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  if (!plan.outcome) {
    Error refusal = plan.outcome.error();
    intend(std::move(plan), now, std::nullopt);  // a refused request may follow timers that were due
    return refusal;
  }
  const LeaseId id = *plan.outcome;
  const auto changed = std::find_if(plan.changed.rbegin(), plan.changed.rend(),
                                    [&](const core::Lease& lease) { return lease.id == id; });
  const core::Lease* lease = changed != plan.changed.rend() ? &*changed : find(id);
  if (lease == nullptr) return not_found(fmt::format("{} no longer exists", to_string(id)));
  Answered answered = answer(*lease);
  const std::uint64_t first = intend(std::move(plan), now, remembered_answer(remember, answered, now));
  // The first batch contains the lease of the request and the remembered answer. A queued lease's answer also depends
  // on other leases.
  if (!state_.queue().contains(id)) answered.after = std::max(first, intended_of(id));
  return answered;
}

// Hands the plan to the store; its effects start when it is durable. Without a usable store the plan is dropped, and
// reconcile() starts from the stored state. Returns the sequence of its first batch; 0: nothing was to be stored.
std::uint64_t Engine::intend(core::Plan plan, Time now, std::optional<store::Remembered> remembered) {
  arm(plan.wake_at);
  if (!store_problem_.empty()) return 0;
  reach(plan.transitions, Failpoints::decided);
  follow_changes(plan);
  counters_.observe(plan, now);
  for (Capability* capability : capabilities_) capability->decided(plan, now);
  Rows rows = take_rows();
  wake_capabilities();
  const bool to_store = !plan.changed.empty() || !plan.reasons.empty() || !plan.settled.empty() ||
                        !plan.grants.empty() || !plan.records.empty() || !plan.learned.empty() || !rows.empty() ||
                        remembered;
  if (to_store) busy_until_ = now + busy_after_change;
  std::uint64_t first = 0;
  bool later = false;
  core::each_commit_batch(std::move(plan), options_.portion, [&](core::Plan portion) {
    if (std::exchange(later, true)) reach(portion.transitions, Failpoints::decided);
    AfterCommit next = what_follows(portion);
    if (mutant(Mutant::signals_before_durable))
      for (const core::Action& action : next.actions)
        if (std::holds_alternative<core::SignalProgram>(action)) perform(action);
    if (to_store) write(std::move(portion), now, std::exchange(remembered, std::nullopt), std::exchange(rows, {}));
    if (to_store && first == 0) first = intended_;
    reach(next.transitions, Failpoints::queued);
    next.sequence = intended_;
    if (committed_ >= intended_ || mutant(Mutant::done_before_durable)) start(next);
    else if (!next.nothing()) after_commit_.push_back(std::move(next));
  });
  pace_probe(now);
  return first;
}

// Collects the effects of a plan. The leases are moved to the store and not copied, because there may be thousands.
Engine::AfterCommit Engine::what_follows(core::Plan& plan) {
  AfterCommit next;
  next.changed.reserve(plan.changed.size());
  for (const core::Lease& lease : plan.changed) {
    next.changed.push_back(lease.id);
    if (!lease.ended()) continue;
    // Only after the end is stored. If the end is lost with the store, the lease stays with its holders and its keeper,
    // and its exit record is still needed.
    next.ended.push_back(lease.id);
    if (!lease.owner.exit_record.empty()) next.done_records.push_back(lease.owner.exit_record);
  }
  next.actions = std::move(plan.actions);
  next.transitions = plan.transitions;
  return next;
}

void Engine::write(core::Plan plan, Time now, std::optional<store::Remembered> remembered, Rows rows) {
  std::vector<EventLog::Event> events = log_.of_plan(plan, [this](LeaseId id) { return find(id); });
  std::vector<LeaseId> changed;
  changed.reserve(plan.changed.size());
  for (const core::Lease& lease : plan.changed) changed.push_back(lease.id);
  store::Batch batch{.changed = std::move(plan.changed),
                     .reasons = std::move(plan.reasons),
                     .remembered = std::move(remembered),
                     .settled = std::move(plan.settled),
                     .boot_id = std::nullopt,
                     .events = events,
                     .grants = std::move(plan.grants),
                     .life = std::nullopt,
                     .now = now,
                     .transitions = std::move(plan.transitions)};
  std::ranges::move(add_rows(std::move(rows), batch), std::back_inserter(events));
  batch.learned = std::move(plan.learned);
  batch.records = std::move(plan.records);
  if (!std::exchange(boot_id_stored_, true)) {
    batch.boot_id = options_.boot_id;
    batch.clock_offset_ns = clock_.offset_ns();
  }
  intended_ = store_.intend(std::move(batch));
  log_.intended(intended_, events);
  for (const LeaseId id : changed) changed_in_[id] = intended_;
}

void Engine::reach(std::span<const std::string_view> transitions, std::string_view step) const {
  if (options_.failpoints != nullptr) options_.failpoints->at(transitions, step);
}

void Engine::start(const AfterCommit& next) {
  reach(next.transitions, Failpoints::told);
  for (const LeaseId id : next.changed) announce(id), let_swap(id);
  for (const LeaseId id : next.ended) {
    forget_holders(id);
    cooperation_.let_go(id);
  }
  for (const std::string& path : next.done_records) host_.remove_exit_record(path);
  for (const core::Action& action : next.actions) perform(action);
  reach(next.transitions, Failpoints::done);
}

void Engine::perform(const core::Action& action) {
  if (std::holds_alternative<core::TakeSnapshot>(action)) {
    probe_.take_now();
  } else if (const auto* wanted = std::get_if<core::SignalProgram>(&action)) {
    // A living keeper sees the lease and stops its program itself. A keeper may hang, so SIGKILL is also sent from
    // here.
    const bool keeper = programs_.keeper_alive(wanted->lease);
    const std::uint32_t asked_by = wanted->asked_by.value_or(actor::the_daemon);
    if (keeper && !wanted->kill) return programs_.wake_keeper(wanted->lease, asked_by);
    if (programs_.signal(wanted->lease, wanted->kill ? SIGKILL : SIGTERM, asked_by)) return;
    not_killed(wanted->lease, programs_.why_not_signalled(wanted->lease));
  } else if (const auto* yielding = std::get_if<core::Park>(&action)) {
    if (lives(yielding->lease)) park(*yielding);
  } else if (const auto* locking = std::get_if<core::Lock>(&action)) {
    may_lock(locking->lease, lives(locking->lease));
  } else if (const auto* returning = std::get_if<core::Unpark>(&action)) {
    if (lives(returning->lease)) unpark(*returning);
  } else if (const auto* asked = std::get_if<core::WeighHost>(&action)) {
    if (mutant(Mutant::weighings_get_lost) && committed_ < intended_) return;
    boost::asio::post(io_, [this, lease = asked->lease] { tick(core::HostWeighed{lease, host_memory(find(lease))}); });
  } else if (const auto* again = std::get_if<core::PauseAgain>(&action)) {
    asio::post(io_, [this, lease = again->lease] { pause_again(lease); });
  }
}

// Updates the watches for the changed leases.
void Engine::follow_changes(const core::Plan& plan) {
  for (const core::Lease& lease : plan.changed) {
    if (lease.owner.kind == core::OwnerKind::process && !lease.ended()) programs_.follow(lease, false);
    if (!lease.booked.empty() && !lease.ended()) programs_.book(lease);
    if (!lease.ended()) continue;
    // A process that was attached in the step that ended its lease is not followed yet, and its program must be ended.
    if (lease.stop_requested && lease.owner.process && state_.find(lease.id) != nullptr) programs_.follow(lease, false);
    keep_ended(lease);
    may_lock(lease.id, false);
    parker_.forget(lease.id);
    cooperation_.forget(lease);
    unparks_waiting_.erase(lease.id);
    if (state_.find(lease.id) != nullptr) settling_.insert(lease.id);
    else programs_.forget(lease.id);
  }
  for (const LeaseId id : plan.settled) {
    settling_.erase(id);
    programs_.forget(id);
  }
}

const core::Lease* Engine::find(LeaseId id) const {
  if (const core::Lease* live = state_.find(id)) return live;
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

Status Engine::start() {
  watch_safe_mode();
  Status watched =
      programs_.open({.ended = [this](const core::ProgramEnded& ended) { tick(ended); },
                      .unkillable = [this](LeaseId lease, const std::string& why) { not_killed(lease, why); }});
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
                    }});
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
  for (const auto* alarm : {&timer_, &reopen_timer_, &heartbeat_, &safe_mode_over_, &capability_alarm_})
    (*alarm)->cancel();
  store_.close();
}

Time Engine::now() const { return clock_.now(); }

}  // namespace sublet::engine
