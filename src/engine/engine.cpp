// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include "base/log.h"
#include "base/planted.h"
#include "core/portions.h"
#include "store/secret.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <csignal>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

constexpr auto reopen_interval = std::chrono::seconds(2);
// Of a plan that grants to thousands so many are stored, and told, at a time.
constexpr std::size_t portion_size = 256;
// Snapshots stay frequent this long after anything changed.
constexpr Duration busy_after_change = std::chrono::seconds(3);

// What the wall clock was moved by, and the machine slept, while no daemon ran counts against nobody: time limits move
// along. Returns what it changed; that must be stored with the new time line, or the next restart would not know.
std::vector<core::Lease> forgive_jump(std::vector<core::Lease>& leases, Duration jump) {
  std::vector<core::Lease> changed;
  for (core::Lease& lease : leases) {
    if (jump <= Duration::zero() || (!lease.expires_at && !lease.stop_at && !lease.parking)) continue;
    for (std::optional<Time>* due : {&lease.expires_at, &lease.stop_at})
      if (*due && **due < Time::never() - jump) *due = **due + jump;
    // From then on it is counted whether anybody is left who could come back.
    if (lease.parking && lease.parking->since < Time::never() - jump)
      lease.parking->since = lease.parking->since + jump;
    changed.push_back(lease);
  }
  return changed;
}

// A loop that does not come round for this long was stopped: no load makes it so slow.
Duration standstill(const core::Rules& rules) {
  return std::max<Duration>(rules.reconnect / 3, std::chrono::seconds(1));
}

// Tells the event numbers of one store from those of another that took its place.
std::string new_life() { return store::random_hex(4); }

}  // namespace

// --- the tick ---

// The time, and whether the loop stood still until now: what fell due meanwhile must not fire before those whom it
// concerns could be heard.
Time Engine::notice() {
  const Duration asleep = clock_.take_sleep();
  const Time now = clock_.now();
  const Duration away = now - std::exchange(alive_at_, now) - asleep;
  if (asleep > Duration::zero()) fell_asleep(asleep, now);
  else if (away <= standstill(options_.rules) || planted(Bug::standstills_go_unnoticed)) return now;
  else log::warn("this process did not run for {}; nothing expires for that", format_duration(away));
  intend(core::step(state_, options_.rules, core::Woke{asleep}, now), now, std::nullopt);
  return now;
}

// The machine slept, and with it whatever it runs. The time line has moved on by as much, and whatever runs out moves
// along in the step that follows.
void Engine::fell_asleep(Duration asleep, Time now) {
  log::warn("the machine slept for {}; nothing expires for that", format_duration(asleep));
  woke_at_ns_ = now.ns - clock_.offset_ns();
  boot_id_stored_ = false;  // stored again, with where the line lies now
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
    intend(std::move(plan), now, std::nullopt);  // a refusal may come after timers that were due
    return refusal;
  }
  const LeaseId id = *plan.outcome;
  const auto changed = std::find_if(plan.changed.rbegin(), plan.changed.rend(),
                                    [&](const core::Lease& lease) { return lease.id == id; });
  const core::Lease* lease = changed != plan.changed.rend() ? &*changed : find(id);
  if (lease == nullptr) return not_found(fmt::format("there is no {} any more", to_string(id)));
  Answered answered = answer(*lease);
  const std::uint64_t first = intend(std::move(plan), now, remembered_answer(remember, answered, now));
  // Its own lease and the remembered answer are in the first portion. Who waits in the queue is told of others, too.
  if (!state_.queue().contains(id)) answered.after = std::max(first, intended_of(id));
  return answered;
}

