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

}  // namespace

Engine::Transaction::Transaction(Engine& engine) : engine_(engine) { ++engine_.transactions_; }

Engine::Transaction::~Transaction() {
  if (--engine_.transactions_ == 0) engine_.hand_over();
}

// Takes a plan into the present transaction. Without a usable store the plan is dropped, and reconcile() starts from
// the stored state.
void Engine::intend(core::Plan plan, Time now) {
  const Transaction transaction(*this);
  arm(plan.wake_at);
  if (!store_problem_.empty()) return;
  reach(plan.transitions, Failpoints::decided);
  follow_changes(plan);
  counters_.observe(plan, now);
  for (const core::Resumed& lease : plan.resumed) activities_.resumed(lease);
  if (mutant(Mutant::signals_before_durable))
    for (const core::Action& action : plan.actions)
      if (std::holds_alternative<core::SignalProgram>(action)) perform(action);
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
  tell_capabilities();
  Answered answered = answer();
  pending_.transition = transition;
  answer_with(remember, answered);
  return answered;
}

// Tells the capabilities of the plans that they have not heard of. None of them is at work now: no capability is
// changed within a change of its own.
void Engine::tell_capabilities() {
  for (; pending_.told < pending_.plans.size(); ++pending_.told) {
    const core::Plan& plan = pending_.plans[pending_.told];
    for (Capability* capability : capabilities_) capability->happened(plan, pending_.now);
  }
}

// Hands the transaction so far to the store. Returns the sequence of its batch; 0: nothing was to be stored.
std::uint64_t Engine::hand_over() {
  tell_capabilities();
  Pending pending = std::exchange(pending_, {});
  if (!store_problem_.empty()) return 0;
  if (pending.plans.empty() && !pending.stores) return 0;
  Rows rows{.events = std::move(pending.events)};
  for (RowSource* source : row_sources_) source->take(rows);
  call_capabilities();
  AfterCommit next;
  store::Batch batch{.remembered = std::move(pending.remembered),
                     .now = pending.plans.empty() ? clock_.now() : pending.now};
  const bool to_store = pending.stores || !rows.empty();
  std::vector<EventLog::Event> events;
  for (core::Plan& plan : pending.plans) {
    what_follows(plan, next);
    if (to_store) add_plan(std::move(plan), batch, events);
  }
  const std::string_view of_rows = next.transitions.empty() ? rows.transition : "";
  if (const auto named = pending.transition.empty() ? of_rows : pending.transition; !named.empty()) {
    next.transitions.push_back(named);
    reach(std::span(&next.transitions.back(), 1), Failpoints::decided);
  }
  if (to_store) write(std::move(batch), std::move(events), std::move(rows), next);
  if (to_store)
    for (RowSource* source : row_sources_) source->taken(intended_);
  const std::uint64_t sequence = to_store ? intended_ : 0;
  reach(next.transitions, Failpoints::queued);
  next.sequence = intended_;
  if (committed_ >= intended_ || mutant(Mutant::done_before_durable)) start(next);
  else if (!next.nothing()) after_commit_.push_back(std::move(next));
  pace_probe(clock_.now());
  return sequence;
}

// Collects the effects of a plan. The leases are moved to the store and not copied, because there may be thousands.
void Engine::what_follows(core::Plan& plan, AfterCommit& next) {
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

void Engine::add_plan(core::Plan plan, store::Batch& batch, std::vector<EventLog::Event>& events) {
  append(events, log_.of_plan(plan, [this](LeaseId id) { return find(id); }));
  append(batch.changed, std::move(plan.changed));
  append(batch.reasons, std::move(plan.reasons));
  append(batch.settled, std::move(plan.settled));
  append(batch.grants, std::move(plan.grants));
  append(batch.learned, std::move(plan.learned));
  append(batch.records, std::move(plan.records));
  for (const core::PlanChange& change : plan.preemptions) batch.rows.push_back(store::row_of(change));
}

void Engine::write(store::Batch batch, std::vector<EventLog::Event> events, Rows rows, const AfterCommit& next) {
  busy_until_ = batch.now + busy_after_change;
  batch.transitions = next.transitions;
  batch.events = events;
  append(events, add_rows(std::move(rows), batch));
  if (!std::exchange(boot_id_stored_, true)) {  // rows may name processes of this boot
    batch.boot_id = options_.boot_id;
    batch.clock_offset_ns = clock_.offset_ns();
  }
  hand_to_store(std::move(batch));
  log_.intended(intended_, events);
  for (const LeaseId id : next.changed) changed_in_[id] = intended_;
}

// Puts the changes of capabilities into a batch, and returns the events in it.
std::vector<EventLog::Event> Engine::add_rows(Rows rows, store::Batch& batch) {
  append(batch.rows, std::move(rows.rows));
  std::vector<EventLog::Event> events;
  for (Rows::Event& event : rows.events)
    events.push_back(log_.of_capability(std::move(event.type), std::move(event.data)));
  batch.events.insert(batch.events.end(), events.begin(), events.end());
  return events;
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

}  // namespace sublet::engine
