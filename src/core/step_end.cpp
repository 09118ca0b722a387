// SPDX-License-Identifier: Apache-2.0
// How leases end: given back, taken back, with their program, or by time alone.
#include "core/step_end.h"
#include "core/current_step.h"
#include "core/step_away.h"
#include "core/step_capability.h"
#include "core/step_pause.h"
#include "core/step_request.h"
#include "core/step_resume.h"
#include "core/step_snapshot.h"
#include "core/step_submit.h"
#include "core/step_verify.h"

#include "base/mutants.h"
#include "base/text.h"
#include "core/slices.h"
#include "state/format.h"
#include "state/methods.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace sublet::core {
namespace {

// A program that Sublet did not start goes on without its lease.
ReasonArgs left_program_args(const Lease& lease) {
  return args("stays_parked", lease.parked(), "not_back", !lease.parked());
}

ReasonArgs status_args(const std::optional<int>& status) { return args("status", status); }

}  // namespace

// Only an admin may end the lease of another user.
static bool is_by_another(const Step& step, const Lease& lease) { return step.asked_by && *step.asked_by != lease.uid; }

static void program_gone(Step& step, const Lease& lease);
static void end_after_resume(Step& step, Lease& lease);
static void fire(Step& step, Lease& lease);
static void lapse(Step& step, Lease& lease);

// -------------------------------------------------------------------------------- given back

Result<LeaseId> on(Step& step, const Release& fact) {
  if (const Lease* ended = find(step, fact.lease); ended != nullptr && ended->ended()) return ended->id;
  step.asked_by = fact.asked_by;
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!lease.reserves() || lease.state == LeaseState::offered) {
    end(step, lease, EndReason::cancelled,
        fact.revoke ? ReasonKind::cancelled_by_admin : ReasonKind::cancelled_by_owner,
        args("state", to_string(lease.state)));
    return lease.id;
  }
  // None of its processes lives any more, so that nothing is left to be resumed.
  const bool is_empty = lease.owner.kind == OwnerKind::token && lease.parking && lease.parking->orphaned_since;
  if (is_empty && fact.force && !fact.stop) {
    end(step, lease, EndReason::released, ReasonKind::released_by_owner);
    return lease.id;
  }
  // The device of the lease is lost. A program that nobody here can end stays under its lease if it may still be
  // resumed, or if no request insists.
  const bool insists = fact.revoke || fact.force;
  const bool gone = given_up_device(step.state, lease, step.rules, step.now) != nullptr &&
                    (program_may_live(step, lease) || (insists && !may_be_told_to_go_on(step, lease)));
  const bool in_vain = lease.state == LeaseState::resuming && attempt_of(step.state, lease.id)->failures > 0 &&
                       (fact.force || (fact.revoke && unanswered_for(step.state, lease, step.now) >= step.rules.grace));
  const bool never_runs = lease.state == LeaseState::poisoned || is_stuck(step.state, lease.id) || gone || in_vain;
  const bool as_it_is = fact.force && fact.stop && program_may_live(step, lease);
  const bool first = !mutant(Mutant::sleepers_are_ended);  // it runs, so that it can save its work
  if (lease.parking && first && !never_runs && !as_it_is && (fact.stop || fact.revoke)) {
    end_after_resume(step, lease);
    return lease.id;
  }
  const bool others = lease.owner.kind == OwnerKind::process && !program_may_live(step, lease);  // nobody here ends it
  if (lease.state == LeaseState::poisoned && !fact.revoke && (!fact.stop || others))
    return Error{Code::PauseUnsafe,
                 "the program of " + name_of(lease) +
                     " is poisoned and can never run again; without its lease it would still hold its memory",
                 "end it with its lease: " + end_command(step.state, lease)};
  if (lease.parking && !fact.stop && !fact.revoke)
    return Error{Code::PauseUnsafe,
                 "the program of " + name_of(lease) + " is " + std::string(to_string(lease.state)) +
                     ": without its lease the program would never be resumed",
                 "resume it first (`sublet resume " + to_string(lease.id) + "`), or stop it"};
  if (fact.stop && program_may_live(step, lease)) {
    if (!lease.stop_requested) {
      stop_program(step, lease);
      explain(step, lease, ReasonKind::stopping,
              args("grace", step.rules.grace, "by_admin", is_by_another(step, lease)));
      schedule(step.state, lease, step.rules);
      touch(step, lease);
    }
    return lease.id;
  }
  ReasonArgs left = lease.parking && lease.had_process && others ? left_program_args(lease) : ReasonArgs();
  if (fact.revoke) {
    end(step, lease, EndReason::revoked, ReasonKind::revoked_by_admin, std::move(left));
    return lease.id;
  }
  const Use use = use_of(step.state, lease.id);
  const bool unmeasured = step.state.devices.snapshot_began < step.state.leases.runtime.at(lease.id).restored_at;
  if (!fact.force && (use.used > Bytes{} || use.untold || unmeasured))
    return Error{Code::InUse,
                 "the processes of " + name_of(lease) + " still hold " +
                     (use.used > Bytes{} ? format_size(use.used)
                      : use.untold       ? "an amount of VRAM that the driver does not report"
                                         : "memory that they just got back") +
                     " on " + names_of_devices(step.state, lease.devices),
                 "end them first (" + end_command(step.state, lease) +
                     "), or use --force: the processes then continue without a lease, and their bytes stay charged"};
  end(step, lease, EndReason::released, ReasonKind::released_by_owner, std::move(left));
  return lease.id;
}