// Hands the plan to the store; what follows from it starts when it is durable. Without a usable store a plan can only
// be dropped: reconcile() starts again from what is stored. Returns the commit of its first portion; 0: none was
// needed.
std::uint64_t Engine::intend(core::Plan plan, Time now, std::optional<store::Remembered> remembered) {
  arm(plan.wake_at);
  if (!store_problem_.empty()) return 0;
  reach(plan.transitions, Failpoints::decided);
  follow_changes(plan);
  meter_.observe(plan, now);
  const bool to_store = !plan.changed.empty() || !plan.reasons.empty() || !plan.settled.empty() ||
                        !plan.grants.empty() || !plan.records.empty() || remembered;
  if (to_store) busy_until_ = now + busy_after_change;
  std::uint64_t first = 0;
  for (core::Plan& portion : core::portions(std::move(plan), portion_size)) {
    reach(portion.transitions, Failpoints::decided);
    AfterCommit next = what_follows(portion);
    if (to_store) write(std::move(portion), now, std::exchange(remembered, std::nullopt));
    if (to_store && first == 0) first = intended_;
    reach(next.transitions, Failpoints::queued);
    next.sequence = intended_;
    if (committed_ >= intended_ || planted(Bug::done_before_durable)) start(next);
    else if (!next.nothing()) after_commit_.push_back(std::move(next));
  }
  pace_probe(now);
  return first;
}

// Of a plan whose leases go to the store, which are not copied for that: it may be thousands.
Engine::AfterCommit Engine::what_follows(core::Plan& plan) {
  AfterCommit next;
  next.changed.reserve(plan.changed.size());
  for (const core::Lease& lease : plan.changed) {
    next.changed.push_back(lease.id);
    if (!lease.ended()) continue;
    // Only once the end is stored: one that is lost with the store leaves the lease to those who hold it, and to its
    // keeper, whose note has then done its work.
    next.ended.push_back(lease.id);
    if (!lease.owner.exit_record.empty()) next.done_records.push_back(lease.owner.exit_record);
  }
  next.actions = std::move(plan.actions);
  next.transitions = plan.transitions;
  return next;
}

void Engine::write(core::Plan plan, Time now, std::optional<store::Remembered> remembered) {
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
  for (const LeaseId id : next.changed) announce(id);
  for (const LeaseId id : next.ended) forget_holders(id);
  for (const std::string& path : next.done_records) host_.remove_exit_record(path);
  for (const core::Action& action : next.actions) perform(action);
  reach(next.transitions, Failpoints::done);
}

void Engine::perform(const core::Action& action) {
  if (std::holds_alternative<core::TakeSnapshot>(action)) {
    probe_.take_now();
  } else if (const auto* wanted = std::get_if<core::SignalProgram>(&action)) {
    // A keeper that lives sees the lease and asks its program itself. It may be deaf, so killing is done here too.
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
    boost::asio::post(io_, [this, lease = asked->lease] { tick(core::HostWeighed{lease, host_memory(find(lease))}); });
  } else if (const auto* again = std::get_if<core::PauseAgain>(&action)) {
    asio::post(io_, [this, lease = again->lease] { pause_again(lease); });
  }
}

