// SPDX-License-Identifier: Apache-2.0
// Pauses of a lease, in two phases: a pause is ordered, and then it is verified. A failure on the way is undone by a
// resume, repeated until the program is known to run: "not verified" never means "active".
#include "core/step_pause.h"
#include "core/current_step.h"
#include "core/step_end.h"
#include "core/step_method.h"
#include "core/step_owner.h"
#include "core/step_resize.h"
#include "core/step_resume.h"
#include "core/step_verify.h"
#include "state/methods.h"

#include "base/mutants.h"
#include "state/format.h"
#include "state/host_check.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

// The cause of a pause as arguments of a reason.
ReasonArgs args_of(const PauseCause& cause) {
  ReasonArgs all = args("cause", to_string(cause.kind));
  all.add(cause.args);
  return all;
}

}  // namespace

static void stay_paused(Step& step, Lease& lease);

// -------------------------------------------------------------------------------- asked to yield

Status check_pause(const Step& step, const Lease& lease, const HostMemory& host) {
  if (lease.state != LeaseState::active)
    return Error{Code::Stale,
                 "pause needs a lease that is active; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
                 "`sublet why " + to_string(lease.id) + "` says what it waits for"};
  if (lease.stop_requested)
    return Error{Code::PauseUnsafe, name_of(lease) + " cannot be paused: its program is being ended",
                 "wait for its end: `sublet wait`"};
  if (const auto method = pause_method_of(step.state, lease); !method) return method.error();
  return check_host(step.state, step.rules, lease, host);
}

Error never_runs_again(const Step& step, const Lease& lease) {
  return {Code::PauseUnsafe, name_of(lease) + " is poisoned: " + text_of(lease.parking->cause),
          lease.stop_requested ? "its program is being ended"
                               : end_command(step.state, lease) + " ends it; nothing makes its program run again"};
}

Result<LeaseId> on(Step& step, const Pause& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::poisoned) return never_runs_again(step, lease);
  // An owner may hold back what waits, and nothing else may.
  const PauseCauseKind why = fact.cause.kind;
  const bool asked = why == PauseCauseKind::owner_request || why == PauseCauseKind::admin_request;
  if (lease.state == LeaseState::queued && asked) return hold_back(step, lease);
  if (lease.parking && lease.state != LeaseState::resuming) {
    if (lease.parking->then_stop)
      return Error{Code::PauseUnsafe, name_of(lease) + " is to be ended as soon as its program runs again",
                   "wait for its end: `sublet wait`"};
    if (lease.state == LeaseState::paused && lease.parking->resume_requested)
      withdraw_return(step, lease, ReasonKind::resume_withdrawn);
    else if (lease.state == LeaseState::pausing && lease.parking->resume_requested) stay_paused(step, lease);
    if (asked) take_cause(step, lease, fact.cause);
    return lease.id;
  }
  if (const Status may = check_pause(step, lease, fact.host); !may) return may.error();
  begin_pause(step, lease, fact.cause, why == PauseCauseKind::drain);
  return lease.id;
}

// `resume_requested`: it waits to resume as soon as it is paused.
void begin_pause(Step& step, Lease& lease, PauseCause cause, bool resume_requested) {
  if (lease.resize) withdraw_resize(step, lease, ReasonKind::resize_withdrawn_by_pause);
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  runtime.attempt.reset();
  runtime.blocked_by = 0;
  runtime.left_alone.reset();
  runtime.inhabited.reset();
  Parking parking;
  parking.since = step.now;
  parking.cause = std::move(cause);
  parking.resume_requested = resume_requested;
  const auto open = open_methods_of(step.state, lease, step.now);  // none: its owner wants it tried all the same
  ask_to_yield(step, lease, open.empty() ? *pause_method_of(step.state, lease) : open.front(), std::move(parking));
}

