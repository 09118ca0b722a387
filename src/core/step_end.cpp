// SPDX-License-Identifier: Apache-2.0
// How leases end: given back, taken back, with their program, or by time alone.
#include "core/stepper.h"

#include "base/mutants.h"
#include "base/text.h"
#include "core/format.h"
#include "core/methods.h"
#include "core/slices.h"

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

// -------------------------------------------------------------------------------- given back

Result<LeaseId> Stepper::on(const Release& fact) {
  if (const Lease* ended = find(fact.lease); ended != nullptr && ended->ended()) return ended->id;
  asked_by_ = fact.asked_by;
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!lease.reserves() || lease.state == LeaseState::offered) {
    end(lease, EndReason::cancelled, fact.revoke ? ReasonKind::cancelled_by_admin : ReasonKind::cancelled_by_owner,
        args("state", to_string(lease.state)));
    return lease.id;
  }
  // The device of the lease is lost. A program that nobody here can end stays under its lease if it may still be
  // resumed, or if no request insists.
  const bool insists = fact.revoke || fact.force;
  const bool gone = state_.given_up(lease, rules_, now_) != nullptr &&
                    (program_may_live(lease) || (insists && !may_be_told_to_go_on(lease)));
  const bool in_vain = lease.state == LeaseState::resuming && state_.runtime_.at(lease.id).retries > 0 &&
                       (fact.force || (fact.revoke && state_.told_in_vain(lease, now_) >= rules_.grace));
  const bool never_runs = lease.state == LeaseState::poisoned || state_.stuck(lease.id) || gone || in_vain;
  const bool as_it_is = fact.force && fact.stop && program_may_live(lease);
  const bool first = !mutant(Mutant::sleepers_are_ended);  // it runs, so that it can save its work
  if (lease.parking && first && !never_runs && !as_it_is && (fact.stop || fact.revoke)) {
    end_after_resume(lease);
    return lease.id;
  }
  const bool others = lease.owner.kind == OwnerKind::process && !program_may_live(lease);  // nobody here ends it
  if (lease.state == LeaseState::poisoned && !fact.revoke && (!fact.stop || others))
    return Error{Code::PauseUnsafe,
                 "the program of " + name_of(lease) +
                     " is poisoned and can never run again; without its lease it would still hold its memory",
                 "end it with its lease: " + end_command(state_, lease)};
  if (lease.parking && !fact.stop && !fact.revoke)
    return Error{Code::PauseUnsafe,
                 "the program of " + name_of(lease) + " is " + std::string(to_string(lease.state)) +
                     ": without its lease the program would never be resumed",
                 "resume it first (`sublet resume " + to_string(lease.id) + "`), or stop it"};
  if (fact.stop && program_may_live(lease)) {
    if (!lease.stop_requested) {
      stop_program(lease);
      explain(lease, ReasonKind::stopping, args("grace", rules_.grace));
      state_.schedule(lease, rules_);
      touch(lease);
    }
    return lease.id;
  }
  ReasonArgs left = lease.parking && lease.had_process && others ? left_program_args(lease) : ReasonArgs();
  if (fact.revoke) {
    end(lease, EndReason::revoked, ReasonKind::revoked_by_admin, std::move(left));
    return lease.id;
  }
  const Use use = state_.use(lease.id);
  const bool unmeasured = state_.snapshot_began_ < state_.runtime_.at(lease.id).restored_at;
  if (!fact.force && (use.used > Bytes{} || use.untold || unmeasured))
    return Error{Code::InUse,
                 "the processes of " + name_of(lease) + " still hold " +
                     (use.used > Bytes{} ? format_size(use.used)
                      : use.untold       ? "an amount of VRAM that the driver does not report"
                                         : "memory that they just got back") +
                     " on " + names_of_devices(state_, lease.devices),
                 "end them first (" + end_command(state_, lease) +
                     "), or use --force: the processes then continue without a lease, and their bytes stay charged"};
  end(lease, EndReason::released, ReasonKind::released_by_owner, std::move(left));
  return lease.id;
}

