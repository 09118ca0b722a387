// SPDX-License-Identifier: Apache-2.0
// The engine and its store: commits and their waiters, and reading the state at a start and after a failure.
#include "engine/engine.h"

#include "base/log.h"
#include "base/mutants.h"
#include "store/plan_row.h"
#include "store/secret.h"

#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

constexpr auto reopen_interval = std::chrono::seconds(2);

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

// Distinguishes the event numbers of a store from those of a store that replaced it.
std::string new_life() { return store::random_hex(4); }

}  // namespace

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
  commit_came();
  while (!after_commit_.empty() && after_commit_.front().sequence <= committed_) {
    const AfterCommit ready = std::move(after_commit_.front());
    after_commit_.pop_front();
    for (const LeaseId id : ready.changed) {
      const auto last = changed_in_.find(id);
      if (last == changed_in_.end()) continue;
      if (last->second <= ready.sequence) changed_in_.erase(last);
    }
    start(ready);
  }
  end_is_stored(committed_);
  for (RowSource* source : row_sources_) source->committed(committed_);
  if (log_.committed(mutant(Mutant::told_before_durable) ? intended_ : committed_)) {
    wake_followers();
  }
  while (!durable_waiters_.empty() && durable_waiters_.front().sequence <= committed_) {
    const DurableWaiter ready = std::move(durable_waiters_.front());
    durable_waiters_.pop_front();
    ready.resume(true);
  }
}

std::uint64_t Engine::intended_of(LeaseId lease) const {
  const auto last = changed_in_.find(lease);
  return last == changed_in_.end() || mutant(Mutant::changes_look_durable) ? 0 : last->second;
}

asio::awaitable<bool> Engine::durable(std::uint64_t sequence) {
  const std::uint64_t epoch = store_epoch_;
  if (!store_problem_.empty()) co_return false;
  if (committed_ >= sequence || mutant(Mutant::answered_before_durable)) co_return true;
  const bool done = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(bool)>(
      [this, sequence](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // Nearly always the last place. A waiter for an earlier batch must not stand behind a waiter for a later one.
        const auto place = std::upper_bound(
            durable_waiters_.begin(), durable_waiters_.end(), sequence,
            [](std::uint64_t number, const DurableWaiter& waiter) { return number < waiter.sequence; });
        durable_waiters_.insert(
            place, {sequence, [shared](bool committed_in_time) { std::move (*shared)(committed_in_time); }});
      },
      asio::use_awaitable);
  co_return done&& epoch == store_epoch_;
}

// The fate of the intended batches is unknown. None is acknowledged, and the state is read again.
void Engine::store_failed(Error error) {
  store_problem_ = error.detail;
  store_problem_since_ = clock_.now();
  store_is_slow_ = false;
  log::error("the store failed: {}. No lease is granted until it works again.", error.detail);
  for (const AfterCommit& next : after_commit_) ends_in_doubt_.insert(next.ended.begin(), next.ended.end());
  after_commit_.clear();
  changed_in_.clear();
  ends_were_not_stored();
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
  log::info("the store works again: read {} leases", state_.leases.by_id.size());
  probe_.take_now();
}

void Engine::reopen_later() {
  reopen_timer_->set(reopen_interval, [this] { reconcile(); });
}

Status Engine::open_store() {
  auto loaded = store_.open(events());
  if (!loaded) return loaded.error();
  // The clock never goes back over a restart: if the wall clock was set back meanwhile, the clock continues at the last
  // stored time.
  clock_.go_on_from(loaded->last_time);
  if (earlier_until_ == Time{}) earlier_until_ = loaded->last_time;
  const Time now = alive_at_ = clock_.now();
  // Microseconds of that clock: greater than any number of an earlier run.
  cooperation_.number_from(static_cast<std::uint64_t>(now.ns / 1000));
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
  core::restore_plans(state_, store::plans_in(loaded->rows), now);
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
  pending_ = {};
  for (Capability* capability : capabilities_) capability->loaded(*loaded, now);
  if (!restart.changed.empty()) intend(std::move(restart), now);
  counters_.reset(state_, now);
  tokens_.clear();
  for (store::AccessToken& token : loaded->tokens) tokens_.emplace(token.number, std::move(token));
  last_token_ = std::max(loaded->last_token, last_token_);
  tell_opened(was_down, now);
  adopt(now);
  return {};
}

// Adopts leases that lived on while the daemon or its store was away.
void Engine::adopt(Time now) {
  const auto known = [this](LeaseId id) { return core::find(state_, id) != nullptr; };
  programs_.forget_others(known);
  std::erase_if(asked_to_end_, [&known](const auto& entry) { return !known(entry.first); });
  host_.sweep_exit_records(options_.exit_dir, known);
  std::vector<core::Lease> leases;  // a copy, because following a lease may end another
  for (const auto& [id, lease] : state_.leases.by_id) {
    if (lease.ended()) settling_.insert(id);
    leases.push_back(lease);
  }
  for (const core::Lease& lease : leases) {
    const bool program = lease.owner.kind == core::OwnerKind::process;
    if (program) programs_.follow(lease, true);
    if (!lease.booked.empty() || lease.owner.kind == core::OwnerKind::group) programs_.book(lease);
    if (!lease.ended()) cooperation_.adopt(lease);
    let_swap(lease.id);  // the order to yield may be lost with the store
  }
  // A commit that was reported as failed may have been kept.
  for (const LeaseId id : std::exchange(ends_in_doubt_, {})) {
    const core::Lease* live = core::find(state_, id);
    if (live == nullptr || live->ended()) cooperation_.let_go(id);
  }
  keep_all_from_swap();
  std::vector<LeaseId> held;  // a tick may end leases and remove their holders
  for (const auto& [lease, sessions] : holders_) held.push_back(lease);
  for (const LeaseId lease : held) {
    const core::Lease* live = core::find(state_, lease);
    if (live == nullptr || live->ended()) forget_holders(lease);
    else if (holders_.contains(lease)) tick(core::HeldChanged{lease, true});
  }
  decide_ends_again(now);
  for (const Capability* capability : capabilities_)
    for (const core::Fact& fact : capability->first_facts()) tick(fact);
  tick(core::Tick{});
  for (const auto& [lease, timer] : watchers_) timer->cancel();  // all waiting calls look at the new state
  pace_probe(now);
}

}  // namespace sublet::engine