// -------------------------------------------------------------------------------- the program

Result<LeaseId> on(Step& step, const ProgramEnded& fact) {
  Lease* lease = find(step, fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (!lease->exit_status && fact.exit_status) {
    lease->exit_status = fact.exit_status;
    touch(step, *lease);
  }
  program_gone(step, *lease);
  if (lease->ended()) {
    note(step, "exited");
    step.ended.push_back(lease->id);
    schedule(step.state, *lease, step.rules);
  } else if (lease->owner.kind == OwnerKind::token) {
    note(step, "exited");  // a program that was merely booked to it: the lease is its token's
  } else if (lease->state == LeaseState::queued || lease->state == LeaseState::offered) {
    end(step, *lease, EndReason::cancelled, ReasonKind::ended_while_waiting, args("state", to_string(lease->state)));
  } else if (lease->stop_requested) {
    end(step, *lease, EndReason::released, ReasonKind::program_stopped, status_args(fact.exit_status));
  } else if (fact.by_signal) {
    const bool named = fact.forwarded && fact.exit_status;
    ReasonArgs killed = status_args(fact.exit_status);
    if (named) killed.add("signal", signal_name(*fact.exit_status - 128));
    end(step, *lease, EndReason::owner_gone, named ? ReasonKind::program_signalled : ReasonKind::program_killed,
        std::move(killed));
  } else if (!fact.exit_status && lease->owner.keeper) {
    end(step, *lease, EndReason::owner_gone, ReasonKind::program_lost);
  } else {
    end(step, *lease, EndReason::released, ReasonKind::program_exited, status_args(fact.exit_status));
  }
  if (fact.at && lease->ended_at == step.now)
    lease->ended_at = std::clamp(*fact.at, lease->granted_at.value_or(step.now), step.now);
  return lease->id;
}

Result<LeaseId> on(Step& step, const ProgramFailed& fact) {
  Lease* lease = find(step, fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (!lease->exit_status) {
    lease->exit_status = fact.exit_status;
    touch(step, *lease);
  }
  program_gone(step, *lease);
  if (lease->ended()) {
    note(step, "exited");
    step.ended.push_back(lease->id);
    schedule(step.state, *lease, step.rules);
  } else {
    end(step, *lease, EndReason::failed, ReasonKind::program_failed, args("detail", fact.detail));
  }
  return lease->id;
}

bool program_may_live(const Step& step, const Lease& lease) {
  // Only a program with a keeper was started by Sublet; what somebody else started is never signalled.
  return !lease.devices.empty() && lease.owner.kind == OwnerKind::process && lease.owner.keeper &&
         !step.state.leases.runtime.at(lease.id).program_ended;
}

static void program_gone(Step& step, const Lease& lease) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  if (std::exchange(runtime.program_ended, true)) return;
  runtime.gone_at = step.now;
  if (lease.ended()) step.snapshot_wanted = true;
}

// It lives on in the grace that its end left it: what it holds may still become more. Without a word to end it, or one
// that was heard, its lease waits for it no longer than for what it holds.
bool may_allocate(const Step& step, const Lease& lease) {
  return lease.stop_requested && program_may_live(step, lease) && !step.state.leases.runtime.at(lease.id).killed;
}

void stop_program(Step& step, Lease& lease) {
  if (lease.stop_requested) return;
  lease.stop_requested = true;
  lease.stop_at = step.now;
  step.plan.actions.emplace_back(SignalProgram{lease.id, false, step.asked_by});
}

static void end_after_resume(Step& step, Lease& lease) {
  Parking parking = *lease.parking;
  parking.then_stop = true;
  set_parking(step.state, lease, std::move(parking), lease.state);
  explain(step, lease, ReasonKind::stop_deferred,
          args("signalled", program_may_live(step, lease), "by_admin", is_by_another(step, lease)));
  want_back(step, lease);
  touch(step, lease);
}

// Nobody would resume processes that the driver parked, once their lease has ended with its connection.
static bool leaves_parked_processes(const Step& step, const Lease& lease) {
  return lease.parking && lease.parking->method == PauseMethod::driver && !lease.booked.empty() &&
         lease.state != LeaseState::poisoned && !is_stuck(step.state, lease.id) &&
         given_up_device(step.state, lease, step.rules, step.now) == nullptr;
}

static void lose_connection(Step& step, Lease& lease) {
  if (leaves_parked_processes(step, lease)) {
    lease.unheld_since.reset();  // it ends however long the resume takes, and whoever holds it again
    if (!lease.parking->then_stop) end_after_resume(step, lease);
    return;
  }
  const bool waited = lease.state == LeaseState::queued || lease.state == LeaseState::offered;
  end(step, lease, waited ? EndReason::cancelled : EndReason::owner_gone, ReasonKind::owner_disconnected,
      args("gone", step.now - *lease.unheld_since));
}

// The lease was to end as soon as its program ran again: it runs now, or its memory will never be there. A lease
// without a program that was started here ends at once.
void end_as_it_is(Step& step, Lease& lease) {
  if (!program_may_live(step, lease)) return end(step, lease, EndReason::released, ReasonKind::ended_on_resume);
  stop_program(step, lease);
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// Counts resume orders that the program itself does not answer. Other failures, such as missing memory or a driver
// call, say nothing about the program, and the count starts again.
void note_unanswered(Step& step, const Lease& lease, const Unparked& fact) {
  Attempt& attempt = *step.state.leases.runtime.at(lease.id).attempt;
  if (fact.code == ObstacleCode::late || fact.code == ObstacleCode::notify_failed) {
    ++attempt.unanswered;
  } else {
    attempt.unanswered = 0;
    attempt.told_since = step.now;
  }
  if (does_not_go_on(step.state, step.rules, lease, step.now))
    step.state.preemption.stale = true;  // it may be ended now
}

// It was to end once it runs, has had its time to save its work, and does not go on though it is told to.
void end_unresponsive(Step& step, Lease& lease) {
  const auto since = unanswered_for(step.state, lease, step.now);
  if (!lease.parking->then_stop || lease.stop_requested || !(since >= step.rules.grace)) return;
  explain(step, lease, ReasonKind::stopping_unresponsive, args("silent", *since));
  end_as_it_is(step, lease);
}

// -------------------------------------------------------------------------------- the end

// Whatever held bytes goes on being charged until they are measured gone; without a process there is nothing
// to measure, and the bytes are free at once.
void end(Step& step, Lease& lease, EndReason why, ReasonKind kind, ReasonArgs args) {
  assert(!lease.ended());
  const bool ran = lease.state == LeaseState::active;
  // Parked: what it holds was measured then; or it is one that may have taken some again before the driver failed it.
  const bool measured = lease.parked() && !is_measured_later(step.state, lease.id);
  lease.resize.reset();
  drop_request(step, lease);
  step.state.pauses.verifying.erase(lease.id);
  if (lease.parking) set_parking(step.state, lease, std::nullopt, LeaseState::active);
  step.state.leases.runtime.at(lease.id).attempt.reset();
  if (step.state.queue.contains(lease.id)) step.state.queue.erase(lease.id);
  if (lease.state == LeaseState::queued) {
    // It held nothing.
  } else if (lease.had_process && !mutant(Mutant::an_end_frees_at_once)) {
    settle(step.state, lease.id, measured);
    step.snapshot_wanted = true;
  } else {
    unbook(step.state, lease);
  }
  retire_lease(step.state, lease);
  lease.state = LeaseState::ended;
  lease.end_reason = why;
  lease.ended_at = step.now;
  lease.offer_ends_at.reset();
  lease.held_back_at.reset();
  lease.unheld_since.reset();
  ++lease.generation;
  // How long a consumer takes is learned from runs that came to their own good end. A process that Sublet did not start
  // has an unknown exit status: a signal may have killed it.
  std::optional<Duration> run;
  const bool good = lease.exit_status ? *lease.exit_status == 0 : kind != ReasonKind::program_exited;
  if (ran && why == EndReason::released && !lease.stop_requested && good) run = step.now - lease.runs_since(step.now);
  if (!lease.nameless) remember(step.state, lease.whose(), lease.peak_used, run);
  if ((why == EndReason::expired || why == EndReason::revoked || why == EndReason::over_limit) &&
      program_may_live(step, lease)) {
    stop_program(step, lease);
    if (!args.flag("killed")) args.add("grace", stop_grace(lease, step.rules));
  }
  args.add("end", to_string(why));
  if (!lease.devices.empty()) {
    args.add("size", lease.vram);
    args.add("on", device_names(step.state, lease.devices));
    if (lease.peak_used > Bytes{}) args.add("peak", lease.peak_used);
  }
  explain(step, lease, kind, std::move(args));
  step.ended.push_back(lease.id);
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// -------------------------------------------------------------------------------- time

void run_timers(Step& step) {
  for (auto& timers = step.state.leases.timers; !timers.empty() && timers.begin()->first <= step.now;) {
    const auto [due, id] = *timers.begin();
    Lease& lease = *find(step, id);
    const bool live = !lease.ended();
    fire(step, lease);
    schedule(step.state, lease, step.rules);
    const Time next = step.state.leases.runtime.at(id).due;
    assert((next > due || (live && lease.ended())) && "no timer fires twice: this loop comes to an end");
  }
}

static void fire(Step& step, Lease& lease) {
  const auto over = [&step](const std::optional<Time>& at) { return at && *at <= step.now; };
  const bool live = !lease.ended();
  if (!live && over(lease.kept_until)) drop_kept(step, lease);
  if (live && orphaned(step, lease)) {
    end_orphan(step, lease);
  } else if (live && lease.state == LeaseState::active && over(lease.expires_at)) {
    end(step, lease, EndReason::expired, ReasonKind::time_over, args("ttl", lease.ttl.value_or(Duration{})));
  } else if (live && lease.owner.kind == OwnerKind::connection && over(lease.unheld_since) &&
             std::max(*lease.unheld_since + step.rules.linger, step.state.leases.runtime.at(lease.id).grace_until) <=
                 step.now) {
    lose_connection(step, lease);
  } else if (live && lease.state == LeaseState::offered && over(lease.offer_ends_at)) {
    lapse(step, lease);
  } else {
    const LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
    const bool stopping = lease.stop_requested && lease.stop_at && !runtime.killed && !runtime.program_ended;
    if (stopping && *lease.stop_at + stop_grace(lease, step.rules) <= step.now) kill(step, lease);
    if (live && runtime.attempt && runtime.attempt->overdue_at <= step.now) mark_overdue(step, lease);
    if (live && runtime.attempt && runtime.attempt->look_at <= step.now) look_again(step, lease);
  }
}

void kill(Step& step, const Lease& lease, ReasonArgs args) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  runtime.killed = true;
  runtime.gone_at = step.now;
  step.snapshot_wanted = true;
  step.plan.actions.emplace_back(SignalProgram{lease.id, true});
  args.add("asked", step.now - *lease.stop_at);
  explain(step, lease, ReasonKind::killing, std::move(args));
}

// The process that waits for the lease by an open connection, and does not claim its offer: stopped, for example.
static std::optional<std::int32_t> silent_waiter(const Step& step, const Lease& lease) {
  const LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  return runtime.held && runtime.waiter != 0 ? std::optional(runtime.waiter) : std::nullopt;
}

// Once it queues again behind its equals; who lets it pass twice is not there.
static void lapse(Step& step, Lease& lease) {
  ++lease.lapsed_offers;
  if (lease.lapsed_offers >= 2) {
    end(step, lease, EndReason::unclaimed, ReasonKind::unclaimed,
        args("waiter", silent_waiter(step, lease), "window", step.rules.claim_window));
    return;
  }
  unbook(step.state, lease);
  lease.devices.clear();
  step.state.leases.runtime.at(lease.id).charges.clear();
  lease.vram = lease.asked_vram;
  lease.granted_at.reset();
  lease.offer_ends_at.reset();
  drop_request(step, lease);
  ++lease.generation;
  enqueue(step, lease);
  explain(step, lease, ReasonKind::lapsed,
          args("waiter", silent_waiter(step, lease), "window", step.rules.claim_window, "place",
               step.state.queue.place(lease.id)));
}

}  // namespace sublet::core