// -------------------------------------------------------------------------------- the program

Result<LeaseId> Stepper::on(const ProgramEnded& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (!lease->exit_status && fact.exit_status) {
    lease->exit_status = fact.exit_status;
    touch(*lease);
  }
  program_gone(*lease);
  if (lease->ended()) {
    note("exited");
    ended_.push_back(lease->id);
    state_.schedule(*lease, rules_);
  } else if (lease->owner.kind == OwnerKind::token) {
    note("exited");  // a program that was merely booked to it: the lease is its token's
  } else if (lease->state == LeaseState::queued || lease->state == LeaseState::offered) {
    end(*lease, EndReason::cancelled, ReasonKind::ended_while_waiting, args("state", to_string(lease->state)));
  } else if (lease->stop_requested) {
    end(*lease, EndReason::released, ReasonKind::program_stopped, status_args(fact.exit_status));
  } else if (fact.by_signal) {
    const bool named = fact.forwarded && fact.exit_status;
    ReasonArgs killed = status_args(fact.exit_status);
    if (named) killed.add("signal", signal_name(*fact.exit_status - 128));
    end(*lease, EndReason::owner_gone, named ? ReasonKind::program_signalled : ReasonKind::program_killed,
        std::move(killed));
  } else if (!fact.exit_status && lease->owner.keeper) {
    end(*lease, EndReason::owner_gone, ReasonKind::program_lost);
  } else {
    end(*lease, EndReason::released, ReasonKind::program_exited, status_args(fact.exit_status));
  }
  return lease->id;
}

Result<LeaseId> Stepper::on(const ProgramFailed& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (!lease->exit_status) {
    lease->exit_status = fact.exit_status;
    touch(*lease);
  }
  program_gone(*lease);
  if (lease->ended()) {
    note("exited");
    ended_.push_back(lease->id);
    state_.schedule(*lease, rules_);
  } else {
    end(*lease, EndReason::failed, ReasonKind::program_failed, args("detail", fact.detail));
  }
  return lease->id;
}

bool Stepper::program_may_live(const Lease& lease) const {
  // Only a program with a keeper was started by Sublet; what somebody else started is never signalled.
  return !lease.devices.empty() && lease.owner.kind == OwnerKind::process && lease.owner.keeper &&
         !state_.runtime_.at(lease.id).program_ended;
}

void Stepper::program_gone(const Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  if (std::exchange(runtime.program_ended, true)) return;
  runtime.gone_at = now_;
  if (lease.ended()) want_snapshot();
}

// It lives on in the grace that its end left it: what it holds may still become more. Without a word to end it, or one
// that was heard, its lease waits for it no longer than for what it holds.
bool Stepper::may_allocate(const Lease& lease) const {
  return lease.stop_requested && program_may_live(lease) && !state_.runtime_.at(lease.id).killed;
}

void Stepper::stop_program(Lease& lease) {
  if (lease.stop_requested) return;
  lease.stop_requested = true;
  lease.stop_at = now_;
  plan_.actions.emplace_back(SignalProgram{lease.id, false, asked_by_});
}

void Stepper::end_after_resume(Lease& lease) {
  Parking parking = *lease.parking;
  parking.then_stop = true;
  state_.set_parking(lease, std::move(parking), lease.state);
  explain(lease, ReasonKind::stop_deferred, args("signalled", program_may_live(lease)));
  want_back(lease);
  touch(lease);
}

// Nobody would resume processes that the driver parked, once their lease has ended with its connection.
bool Stepper::leaves_parked_processes(const Lease& lease) const {
  return lease.parking && lease.parking->method == PauseMethod::driver && !lease.booked.empty() &&
         lease.state != LeaseState::poisoned && !state_.stuck(lease.id) &&
         state_.given_up(lease, rules_, now_) == nullptr;
}

