// SPDX-License-Identifier: Apache-2.0
// A transaction: all that follows from one request, reading or alarm is one batch of the store, and its effects start
// once that batch is durable.
#include "engine/engine.h"

#include "base/mutants.h"
#include "store/plan_row.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

namespace sublet::engine {
namespace {

// How long snapshots stay frequent after a change.
constexpr Duration busy_after_change = std::chrono::seconds(3);

bool stores_something(const core::Plan& plan) {
  return !plan.changed.empty() || !plan.reasons.empty() || !plan.settled.empty() || !plan.grants.empty() ||
         !plan.records.empty() || !plan.learned.empty() || !plan.preemptions.empty();
}

template <typename Value>
void append(std::vector<Value>& all, std::vector<Value>&& more) {
  if (all.empty()) all = std::move(more);
  else std::ranges::move(more, std::back_inserter(all));
}

std::optional<store::Remembered> remembered_answer(const Remember& remember, const Answered& answer, Time now) {
  if (remember.key.empty() || mutant(Mutant::answers_are_not_kept)) return std::nullopt;
  return store::Remembered{remember.uid, remember.key, remember.fingerprint, answer.status, answer.body, now};
}

// Collects the effects of a plan. The leases are moved to the store and not copied, because there may be thousands.
void what_follows(core::Plan& plan, AfterCommit& next) {
  next.changed.reserve(next.changed.size() + plan.changed.size());
  for (const core::Lease& lease : plan.changed) {
    next.changed.push_back(lease.id);
    if (!lease.ended()) continue;
    // Only after the end is stored. If the end is lost with the store, the lease stays with its holders and its keeper,
    // and its exit record is still needed.
    next.ended.push_back(lease.id);
    if (!lease.owner.exit_record.empty()) next.done_records.push_back(lease.owner.exit_record);
  }
  append(next.actions, std::move(plan.actions));
  next.transitions.insert(next.transitions.end(), plan.transitions.begin(), plan.transitions.end());
}

}  // namespace

Engine::Transaction::Transaction(Engine& engine) : engine_(engine) {
  if (engine_.transactions_++ == 0) (void)engine_.notice();
}

Engine::Transaction::~Transaction() {
  if (--engine_.transactions_ == 0) engine_.hand_over();
}

// Takes a plan into the present transaction. Without a usable store the plan is dropped, and reopen() starts from the
// stored state.
void Engine::intend(core::Plan plan, Time now) {
  const Transaction transaction(*this);
  arm(plan.wake_at);
  if (!store_problem().empty()) return;
  commits_.reach(plan.transitions, Failpoints::decided);
  follow_changes(plan);
  counters_.observe(plan, now);
  for (const core::Resumed& lease : plan.resumed) observer_.resumed(lease);
  if (mutant(Mutant::signals_before_durable))
    for (const core::Action& action : plan.actions)
      if (std::holds_alternative<core::SignalProgram>(action)) executor_.perform(action);
  pending_.stores |= stores_something(plan);
  pending_.now = now;
  pending_.plans.push_back(std::move(plan));
}

// Answers a call: what was decided so far, the rows of capabilities and the remembered answer are one batch. Returns
// its sequence; 0: nothing was to be stored.
std::uint64_t Engine::answer_with(const Remember& remember, const Answered& answer) {
  pending_.now = clock_.now();
  pending_.remembered = remembered_answer(remember, answer, pending_.now);
  pending_.stores |= pending_.remembered.has_value();
  return hand_over();
}

Result<Answered> Engine::store_rows(std::string_view transition, const Remember& remember,
                                    const std::function<Answered()>& answer) {
  if (const Status may = may_decide(); !may) return may.error();
  tell_plans();
  Answered answered = answer();
  pending_.transition = transition;
  answer_with(remember, answered);
  return answered;
}

void Engine::remember(const Remember& remember, const Answered& answer) {
  if (!remember.key.empty() && store_problem().empty()) write("answered", {}, remember, answer);
}

void Engine::write(std::string_view transition, store::Batch batch, const Remember& remember, const Answered& answer) {
  hand_over();  // what was decided before comes first
  batch.now = now();
  batch.remembered = remembered_answer(remember, answer, batch.now);
  batch.transitions = {transition};
  commits_.reach(batch.transitions, Failpoints::decided);
  AfterCommit next{.transitions = batch.transitions};
  commits_.write(std::move(batch), {});
  commits_.reach(next.transitions, Failpoints::queued);
  commits_.then(std::move(next));
}

void Engine::rows_changed() {
  pending_.stores = true;
  call_capabilities();
}

void Engine::tell(Rows::Event event) {
  pending_.events.push_back(std::move(event));
  rows_changed();
}

// No capability is at work now: none is changed within a change of its own.
void Engine::tell_plans() {
  for (; pending_.told < pending_.plans.size(); ++pending_.told)
    capabilities_.happened(pending_.plans[pending_.told], pending_.now);
}

// Hands the transaction so far to the store. Returns the sequence of its batch; 0: nothing was to be stored.
std::uint64_t Engine::hand_over() {
  tell_plans();
  Pending pending = std::exchange(pending_, {});
  if (!store_problem().empty()) return 0;
  if (pending.plans.empty() && !pending.stores) return 0;
  Rows rows{.events = std::move(pending.events)};
  capabilities_.take(rows);
  call_capabilities();
  AfterCommit next;
  const Time now = pending.plans.empty() ? clock_.now() : pending.now;
  store::Batch batch{.remembered = std::move(pending.remembered), .now = now};
  const bool to_store = pending.stores || !rows.empty();
  std::vector<EventLog::Event> events;
  if (pending.asleep) events.push_back(commits_.log().of_daemon("woke", now, *pending.asleep));
  for (core::Plan& plan : pending.plans) {
    what_follows(plan, next);
    if (to_store) add_plan(std::move(plan), batch, events);
  }
  const std::string_view of_rows = next.transitions.empty() ? rows.transition : "";
  if (const auto named = pending.transition.empty() ? of_rows : pending.transition; !named.empty()) {
    next.transitions.push_back(named);
    commits_.reach(std::span(&next.transitions.back(), 1), Failpoints::decided);
  }
  if (to_store) {
    observer_.keep_busy(now + busy_after_change);
    batch.transitions = next.transitions;
    append(batch.rows, std::move(rows.rows));
    for (Rows::Event& event : rows.events)
      events.push_back(commits_.log().of_capability(std::move(event.type), std::move(event.data)));
    capabilities_.taken(commits_.write(std::move(batch), events, next.changed));
  }
  const std::uint64_t sequence = to_store ? commits_.last() : 0;
  commits_.reach(next.transitions, Failpoints::queued);
  commits_.then(std::move(next));
  observer_.pace(clock_.now());
  return sequence;
}

void Engine::add_plan(core::Plan plan, store::Batch& batch, std::vector<EventLog::Event>& events) {
  append(events, commits_.log().of_plan(plan, [this](LeaseId id) { return find(id); }));
  append(batch.changed, std::move(plan.changed));
  append(batch.reasons, std::move(plan.reasons));
  append(batch.settled, std::move(plan.settled));
  append(batch.grants, std::move(plan.grants));
  append(batch.learned, std::move(plan.learned));
  append(batch.records, std::move(plan.records));
  for (const core::PlanChange& change : plan.preemptions) batch.rows.push_back(store::row_of(change));
}

void Engine::start(const AfterCommit& next) {
  commits_.reach(next.transitions, Failpoints::told);
  for (const LeaseId id : next.changed) access_.announce(id), executor_.swap().end(id);
  for (const LeaseId id : next.ended) {
    access_.forget_holders(id);
    executor_.cooperation().let_go(id);
  }
  for (const std::string& path : next.done_records) machine_.host->remove_exit_record(path);
  for (const core::Action& action : next.actions) executor_.perform(action);
  commits_.reach(next.transitions, Failpoints::done);
}

}  // namespace sublet::engine
