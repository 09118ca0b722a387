// SPDX-License-Identifier: Apache-2.0
#include "core/step.h"

#include "base/mutants.h"
#include "core/assertions.h"
#include "core/current_step.h"
#include "core/step_ask.h"
#include "core/step_attempt.h"
#include "core/step_away.h"
#include "core/step_capability.h"
#include "core/step_end.h"
#include "core/step_grant.h"
#include "core/step_method.h"
#include "core/step_owner.h"
#include "core/step_pause.h"
#include "core/step_plan.h"
#include "core/step_preempt.h"
#include "core/step_request.h"
#include "core/step_resize.h"
#include "core/step_resume.h"
#include "core/step_snapshot.h"
#include "core/step_submit.h"
#include "core/step_tenants.h"
#include "lease/transitions.h"
#include "state/format.h"

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

static void repeat_signals(Step& step);
static void finish(Step& step);
static Time wake_at(const Step& step);

static Result<LeaseId> on(Step&, const Tick&) { return LeaseId{}; }

Plan step(State& state, const Rules& rules, const Fact& fact, Time now) {
  Step step{state, rules, now};
  ++step.state.steps;
  step.state.queue.set_aging(step.rules.aging_per_minute);
  place_waiters(step);
  reindex(step.state, step.rules, step.now);
  const auto& safe = step.rules.safe_mode;
  if (safe && begins_something(fact))
    step.plan.outcome = Error{Code::Unavailable, safe_mode_text(*safe), safe_mode_hint(*safe)};
  else step.plan.outcome = std::visit([&step](const auto& what) { return on(step, what); }, fact);
  step.asked_by.reset();  // what follows is nobody's wish
  if (step.plan.outcome.has_value()) {
    repeat_signals(step);
    if (!safe) finish_half_done(step);  // it may be just that what the daemon falls over
    run_timers(step);
    grant_waiting(step);
    if (!safe) preempt(step);
    settle_undone(step);
    note_blocked(step);
  }
  finish(step);
  assert_step(state, step.plan);
  return std::move(step.plan);
}

Lease* find(Step& step, LeaseId id) {
  const auto found = step.state.leases.by_id.find(id);
  return found == step.state.leases.by_id.end() ? nullptr : &found->second;
}

Attempt& attempt_in(Step& step, const Lease& lease) { return step.state.leases.runtime.at(lease.id).attempt.value(); }

Result<Lease*> find_for(Step& step, LeaseId id, std::uint64_t generation) {
  Lease* lease = find(step, id);
  if (lease == nullptr) return not_found(to_string(id) + " is not a live lease", "`sublet ps --all` lists ended ones");
  if (generation != 0 && generation != lease->generation && !mutant(Mutant::generations_do_not_matter))
    return Error{Code::Stale,
                 to_string(id) + " is at generation " + std::to_string(lease->generation) +
                     ", the request is for generation " + std::to_string(generation),
                 "read the lease again: it is " + std::string(to_string(lease->state)) + " now"};
  return lease;
}

// An order to end a program may have been lost with the daemon that gave it; giving it twice does no harm.
static void repeat_signals(Step& step) {
  for (const LeaseId id : step.state.leases.unsignalled) {
    const Lease* lease = find(step, id);
    if (lease != nullptr && program_may_live(step, *lease)) step.plan.actions.emplace_back(SignalProgram{id, false});
  }
  step.state.leases.unsignalled.clear();
}

void touch(Step& step, const Lease& lease) {
  bool& touched = step.state.leases.runtime.at(lease.id).touched;
  if (!touched) step.touched.push_back(lease.id);
  touched = true;
}

void explain(Step& step, const Lease& lease, ReasonKind kind, ReasonArgs args) {
  step.plan.reasons.push_back({lease.id, step.now, kind, std::move(args)});
  const std::string_view subject = subject_of(kind);
  note(step, subject.empty() ? to_string(lease.end_reason) : subject);
}

void note(Step& step, std::string_view moment) {
  assert(is_interruptible(moment));
  auto& noted = step.plan.transitions;
  if (std::find(noted.begin(), noted.end(), moment) == noted.end()) noted.push_back(moment);
}

// Counts and copies out what changed, and lets go of ended leases that nothing is waited for any more.
static void finish(Step& step) {
  step.plan.changed.reserve(step.touched.size());
  for (const LeaseId id : step.touched) {
    Lease& lease = step.state.leases.by_id.at(id);
    lease.count_parked(step.now);
    step.plan.changed.push_back(lease);
    step.state.leases.runtime.at(id).touched = false;
  }
  std::sort(step.ended.begin(), step.ended.end());
  step.ended.erase(std::unique(step.ended.begin(), step.ended.end()), step.ended.end());
  for (const LeaseId id : step.ended) {
    const Lease& lease = step.state.leases.by_id.at(id);
    if (use_of(step.state, id).settling || program_may_live(step, lease)) continue;
    if (lease.had_process) step.plan.settled.push_back(id), note(step, "settled");
    drop_lease(step.state, id);
  }
  store_plans(step);
  place_waiters(step);
  if (step.snapshot_wanted) step.plan.actions.emplace_back(TakeSnapshot{});
  reindex(step.state, step.rules, step.now);
  step.plan.wake_at = wake_at(step);
}

static Time wake_at(const Step& step) {
  Time wake = Time::never();
  if (!step.state.leases.timers.empty()) wake = step.state.leases.timers.begin()->first;
  if (!step.rules.safe_mode) wake = std::min(wake, step.state.preemption.look_at);
  if (step.state.queue.size() == 0 || step.state.devices.ages.empty()) return wake;
  // When a reading grows too old, those that wait are told another reason.
  return std::min(wake, step.state.devices.ages.begin()->first + step.rules.max_age + Duration(1));
}

}  // namespace sublet::core