void Stepper::lose_connection(Lease& lease) {
  if (leaves_parked_processes(lease)) {
    lease.unheld_since.reset();  // it ends however long the resume takes, and whoever holds it again
    if (!lease.parking->then_stop) end_after_resume(lease);
    return;
  }
  const bool waited = lease.state == LeaseState::queued || lease.state == LeaseState::offered;
  end(lease, waited ? EndReason::cancelled : EndReason::owner_gone, ReasonKind::owner_disconnected,
      args("gone", now_ - *lease.unheld_since));
}

// The lease was to end as soon as its program ran again: it runs now, or its memory will never be there. A lease
// without a program that was started here ends at once.
void Stepper::end_as_it_is(Lease& lease) {
  if (!program_may_live(lease)) return end(lease, EndReason::released, ReasonKind::ended_on_resume);
  stop_program(lease);
  state_.schedule(lease, rules_);
  touch(lease);
}

// Counts resume orders that the program itself does not answer. Other failures, such as missing memory or a driver
// call, say nothing about the program, and the count starts again.
void Stepper::note_unanswered(const Lease& lease, const Unparked& fact) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  if (fact.code == "late" || fact.code == "notify_failed") {
    ++runtime.unanswered;
  } else {
    runtime.unanswered = 0;
    runtime.told_since = now_;
  }
  if (does_not_go_on(state_, rules_, lease, now_)) state_.room_stale_ = true;  // it may be ended now
}

// It was to end once it runs, has had its time to save its work, and does not go on though it is told to.
void Stepper::end_unresponsive(Lease& lease) {
  const auto since = state_.told_in_vain(lease, now_);
  if (!lease.parking->then_stop || lease.stop_requested || !(since >= rules_.grace)) return;
  explain(lease, ReasonKind::stopping_unresponsive, args("silent", *since));
  end_as_it_is(lease);
}

// -------------------------------------------------------------------------------- the end

// Whatever held bytes goes on being charged until they are measured gone; without a process there is nothing
// to measure, and the bytes are free at once.
void Stepper::end(Lease& lease, EndReason why, ReasonKind kind, ReasonArgs args) {
  assert(!lease.ended());
  one_piece_ = one_piece_ || state_.runtime_.at(lease.id).given;  // it gives up again what it was given in this step
  const bool ran = lease.state == LeaseState::active;
  // Parked: what it holds was measured then; or it is one that may have taken some again before the driver failed it.
  const bool measured = lease.parked() && !state_.measured_later(lease.id);
  lease.resize.reset();
  drop_request(lease);
  state_.verifying_.erase(lease.id);
  if (lease.parking) state_.set_parking(lease, std::nullopt, LeaseState::active);
  if (state_.queue_.contains(lease.id)) state_.queue_.erase(lease.id);
  if (lease.state == LeaseState::queued) {
    // It held nothing.
  } else if (lease.had_process && !mutant(Mutant::an_end_frees_at_once)) {
    state_.settle(lease.id, measured);
    want_snapshot();
  } else {
    state_.unbook(lease);
  }
  state_.retire(lease);
  lease.state = LeaseState::ended;
  lease.end_reason = why;
  lease.ended_at = now_;
  lease.offer_ends_at.reset();
  lease.unheld_since.reset();
  ++lease.generation;
  // How long a consumer takes is learned from runs that came to their own good end. A process that Sublet did not start
  // has an unknown exit status: a signal may have killed it.
  std::optional<Duration> run;
  const bool good = lease.exit_status ? *lease.exit_status == 0 : kind != ReasonKind::program_exited;
  if (ran && why == EndReason::released && !lease.stop_requested && good) run = now_ - lease.runs_since(now_);
  if (!lease.nameless) state_.remember(lease.whose(), lease.peak_used, run);
  if ((why == EndReason::expired || why == EndReason::revoked || why == EndReason::over_limit) &&
      program_may_live(lease)) {
    stop_program(lease);
    if (!args.flag("killed")) args.add("grace", stop_grace(lease, rules_));
  }
  args.add("end", to_string(why));
  if (!lease.devices.empty()) {
    args.add("size", lease.vram);
    args.add("on", device_names(state_, lease.devices));
    if (lease.peak_used > Bytes{}) args.add("peak", lease.peak_used);
  }
  explain(lease, kind, std::move(args));
  ended_.push_back(lease.id);
  state_.schedule(lease, rules_);
  touch(lease);
}