// `parking`: the start, the cause, and the entries and orders of earlier attempts.
void ask_to_yield(Step& step, Lease& lease, PauseMethod method, Parking parking) {
  const bool cooperative = method == PauseMethod::cooperative;
  const Bytes held = held_by(step.state, lease);
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  parking.method = method;
  parking.host_bytes = enters_host(step.state, lease);
  parking.measured = false;
  parking.residue = residue_of(step.state, lease, method);
  parking.locked_processes.emplace();
  note_asked(step.state, lease, parking, step.rules, step.now);
  parking.told = parking.told || (cooperative && !mutant(Mutant::nobody_is_told_to_go_on));
  ReasonArgs why = args_of(parking.cause);
  why.add("bytes", held);
  why.add("devices", device_names(step.state, lease.devices));
  if (cooperative) why.add("within", yield_time(step, lease));
  explain(step, lease, cooperative ? ReasonKind::pausing_by_program : ReasonKind::pausing_by_driver, std::move(why));
  const Duration at_most = cooperative ? yield_time(step, lease) : Duration{};
  Attempt attempt{.phase = Attempt::Phase::ordered, .begun = parking.told, .ordered_at = step.now};
  attempt.moved = use_of(step.state, lease.id).used;
  attempt.moving_since = step.now;
  attempt.tried = (runtime.attempt ? runtime.attempt->tried : 0U) | bit_of(method);
  runtime.attempt = std::move(attempt);
  runtime.relapsed = false;
  set_parking(step.state, lease, std::move(parking), LeaseState::pausing);
  look_at_unlisted(step, lease);
  const Duration by_driver = driver_time(step, lease, Move::pause);
  if (!cooperative) runtime.attempt->overdue_at = step.now + by_driver;
  step.plan.actions.emplace_back(Park{lease.id, method, cooperative ? at_most : by_driver, given_up_after * by_driver});
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// Stored before the driver locks any process: after a restart only this note tells which processes may be parked.
Result<LeaseId> happened(Step& step, Lease& lease, const LockIntent& fact) {
  Attempt& attempt = attempt_in(step, lease);
  if (!attempt.is_ordered() || lease.parking->method == PauseMethod::cooperative)
    return not_found(to_string(lease.id) + " is not being paused by the driver");
  Parking parking = *lease.parking;
  if (parking.locked_processes) parking.locked_processes = fact.processes;
  // The residue allows for all processes that are locked, listed or new.
  const Bytes kept = static_cast<std::int64_t>(fact.processes.size()) * driver_keeps;
  parking.residue = std::max(parking.residue, std::min(kept, lease.vram));
  note(step, "lock_intent");
  attempt.phase = Attempt::Phase::locked;
  attempt.begun = true;
  set_parking(step.state, lease, std::move(parking), lease.state);
  step.plan.actions.emplace_back(Lock{lease.id});
  touch(step, lease);
  return lease.id;
}

// The lease may hold more than at the pause order. It allocated before it was locked, or its processes are in other
// cgroups than those that were examined. Bytes beyond its entry are entered, and the bytes of each process are noted
// for its resume. A pause that does not fit is not begun. Nothing is stored if nothing has grown.
Result<LeaseId> happened(Step& step, Lease& lease, const MeasuredWhileLocked& fact) {
  const Bytes entered = lease.parking->host_bytes;
  if (const Status takes = check_host(step.state, step.rules, lease, fact.host); !takes) return takes.error();
  const Bytes held = enters_host(step.state, lease);
  Parking parking = *lease.parking;
  parking.host_bytes = std::max(entered, held);
  note_asked(step.state, lease, parking, step.rules, step.now);
  step.plan.actions.emplace_back(Lock{lease.id});
  if (parking == *lease.parking) return lease.id;
  if (held > entered) explain(step, lease, ReasonKind::pausing_holds_more, args("bytes", held, "more", held - entered));
  else note(step, "lock_intent");
  set_parking(step.state, lease, std::move(parking), LeaseState::pausing);
  touch(step, lease);
  return lease.id;
}

// A failure after the program was told, or a process was locked, is the program's, unless the order never came to it.
static Obstacle obstacle_in(Step& step, const Lease& lease, const Parked& fact) {
  const bool by_driver = lease.parking->method == PauseMethod::driver;
  const Obstacle found{by_driver ? judge_driver(step, fact.code) : fact.code, fact.detail, fact.hint};
  const bool reached = found.code != ObstacleCode::unreachable && found.code != ObstacleCode::busy;
  if (fact.undone || !reached || found.kind().blames) return found;
  return {ObstacleCode::half_done, fact.detail, std::string(found.advice())};
}

// A pause that is done is not stored yet: what it parked is stored with what becomes of it. A restart before that
// undoes it, whether the bytes are parked or not.
Result<LeaseId> happened(Step& step, Lease& lease, const Parked& fact) {
  Attempt& attempt = attempt_in(step, lease);
  attempt.phase = Attempt::Phase::waiting;
  attempt.overdue = fact.code == ObstacleCode::stuck;
  const Obstacle obstacle = obstacle_in(step, lease, fact);
  attempt.overdue_at = Time::never();
  if (!fact.done) {
    attempt.begun |= !fact.undone;
    if (fact.undone && lease.parking->locked_processes) {
      Parking parking = *lease.parking;
      parking.locked_processes->clear();
      set_parking(step.state, lease, std::move(parking), LeaseState::pausing);
    }
    note_unfit(step, lease, obstacle);
    if (attempt.overdue) attempt.late_since = attempt.moving_since;
    fail(step, lease, ReasonKind::pause_failed, args("detail", fact.detail), obstacle);
    return lease.id;
  }
  attempt.phase = Attempt::Phase::answered;
  attempt.answered_at = step.now;
  attempt.parked = fact.bytes;
  if (fact.bytes) step.state.leases.runtime.at(lease.id).parked = *fact.bytes;
  if (mutant(Mutant::yielding_is_not_verified)) return settle_down(step, lease), lease.id;
  step.state.pauses.verifying.insert(lease.id);
  look_again(step, lease);
  schedule(step.state, lease, step.rules);
  return lease.id;
}

// It was paused for another lease, or its resume was requested, and now its owner pauses it.
static void stay_paused(Step& step, Lease& lease) {
  Parking parking = *lease.parking;
  parking.resume_requested = false;
  set_parking(step.state, lease, std::move(parking), lease.state);
  explain(step, lease, ReasonKind::stays_after_pausing);
  touch(step, lease);
}

// -------------------------------------------------------------------------------- time

Duration driver_time(const Step& step, const Lease& lease, Move move) {
  const Attempt* attempt = attempt_of(step.state, lease.id);
  const Bytes bytes =
      std::max(attempt != nullptr ? attempt->moved : Bytes{}, lease.parking ? lease.parking->host_bytes : Bytes{});
  const Prediction takes =
      step.state.learned.costs.predict(lease.whose(), lease.devices, PauseMethod::driver, move, bytes);
  return std::min(takes.longest, driver_limit) + driver_grace;
}

// The driver may return at any time, and its result counts then; no plan counts on it before.
void mark_overdue(Step& step, Lease& lease) {
  Attempt& attempt = attempt_in(step, lease);
  const Duration allowed = attempt.overdue_at - attempt.ordered_at;
  attempt.overdue_at = Time::never();
  attempt.overdue = true;
  const bool out = lease.state == LeaseState::pausing;
  explain(step, lease, out ? ReasonKind::pausing_stuck : ReasonKind::resuming_stuck, args("allowed", allowed));
  if (lease.parking->then_stop && !lease.stop_requested && program_may_live(step, lease)) {
    stop_program(step, lease);
    touch(step, lease);
  }
  step.state.preemption.stale = true;
}

}  // namespace sublet::core