// What must be watched follows from the leases as they now are.
void Engine::follow_changes(const core::Plan& plan) {
  for (const core::Lease& lease : plan.changed) {
    if (lease.owner.kind == core::OwnerKind::process && !lease.ended()) programs_.follow(lease, false);
    if (!lease.booked.empty() && !lease.ended()) programs_.book(lease);
    if (!lease.ended()) continue;
    // Attached in the very step in which it ended, it has not been followed yet, and its program is to be ended.
    if (lease.stop_requested && lease.owner.process && state_.find(lease.id) != nullptr) programs_.follow(lease, false);
    keep_ended(lease);
    if (planted(Bug::ends_forget_holders)) forget_holders(lease.id);
    may_lock(lease.id, false);
    parker_.forget(lease.id);
    cooperation_.forget(lease.id);
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
  const Duration left = std::max(wake_at - clock_.now(), Duration::zero());
  timer_->set(left + std::chrono::milliseconds(1), [this] {
    armed_for_ = Time::never();
    tick(core::Tick{});
  });
}

// --- commits ---

store::Events Engine::events() {
  const std::uint64_t epoch = ++store_epoch_;
  return {.committed =
              [this, epoch](std::uint64_t sequence) {
                asio::post(io_, [this, epoch, sequence] {
                  if (epoch == store_epoch_) committed(sequence);
                });
              },
          .failed =
              [this, epoch](const Error& error) {
                asio::post(io_, [this, epoch, error] {
                  if (epoch == store_epoch_) store_failed(error);
                });
              }};
}

void Engine::committed(std::uint64_t sequence) {
  committed_ = std::max(committed_, sequence);
  while (!after_commit_.empty() && after_commit_.front().sequence <= committed_) {
    const AfterCommit ready = std::move(after_commit_.front());
    after_commit_.pop_front();
    for (const LeaseId id : ready.changed) {
      const auto last = changed_in_.find(id);
      if (last != changed_in_.end() && last->second <= ready.sequence) changed_in_.erase(last);
    }
    start(ready);
  }
  if (log_.committed(planted(Bug::told_before_durable) ? intended_ : committed_)) {
    for (const auto& timer : followers_) timer->cancel();
  }
  while (!durable_waiters_.empty() && durable_waiters_.front().sequence <= committed_) {
    const DurableWaiter ready = std::move(durable_waiters_.front());
    durable_waiters_.pop_front();
    ready.resume(true);
  }
}

std::uint64_t Engine::intended_of(LeaseId lease) const {
  const auto last = changed_in_.find(lease);
  return last == changed_in_.end() || planted(Bug::changes_look_durable) ? 0 : last->second;
}

asio::awaitable<bool> Engine::durable(std::uint64_t sequence) {
  const std::uint64_t epoch = store_epoch_;
  if (!store_problem_.empty()) co_return false;
  if (committed_ >= sequence || planted(Bug::answered_before_durable)) co_return true;
  const bool done = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(bool)>(
      [this, sequence](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // Nearly always the last; who waits for an earlier portion does not stand behind who waits for all of it.
        const auto place = std::upper_bound(
            durable_waiters_.begin(), durable_waiters_.end(), sequence,
            [](std::uint64_t number, const DurableWaiter& waiter) { return number < waiter.sequence; });
        durable_waiters_.insert(
            place, {sequence, [shared](bool committed_in_time) { std::move (*shared)(committed_in_time); }});
      },
      asio::use_awaitable);
  co_return done&& epoch == store_epoch_;
}

// The fate of what was intended is unknown: nothing of it is acknowledged, and the state is read anew.
void Engine::store_failed(Error error) {
  store_problem_ = error.detail;
  store_problem_since_ = clock_.now();
  log::error("the store failed: {}. No leases are granted until it is back.", error.detail);
  after_commit_.clear();
  changed_in_.clear();
  for (auto& [lease, may] : std::exchange(locks_waiting_, {})) may(false);
  for (auto waiters = std::exchange(durable_waiters_, {}); DurableWaiter & waiter : waiters) waiter.resume(false);
  reconcile();
}

void Engine::reconcile() {
  if (stopping_) return;
  if (const Status opened = open_store(); !opened) {
    store_problem_ = opened.error().detail;
    return reopen_later();
  }
  log::info("the store is back: {} leases read", state_.leases().size());
  probe_.take_now();
}

void Engine::reopen_later() {
  reopen_timer_->set(reopen_interval, [this] { reconcile(); });
}

Status Engine::open_store() {
  auto loaded = store_.open(events());
  if (!loaded) return loaded.error();
  // One time line over restarts: if the wall clock was set back meanwhile, go on from the last time that was stored.
  if (!planted(Bug::time_goes_back)) clock_.go_on_from(loaded->last_time);
  const Time now = alive_at_ = clock_.now();
  std::map<core::Consumer, core::ConsumerHistory> history;
  for (auto& [consumer, runs] : loaded->history)
    history[consumer] = {std::move(runs.runs), runs.peak_used, runs.last_used};
  const bool rebooted = !loaded->boot_id.empty() && loaded->boot_id != options_.boot_id;
  std::vector<core::Reason> reasons;
  std::vector<core::Lease> lost;
  if (rebooted) {
    for (core::Lease& lease : loaded->leases) {
      if (lease.ended()) continue;
      lease.state = core::LeaseState::ended;
      lease.end_reason = core::EndReason::lost;
      lease.ended_at = now;
      lease.count_parked(now);
      ++lease.generation;
      reasons.push_back(
          {lease.id, now, "ended", "lost: the machine was rebooted, so its program and its VRAM are gone"});
    }
    lost = std::exchange(loaded->leases, {});
  }
  core::Plan restart;
  if (!rebooted && loaded->clock_offset_ns) {
    restart.changed = forgive_jump(loaded->leases, Duration(clock_.offset_ns() - *loaded->clock_offset_ns));
    restart.transitions = {"moved"};
  }
  // An id that was given out and not stored is not given out again: somebody may still hold it.
  const std::uint64_t last_id =
      planted(Bug::lost_ids_come_again) ? loaded->last_id : std::max(loaded->last_id, state_.last_id());
  std::set<core::Consumer> grants;
  for (core::Grant& grant : loaded->grants) grants.insert({grant.uid, std::move(grant.consumer)});
  state_ = core::State::load(std::move(loaded->leases), std::move(history), last_id, options_.rules, now, loaded->moves,
                             std::move(grants), loaded->records);
  committed_ = intended_ = 0;
  boot_id_stored_ = false;
  life_stored_ = !loaded->life.empty();
  log_.open(loaded->last_event, life_stored_ ? loaded->life : new_life());
  const std::optional<Warning> was_down =
      store_problem_.empty() ? std::nullopt : std::optional(store_warning(store_problem_, store_problem_since_));
  store_problem_.clear();
  settling_.clear();
  unparks_waiting_.clear();
  recently_ended_.clear();
  recently_ended_order_.clear();
  if (!lost.empty()) {
    for (const core::Lease& lease : lost) restart.settled.push_back(lease.id);
    restart.changed = std::move(lost);
    restart.reasons = std::move(reasons);
    restart.transitions = {core::to_string(core::EndReason::lost)};
  }
  if (!restart.changed.empty()) intend(std::move(restart), now, std::nullopt);
  meter_.reset(state_, now);
  tokens_.clear();
  for (store::AccessToken& token : loaded->tokens) tokens_.emplace(token.number, std::move(token));
  last_token_ = std::max(loaded->last_token, last_token_);
  tell_opened(was_down, now);
  adopt(now);
  return {};
}

// Takes up again what lived on while the daemon, or its store, was away.
void Engine::adopt(Time now) {
  const auto known = [this](LeaseId id) { return state_.find(id) != nullptr; };
  programs_.forget_others(known);
  host_.sweep_exit_records(options_.exit_dir, known);
  std::vector<core::Lease> leases;  // a copy: following one may end another
  for (const auto& [id, lease] : state_.leases()) {
    if (lease.ended()) settling_.insert(id);
    leases.push_back(lease);
  }
  for (const core::Lease& lease : leases) {
    if (lease.owner.kind == core::OwnerKind::process) programs_.follow(lease, true);
    if (!lease.booked.empty()) programs_.book(lease);
  }
  std::vector<LeaseId> held;  // a tick may end leases, and with them their holders
  for (const auto& [lease, sessions] : holders_) held.push_back(lease);
  for (const LeaseId lease : held) {
    const core::Lease* live = state_.find(lease);
    if (live == nullptr || live->ended()) forget_holders(lease);
    else if (holders_.contains(lease)) tick(core::HeldChanged{lease, true});
  }
  tick(core::Tick{});
  for (const auto& [lease, timer] : watchers_) timer->cancel();  // whoever waits looks at what is there now
  pace_probe(now);
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
      alive_at_(started_at_) {}

Engine::~Engine() = default;

Status Engine::start() {
  watch_safe_mode();
  Status watched =
      programs_.open({.ended = [this](const core::ProgramEnded& ended) { tick(ended); },
                      .unkillable = [this](LeaseId lease, const std::string& why) { not_killed(lease, why); }});
  if (!watched) return watched;
  // In microseconds of the time line: greater than whatever an earlier run gave.
  cooperation_.open(static_cast<std::uint64_t>(clock_.now().ns / 1000),
                    {.told = [this](LeaseId lease) { announce(lease); },
                     .runs_late = [this](LeaseId lease) { tick(core::Unparked{lease}); }});
  parker_.when_returned([this](LeaseId lease) { tick(core::DriverReturned{lease}); });
  if (Status opened = open_store(); !opened) {
    if (opened.error().code == Code::InUse) return opened;  // another daemon has it: not ours to run beside
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
                      nothing_weighed(problem);
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
  actor_.stop();
  for (const auto* alarm : {&timer_, &reopen_timer_, &heartbeat_, &safe_mode_over_}) (*alarm)->cancel();
  store_.close();
}

Time Engine::now() const { return clock_.now(); }

}  // namespace sublet::engine