// -------------------------------------------------------------------------------- time

void Stepper::run_timers() {
  for (auto& timers = state_.timers_; !timers.empty() && timers.begin()->first <= now_;) {
    const auto [due, id] = *timers.begin();
    Lease& lease = *find(id);
    const bool live = !lease.ended();
    fire(lease);
    state_.schedule(lease, rules_);
    const Time next = state_.runtime_.at(id).due;
    assert((next > due || (live && lease.ended())) && "no timer fires twice: this loop comes to an end");
  }
}

void Stepper::fire(Lease& lease) {
  const auto over = [this](const std::optional<Time>& at) { return at && *at <= now_; };
  const bool live = !lease.ended();
  if (!live && over(lease.kept_until)) drop_kept(lease);
  if (live && orphaned(lease)) {
    end_orphan(lease);
  } else if (live && lease.state == LeaseState::active && over(lease.expires_at)) {
    end(lease, EndReason::expired, ReasonKind::time_over, args("ttl", lease.ttl.value_or(Duration{})));
  } else if (live && lease.owner.kind == OwnerKind::connection && over(lease.unheld_since) &&
             std::max(*lease.unheld_since + rules_.linger, state_.runtime_.at(lease.id).grace_until) <= now_) {
    lose_connection(lease);
  } else if (live && lease.state == LeaseState::offered && over(lease.offer_ends_at)) {
    lapse(lease);
  } else {
    const State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
    const bool stopping = lease.stop_requested && lease.stop_at && !runtime.killed && !runtime.program_ended;
    if (stopping && *lease.stop_at + stop_grace(lease, rules_) <= now_) kill(lease);
    const bool moves = live && (lease.state == LeaseState::pausing || lease.state == LeaseState::resuming);
    if (moves && runtime.overdue_at <= now_) mark_overdue(lease);
    if (moves && runtime.look_at <= now_) look_again(lease);
  }
}

void Stepper::kill(const Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.killed = true;
  runtime.gone_at = now_;
  want_snapshot();
  plan_.actions.emplace_back(SignalProgram{lease.id, true});
  explain(lease, ReasonKind::killing, args("asked", now_ - *lease.stop_at));
}

// The process that waits for the lease by an open connection, and does not claim its offer: stopped, for example.
std::optional<std::int32_t> Stepper::silent_waiter(const Lease& lease) const {
  const State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  return runtime.held && runtime.waiter != 0 ? std::optional(runtime.waiter) : std::nullopt;
}

// Once it queues again behind its equals; who lets it pass twice is not there.
void Stepper::lapse(Lease& lease) {
  ++lease.lapsed_offers;
  if (lease.lapsed_offers >= 2) {
    end(lease, EndReason::unclaimed, ReasonKind::unclaimed,
        args("waiter", silent_waiter(lease), "window", rules_.claim_window));
    return;
  }
  state_.unbook(lease);
  lease.devices.clear();
  state_.runtime_.at(lease.id).charges.clear();
  lease.vram = lease.asked_vram;
  lease.granted_at.reset();
  lease.offer_ends_at.reset();
  drop_request(lease);
  ++lease.generation;
  enqueue(lease);
  explain(lease, ReasonKind::lapsed,
          args("waiter", silent_waiter(lease), "window", rules_.claim_window, "place", state_.queue_.place(lease.id)));
}

}  // namespace sublet::core
