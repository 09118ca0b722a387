// SPDX-License-Identifier: Apache-2.0
// Resumes of a lease, in two phases: the memory is reserved, and then the program is restored. A resume is repeated
// until the program is known to run.
#include "core/step_resume.h"
#include "base/mutants.h"
#include "core/step_end.h"
#include "core/step_grant.h"
#include "core/step_method.h"
#include "core/step_owner.h"
#include "core/step_pause.h"
#include "core/step_submit.h"
#include "core/step_verify.h"
#include "state/format.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration first_retry = 1s;  // of a resume that did not come through; doubled each time
constexpr Duration longest_retry = 30s;

// The lease promises its size and no more: memory that it allocated while paused stands in its own way.
ReasonArgs resume_failed_args(const Lease& lease, const std::string& detail) {
  Bytes beside;
  for (const HeldWhenPaused& its : lease.parking->held_when_paused) beside += its.beside;
  ReasonArgs all = args("detail", detail);
  if (beside > Bytes{}) all.add(args("beside", beside, "parked", lease.parking->host_bytes, "vram", lease.vram));
  return all;
}

}  // namespace

Result<LeaseId> on(Step& step, const Resume& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::poisoned) return never_runs_again(step, lease);
  if (lease.state == LeaseState::active) return lease.id;
  if (lease.held_back_at) return let_queue(step, lease);
  if (!lease.parking)
    return Error{
        Code::Stale,
        "resume needs a lease that is paused; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
        lease.ended() ? "ask for a new lease" : "`sublet why " + to_string(lease.id) + "` says what it waits for"};
  want_back(step, lease);
  return lease.id;
}

void want_back(Step& step, Lease& lease) {
  const bool undoing = lease.state == LeaseState::resuming;
  if (undoing && std::exchange(attempt_in(step, lease).next, std::nullopt)) step.state.preemption.stale = true;
  if (lease.state == LeaseState::poisoned || lease.parking->resume_requested) return;
  Parking parking = *lease.parking;
  parking.resume_requested = true;
  set_parking(step.state, lease, std::move(parking), lease.state);
  touch(step, lease);
  note(step, lease.state == LeaseState::pausing || undoing ? "resume_requested_early" : "resume_queued");
  if (lease.state == LeaseState::pausing || undoing) return;  // one thing after the other
  if (mutant(Mutant::back_without_room)) return requeue_in_place(step.state, lease), bring_back(step, lease);
  requeue_in_place(step.state, lease);
  grant_waiting(step);
  step.may_be_blocked.push_back(lease.id);
  if (lease.state == LeaseState::paused) explain(step, lease, ReasonKind::resume_queued, place_args(step, lease));
}

// The memory is its own before anything is restored into it.
void bring_back(Step& step, Lease& lease) {
  bring_back(step, lease, ReasonKind::resuming,
             args("vram", lease.vram, "devices", device_names(step.state, lease.devices), "away",
                  step.now - lease.parking->since));
}

void bring_back(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args) {
  if (step.state.queue.contains(lease.id)) step.state.queue.erase(lease.id);
  Parking parking = *lease.parking;
  note_beside(step.state, lease, parking);
  set_parking(step.state, lease, std::move(parking), LeaseState::resuming);
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  runtime.back_at = step.now;
  runtime.grown.clear();
  runtime.attempt =
      Attempt{.moved = bytes_to_move(step.state, lease), .moving_since = step.now, .told_since = step.now};
  explain(step, lease, kind, std::move(args));
  unpark(step, lease);
  touch(step, lease);
}

// Withdraws the wait to resume. A lease that is to end as soon as it runs is ended as it is.
void withdraw_return(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args) {
  step.state.queue.erase(lease.id);
  Parking parking = *lease.parking;
  parking.resume_requested = false;
  const bool stop = std::exchange(parking.then_stop, false);
  set_parking(step.state, lease, std::move(parking), lease.state);
  explain(step, lease, stop ? ReasonKind::stopping_instead_of_return : kind, std::move(args));
  touch(step, lease);
  if (stop) end_as_it_is(step, lease);
}

