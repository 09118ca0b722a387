// SPDX-License-Identifier: Apache-2.0
#include "core/step.h"

#include "base/mutants.h"
#include "core/explain.h"
#include "core/format.h"
#include "core/stepper.h"
#include "core/transitions.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sublet::core {
namespace {

// True for a fact that gives or takes memory, now or later: refused in safe mode. Existing leases are renewed, claimed,
// attached and ended as ever.
bool begins_something(const Fact& fact) {
  return std::holds_alternative<Submit>(fact) || std::holds_alternative<Resize>(fact) ||
         std::holds_alternative<Pause>(fact) || std::holds_alternative<Resume>(fact) ||
         std::holds_alternative<Preempt>(fact);
}

}  // namespace

Plan step(State& state, const Rules& rules, const Fact& fact, Time now) { return Stepper(state, rules, now).run(fact); }

Plan Stepper::run(const Fact& fact) {
  ++state_.steps_;
  state_.queue_.set_aging(rules_.aging_per_minute);
  state_.reindex(rules_, now_);
  const auto& safe = rules_.safe_mode;
  if (safe && begins_something(fact))
    plan_.outcome = Error{Code::Unavailable, safe_mode_text(*safe), safe_mode_hint(*safe)};
  else plan_.outcome = std::visit([this](const auto& what) { return on(what); }, fact);
  asked_by_.reset();  // what follows is nobody's wish
  if (plan_.outcome.has_value()) {
    repeat_signals();
    if (!safe) finish_half_done();  // it may be just that what the daemon falls over
    run_timers();
    if (!safe) pause_relapsed_again();
    grant_waiting();
    if (!safe) preempt();
    settle_undone();
    note_blocked();
  }
  finish();
  return std::move(plan_);
}

Lease* Stepper::find(LeaseId id) {
  const auto found = state_.leases_.find(id);
  return found == state_.leases_.end() ? nullptr : &found->second;
}

Result<Lease*> Stepper::find_for(LeaseId id, std::uint64_t generation) {
  Lease* lease = find(id);
  if (lease == nullptr) return not_found(to_string(id) + " is not a live lease", "`sublet ps --all` lists ended ones");
  if (generation != 0 && generation != lease->generation && !mutant(Mutant::generations_do_not_matter))
    return Error{Code::Stale,
                 to_string(id) + " is at generation " + std::to_string(lease->generation) +
                     ", the request is for generation " + std::to_string(generation),
                 "read the lease again: it is " + std::string(to_string(lease->state)) + " now"};
  return lease;
}

// An order to end a program may have been lost with the daemon that gave it; giving it twice does no harm.
void Stepper::repeat_signals() {
  for (const LeaseId id : state_.unsignalled_) {
    const Lease* lease = find(id);
    if (lease != nullptr && program_may_live(*lease)) plan_.actions.emplace_back(SignalProgram{id, false});
  }
  state_.unsignalled_.clear();
}

void Stepper::touch(const Lease& lease) {
  bool& touched = state_.runtime_.at(lease.id).touched;
  if (!touched) touched_.push_back(lease.id);
  touched = true;
}

void Stepper::explain(const Lease& lease, ReasonKind kind, ReasonArgs args) {
  plan_.reasons.push_back({lease.id, now_, kind, std::move(args)});
  const std::string_view subject = subject_of(kind);
  note(subject.empty() ? to_string(lease.end_reason) : subject);
}

void Stepper::note(std::string_view moment) {
  assert(is_interruptible(moment));
  auto& noted = plan_.transitions;
  if (std::find(noted.begin(), noted.end(), moment) == noted.end()) noted.push_back(moment);
}

void Stepper::touch_given(const Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  // A lease that was touched before may also have freed memory, for example an offer that lapsed on another device.
  one_piece_ = one_piece_ || runtime.touched;
  touch(lease);
  if (!std::exchange(runtime.given, true)) given_.push_back(lease.id);
}

// Counts and copies out what changed, and lets go of ended leases that nothing is waited for any more.
void Stepper::finish() {
  plan_.changed.reserve(touched_.size());
  for (const LeaseId id : touched_) {
    State::LeaseRuntime& runtime = state_.runtime_.at(id);
    state_.leases_.at(id).count_parked(now_);
    if (!runtime.given || one_piece_) plan_.changed.push_back(state_.leases_.at(id));
    runtime.touched = runtime.given = false;
  }
  plan_.givers = plan_.changed.size();
  for (const LeaseId id : given_) {
    if (!one_piece_) plan_.changed.push_back(state_.leases_.at(id));
  }
  std::sort(ended_.begin(), ended_.end());
  ended_.erase(std::unique(ended_.begin(), ended_.end()), ended_.end());
  for (const LeaseId id : ended_) {
    const Lease& lease = state_.leases_.at(id);
    if (state_.use(id).settling || program_may_live(lease)) continue;
    if (lease.had_process) plan_.settled.push_back(id), note("settled");
    state_.drop(id);
  }
  if (snapshot_wanted_) plan_.actions.emplace_back(TakeSnapshot{});
  state_.reindex(rules_, now_);
  plan_.wake_at = wake_at();
}

Time Stepper::wake_at() const {
  Time wake = Time::never();
  if (!state_.timers_.empty()) wake = state_.timers_.begin()->first;
  if (!rules_.safe_mode) wake = std::min(wake, state_.room_look_at_);
  if (!rules_.safe_mode)
    for (const LeaseId id : state_.relapsing_) wake = std::min(wake, top_due(id));
  if (state_.queue_.empty() || state_.ages_.empty()) return wake;
  // When a reading grows too old, those that wait are told another reason.
  return std::min(wake, state_.ages_.begin()->first + rules_.max_age + Duration(1));
}

}  // namespace sublet::core