void unpark(Step& step, Lease& lease) {
  Attempt& attempt = attempt_in(step, lease);
  attempt.look_at = Time::never();
  const Parking& parking = *lease.parking;
  if (!attempt.is_ordered()) {
    const Duration at_most = driver_time(step, lease, Move::resume);
    attempt.phase = Attempt::Phase::ordered;
    attempt.ordered_at = step.now;
    if (!attempt.overdue && parking.method == PauseMethod::driver)
      attempt.overdue_at = step.now + at_most + (parking.told ? step.rules.yield_timeout : Duration{});
    step.plan.actions.emplace_back(Unpark{lease.id, parking.method, parking.told, step.rules.yield_timeout,
                                          parking.locked_processes, given_up_after * at_most});
  }
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

Result<LeaseId> happened(Step& step, Lease& lease, const DriverReturned&) {
  Attempt& attempt = attempt_in(step, lease);
  // The time of a late call is learned like any other: a slow link gets that time the next time.
  if (const auto since = std::exchange(attempt.late_since, std::nullopt))
    learn(step, lease, Move::pause, attempt.moved, std::min(step.now - *since, driver_limit));
  if (!attempt.is_ordered()) look_again(step, lease);
  return lease.id;
}

// The order is repeated, later and later.
static void note_not_yet(Step& step, Lease& lease, const Unparked& fact) {
  Attempt& attempt = attempt_in(step, lease);
  attempt.overdue = fact.code == ObstacleCode::stuck;
  attempt.look_at = step.now + std::min(first_retry * (1 << std::min(attempt.failures, 5)), longest_retry);
  if (attempt.failures++ == 0 || fact.code != attempt.failure_code)
    explain(step, lease, ReasonKind::resume_failed, resume_failed_args(lease, fact.detail));
  attempt.failure = fact.detail;
  attempt.failure_code = fact.code;
  note_unanswered(step, lease, fact);
  if (attempt.next) attempt.next.reset(), step.state.preemption.stale = true;  // its preemptor looks for other victims
  step.may_be_blocked.push_back(lease.id);
  end_unresponsive(step, lease);
  schedule(step.state, lease, step.rules);
}

static void poison(Step& step, Lease& lease, const Unparked& fact) {
  Parking kept = *lease.parking;
  const bool stops = std::exchange(kept.then_stop, false);
  if (fact.nothing_parked) kept.host_bytes = {}, kept.measured = true;
  kept.cause = {PauseCauseKind::driver_failed, {}, args("detail", fact.detail, "nothing_parked", fact.nothing_parked)};
  set_parking(step.state, lease, std::move(kept), LeaseState::poisoned);
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  runtime.attempt.reset();
  runtime.restored_at = step.now;
  step.snapshot_wanted = true;
  explain(step, lease, ReasonKind::poisoned,
          args("detail", fact.detail, "ends", stops, "nothing_parked", fact.nothing_parked));
  if (stops && !mutant(Mutant::deferred_ends_get_lost)) stop_program(step, lease);
}

Result<LeaseId> happened(Step& step, Lease& lease, const Unparked& fact) {
  Attempt& attempt = attempt_in(step, lease);
  attempt.phase = Attempt::Phase::waiting;
  attempt.overdue_at = Time::never();
  if (fact.how == Unparked::How::not_yet) return note_not_yet(step, lease, fact), lease.id;
  const bool first = attempt.failures == 0;
  const bool runs = fact.how == Unparked::How::runs;
  const Parking parking = *lease.parking;
  attempt.look_at = Time::never();
  attempt.overdue = false;
  attempt.failures = attempt.unanswered = 0;
  attempt.failure.clear();
  attempt.failure_code = ObstacleCode::none;
  attempt.late_since.reset();
  if (runs && first && attempt.moving_since > parking.since)
    learn(step, lease, Move::resume, attempt.moved, step.now - attempt.moving_since);
  if (!runs || !first || !fact.host || parking.then_stop) attempt.next.reset();
  if (attempt.next && !parking.resume_requested && try_next(step, lease, parking, *fact.host)) return lease.id;
  // The lease does not end as a parked one: what it holds on its devices is still to be measured.
  if (!runs && parking.then_stop && !program_may_live(step, lease)) {
    end(step, lease, EndReason::released, ReasonKind::ended_unrestorable, args("detail", fact.detail));
    return lease.id;
  }
  if (!runs) {
    poison(step, lease, fact);
  } else {
    set_parking(step.state, lease, std::nullopt, LeaseState::active);
    if (attempt.next && parking.resume_requested) {
      step.undone.emplace(lease.id, Undone{parking, *fact.host, std::exchange(lease.expires_at, std::nullopt)});
      step.state.preemption.stale = true;
    } else {
      runs_again(step, lease, parking);
    }
  }
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  return lease.id;
}

void runs_again(Step& step, Lease& lease, const Parking& parking) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  Attempt attempt = std::exchange(runtime.attempt, std::nullopt).value();
  restart_clocks(step, lease, parking);
  explain(step, lease, ReasonKind::resumed,
          args("after", attempt.begun ? std::optional(step.now - parking.since) : std::nullopt));
  runtime.restored_at = step.now;
  lease.resumed_at = step.now;
  step.snapshot_wanted = true;
  if (attempt.undone) leave_alone(step, lease, std::move(*attempt.undone));
  if (parking.then_stop) {
    note(step, "resumed_to_end");
    return end_as_it_is(step, lease);
  }
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// The daemon or its store failed in the middle of a move: nobody knows which orders were given and carried out.
void finish_half_done(Step& step) {
  for (const LeaseId id : std::exchange(step.state.leases.half_done, {})) {
    Lease* lease = find(step, id);
    if (lease == nullptr || !lease->parking || lease->parked()) continue;
    if (lease->state == LeaseState::pausing)
      undo(step, *lease, ReasonKind::pause_interrupted, {}, {ObstacleCode::interrupted});
    else note(step, "tried_again"), unpark(step, *lease);
  }
}

}  // namespace sublet::core
