// SPDX-License-Identifier: Apache-2.0
// Pauses and resumes of a lease, in two phases each. A pause is ordered, and then it is verified. For a resume the
// memory is reserved, and then the program is restored. A failure on the way is undone by a resume, repeated until the
// program is known to run: "not verified" never means "active".
#include "core/methods.h"
#include "core/stepper.h"

#include "base/mutants.h"
#include "base/size_bounds.h"
#include "core/format.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration first_retry = 1s;  // of a resume that did not come through; doubled each time
constexpr Duration longest_retry = 30s;

// Advice for a full ledger: free other parked bytes or, if there are none, give back the unused part of the size.
std::string ledger_hint(const State& state, const Lease& lease, Bytes free, Bytes entered, const std::string& parked,
                        const std::string& keys) {
  if (entered > Bytes{}) return "resume or end " + parked + ", or raise " + keys;
  const std::string raise = "an admin can raise " + keys + " in sublet.toml";
  Bytes used = least_lease;
  for (const std::string& device : lease.devices) used = std::max(used, state.charge(lease.id, device).used);
  const bool helps = static_cast<std::int64_t>(lease.devices.size()) * used <= free;
  if (state.use(lease.id).untold || !helps) return raise;
  std::string size = format_size_up(used);
  std::erase(size, ' ');
  return "it uses less than it leased: `sublet resize " + to_string(lease.id) + " " + size +
         "` gives back the rest; or " + raise;
}

// The cause of a pause as arguments of a reason.
ReasonArgs args_of(const PauseCause& cause) {
  ReasonArgs all = args("cause", to_string(cause.kind));
  all.add(cause.args);
  return all;
}

// The lease promises its size and no more: memory that it allocated while paused stands in its own way.
ReasonArgs resume_failed_args(const Lease& lease, const std::string& detail) {
  Bytes beside;
  for (const HeldWhenPaused& its : lease.parking->held_when_paused) beside += its.beside;
  ReasonArgs all = args("detail", detail);
  if (beside > Bytes{}) all.add(args("beside", beside, "parked", lease.parking->host_bytes, "vram", lease.vram));
  return all;
}

std::string percent(double part) { return std::to_string(std::lround(part * 100)) + " %"; }

}  // namespace

// -------------------------------------------------------------------------------- asked to yield

Status Stepper::check_pause(const Lease& lease, const HostMemory& host) const {
  if (lease.state != LeaseState::active)
    return Error{Code::Stale,
                 "pause needs a lease that is active; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
                 "`sublet why " + to_string(lease.id) + "` says what it waits for"};
  if (lease.stop_requested)
    return Error{Code::PauseUnsafe, name_of(lease) + " cannot be paused: its program is being ended",
                 "wait for its end: `sublet wait`"};
  if (const auto method = pause_method_of(state_, lease); !method) return method.error();
  return check_host(lease, host);
}

Status Stepper::check_host(const Lease& lease, const HostMemory& host) const {
  if (const Status may = check_swap(lease, host); !may) return may;
  if (host.pressure.value_or(0) > rules_.ledger_max_pressure && !mutant(Mutant::pressure_does_not_matter))
    return Error{Code::HostMemory,
                 name_of(lease) + " cannot be parked: the machine waited for memory for " + percent(*host.pressure) +
                     " of the last 10 s (limit " + percent(rules_.ledger_max_pressure) + ", `ledger.max_pressure`)",
                 "retry later, end a program that uses much host memory, or raise `ledger.max_pressure`"};
  const Bytes bytes = held_by(state_, lease);
  const Bytes free = state_.ledger_free(rules_, host, lease.uid);
  if (bytes <= free || mutant(Mutant::ledger_has_no_limit)) return {};
  const Bytes limit_left = rules_.ledger_limit - state_.ledger_entries();
  const Bytes share_left = State::ledger_share(rules_) - state_.ledger_of(lease.uid);
  const auto [holds, takes] = format_sizes_apart(bytes, free);
  std::string text = name_of(lease) + " holds " + holds + ", but only " + takes +
                     " more may be parked: " + format_size(state_.ledger_entries()) + " of " +
                     format_size(rules_.ledger_limit) + " of `ledger.limit` are in use";
  const bool shares = !state_.alone(lease.uid);
  if (shares)
    text += ", " + format_size(state_.ledger_of(lease.uid)) + " of the " + format_size(State::ledger_share(rules_)) +
            " that one user may take (" + lease.user + ")";
  text += "; " + format_size(host.available) + " of host memory is available, and " +
          format_size(rules_.ledger_reserve) + " of it stays free (`ledger.reserve`)";
  if (host.headroom) text += "; the control group of its program may take " + format_size(*host.headroom) + " more";
  // The limit that leaves least is the obstacle, and the hint is about that limit.
  std::string hint = "end a program that uses much host memory, or lower ledger.reserve";
  if (free >= limit_left)
    hint = ledger_hint(state_, lease, free, state_.ledger_entries(), "parked programs", "ledger.limit");
  else if (shares && free >= share_left)
    hint = ledger_hint(state_, lease, free, state_.ledger_of(lease.uid), "parked programs of this user",
                       "ledger.user_share or ledger.limit");
  else if (host.headroom && free >= *host.headroom - state_.ledger_unsettled())
    hint = "raise memory.max of the control group that its program is in";
  return Error{
      Code::HostMemory, std::move(text), std::move(hint), {{"held_bytes", bytes.count}, {"free_bytes", free.count}}};
}

Error Stepper::never_runs_again(const Lease& lease) const {
  return {Code::PauseUnsafe, name_of(lease) + " is poisoned: " + text_of(lease.parking->cause),
          lease.stop_requested ? "its program is being ended"
                               : end_command(state_, lease) + " ends it; nothing makes its program run again"};
}

Result<LeaseId> Stepper::on(const Pause& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  const bool relapsed = lease.state == LeaseState::paused && state_.runtime_.at(lease.id).relapsed;
  if (lease.state == LeaseState::poisoned) return never_runs_again(lease);
  if (fact.again) return relapsed ? pause_on_top(lease, fact.host) : Result<LeaseId>(lease.id);
  if (lease.parking && lease.state != LeaseState::resuming) {
    if (lease.parking->then_stop)
      return Error{Code::PauseUnsafe, name_of(lease) + " is to be ended as soon as its program runs again",
                   "wait for its end: `sublet wait`"};
    if (lease.state == LeaseState::paused && lease.parking->resume_requested)
      withdraw_return(lease, ReasonKind::resume_withdrawn);
    else if (lease.state == LeaseState::pausing && lease.parking->resume_requested) stay_paused(lease);
    return relapsed ? pause_on_top(lease, fact.host) : Result<LeaseId>(lease.id);
  }
  if (const Status may = check_pause(lease, fact.host); !may) return may.error();
  begin_pause(lease, fact.cause, false);
  return lease.id;
}

// `resume_requested`: it waits to resume as soon as it is paused.
void Stepper::begin_pause(Lease& lease, PauseCause cause, bool resume_requested) {
  if (lease.resize) withdraw_resize(lease, ReasonKind::resize_withdrawn_by_pause);
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.tried = 0;
  runtime.yields_for = {};
  runtime.blocked_by = 0;
  runtime.left_alone.hint.clear();
  runtime.inhabited.reset();
  Parking parking;
  parking.since = now_;
  parking.cause = std::move(cause);
  parking.resume_requested = resume_requested;
  const auto open = open_methods_of(state_, lease, now_);  // none: its owner wants it tried all the same
  ask_to_yield(lease, open.empty() ? *pause_method_of(state_, lease) : open.front(), std::move(parking));
}

// `parking`: the start, the cause, and the entries and orders of earlier attempts.
void Stepper::ask_to_yield(Lease& lease, PauseMethod method, Parking parking) {
  const bool cooperative = method == PauseMethod::cooperative;
  const Bytes held = held_by(state_, lease);
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  parking.method = method;
  parking.host_bytes = held;
  parking.measured = false;
  parking.residue = residue_of(state_, lease, method);
  parking.locked_processes.emplace();
  state_.note_asked(lease, parking, rules_, now_);
  parking.told = parking.told || (cooperative && !mutant(Mutant::nobody_is_told_to_go_on));
  ReasonArgs why = args_of(parking.cause);
  why.add("bytes", held);
  why.add("devices", device_names(state_, lease.devices));
  if (cooperative) why.add("within", yield_time(lease));
  explain(lease, cooperative ? ReasonKind::pausing_by_program : ReasonKind::pausing_by_driver, std::move(why));
  runtime.begun = parking.told;
  state_.set_parking(lease, std::move(parking), LeaseState::pausing);
  lease.expires_at.reset();  // its time stands still: who is parked cannot renew
  runtime.acting = true;
  runtime.relapsed = false;
  runtime.next.reset();
  runtime.on_top.reset();
  runtime.tried |= bit_of(method);
  runtime.tops_failed = 0;
  runtime.yielded_at.reset();
  runtime.held_at.reset();
  runtime.undone.reset();
  runtime.moved = state_.use(lease.id).used;
  runtime.moving_since = now_;
  runtime.unlisted.clear();
  look_at_unlisted(lease);
  const Duration at_most = cooperative ? yield_time(lease) : driver_time(lease, Move::pause);
  runtime.overdue = false;
  runtime.acting_since = now_;
  runtime.overdue_at = cooperative ? Time::never() : now_ + at_most;
  plan_.actions.emplace_back(Park{lease.id, method, at_most, given_up_after * driver_time(lease, Move::pause)});
  state_.schedule(lease, rules_);
  touch(lease);
}

// Stored before the driver locks any process: after a restart only this note tells which processes may be parked.
Result<LeaseId> Stepper::on(const LockIntent& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || !lease->parking) return not_found(to_string(fact.lease) + " is not being paused");
  const State::LeaseRuntime& runtime = state_.runtime_.at(lease->id);
  const bool on_top = lease->state == LeaseState::paused && runtime.on_top;
  const bool asked = lease->state == LeaseState::pausing && runtime.acting;
  if (!on_top && (!asked || lease->parking->method == PauseMethod::cooperative))
    return not_found(to_string(fact.lease) + " is not being paused");
  Parking parking = *lease->parking;
  if (on_top) parking.method = *runtime.on_top;
  if (parking.locked_processes) parking.locked_processes = fact.processes;
  // The residue allows for all processes that are locked, listed or new.
  const Bytes kept = static_cast<std::int64_t>(fact.processes.size()) * driver_keeps;
  parking.residue = std::max(parking.residue, std::min(kept, lease->vram));
  note("lock_intent");
  state_.runtime_.at(lease->id).begun = true;
  state_.set_parking(*lease, std::move(parking), lease->state);
  plan_.actions.emplace_back(Lock{lease->id});
  touch(*lease);
  return lease->id;
}

Result<LeaseId> Stepper::on(const Parked& fact) {
  Lease* lease = find(fact.lease);
  if (lease != nullptr && lease->state == LeaseState::paused && state_.runtime_.at(lease->id).on_top)
    return parked_on_top(*lease, fact);
  if (lease == nullptr || lease->state != LeaseState::pausing)
    return not_found(to_string(fact.lease) + " is not being paused");
  State::LeaseRuntime& runtime = state_.runtime_.at(lease->id);
  runtime.acting = false;
  runtime.overdue = fact.stuck;
  runtime.overdue_at = Time::never();
  if (!fact.done) {
    runtime.begun |= !fact.undone;
    if (fact.undone && lease->parking->locked_processes) {
      Parking parking = *lease->parking;
      parking.locked_processes->clear();
      state_.set_parking(*lease, std::move(parking), LeaseState::pausing);
    }
    note_unfit(*lease, fact);
    const Time began = runtime.moving_since;
    fail(*lease, ReasonKind::pause_failed, args("detail", fact.detail), fact.hindrance);
    const auto method = pause_method_of(state_, *lease);
    if (runtime.undone) runtime.undone->hint = method ? fact.hint : method.error().hint;
    if (fact.stuck) runtime.late_since = began;
    return lease->id;
  }
  if (fact.bytes) {
    Parking parking = *lease->parking;
    parking.host_bytes = runtime.parked = *fact.bytes;
    parking.measured = true;
    state_.set_parking(*lease, std::move(parking), LeaseState::pausing);
    note("bytes_parked");
    touch(*lease);
  }
  runtime.yielded_at = now_;
  runtime.proofs = 0;
  runtime.unverified = false;
  if (mutant(Mutant::yielding_is_not_verified)) return settle_down(*lease), lease->id;
  state_.verifying_.insert(lease->id);
  look_again(*lease);
  state_.schedule(*lease, rules_);
  return lease->id;
}

// -------------------------------------------------------------------------------- back again

Result<LeaseId> Stepper::on(const Resume& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::poisoned) return never_runs_again(lease);
  if (lease.state == LeaseState::active) return lease.id;
  if (!lease.parking)
    return Error{
        Code::Stale,
        "resume needs a lease that is paused; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
        lease.ended() ? "ask for a new lease" : "`sublet why " + to_string(lease.id) + "` says what it waits for"};
  want_back(lease);
  return lease.id;
}

void Stepper::want_back(Lease& lease) {
  const bool undoing = lease.state == LeaseState::resuming;
  if (undoing && std::exchange(state_.runtime_.at(lease.id).next, std::nullopt)) state_.room_stale_ = true;
  if (lease.state == LeaseState::poisoned || lease.parking->resume_requested) return;
  Parking parking = *lease.parking;
  parking.resume_requested = true;
  state_.set_parking(lease, std::move(parking), lease.state);
  touch(lease);
  note(lease.state == LeaseState::pausing || undoing ? "resume_requested_early" : "resume_queued");
  if (lease.state == LeaseState::pausing || undoing) return;  // one thing after the other
  if (mutant(Mutant::back_without_room)) return state_.requeue_in_place(lease), bring_back(lease);
  state_.requeue_in_place(lease);
  grant_waiting();
  may_be_blocked_.push_back(lease.id);
  if (lease.state == LeaseState::paused) explain(lease, ReasonKind::resume_queued, place_args(lease));
}

// The memory is its own before anything is restored into it.
void Stepper::bring_back(Lease& lease) {
  bring_back(
      lease, ReasonKind::resuming,
      args("vram", lease.vram, "devices", device_names(state_, lease.devices), "away", now_ - lease.parking->since));
}

void Stepper::bring_back(Lease& lease, ReasonKind kind, ReasonArgs args) {
  if (state_.queue_.contains(lease.id)) state_.queue_.erase(lease.id);
  Parking parking = *lease.parking;
  state_.note_beside(lease, parking);
  parking.before_top.reset();
  state_.set_parking(lease, std::move(parking), LeaseState::resuming);
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.on_top.reset();  // what is still to be parked is brought back after that
  runtime.back_at = runtime.told_since = now_;
  runtime.grown.clear();
  runtime.moving_since = now_;
  runtime.moved = state_.to_move(lease);
  explain(lease, kind, std::move(args));
  unpark(lease);
  touch_given(lease);
}

// It was paused for another lease, or its resume was requested, and now its owner pauses it.
void Stepper::stay_paused(Lease& lease) {
  Parking parking = *lease.parking;
  parking.resume_requested = false;
  state_.set_parking(lease, std::move(parking), lease.state);
  explain(lease, ReasonKind::stays_after_pausing);
  touch(lease);
}

// Withdraws the wait to resume. A lease that is to end as soon as it runs is ended as it is.
void Stepper::withdraw_return(Lease& lease, ReasonKind kind, ReasonArgs args) {
  state_.queue_.erase(lease.id);
  Parking parking = *lease.parking;
  parking.resume_requested = false;
  const bool stop = std::exchange(parking.then_stop, false);
  state_.set_parking(lease, std::move(parking), lease.state);
  explain(lease, stop ? ReasonKind::stopping_instead_of_return : kind, std::move(args));
  touch(lease);
  if (stop) end_as_it_is(lease);
}

void Stepper::unpark(Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.look_at = Time::never();
  const Parking& parking = *lease.parking;
  if (!std::exchange(runtime.acting, true)) {
    const Duration at_most = driver_time(lease, Move::resume);
    runtime.acting_since = now_;
    if (!runtime.overdue && parking.method == PauseMethod::driver)
      runtime.overdue_at = now_ + at_most + (parking.told ? rules_.yield_timeout : Duration{});
    plan_.actions.emplace_back(Unpark{lease.id, parking.method, parking.told, rules_.yield_timeout,
                                      parking.locked_processes, given_up_after * at_most});
  }
  state_.schedule(lease, rules_);
  touch(lease);
}

Result<LeaseId> Stepper::on(const DriverReturned& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || lease->state != LeaseState::resuming)
    return not_found(to_string(fact.lease) + " is not being resumed");
  State::LeaseRuntime& runtime = state_.runtime_.at(lease->id);
  // The time of a late call is learned like any other: a slow link gets that time the next time.
  if (const auto since = std::exchange(runtime.late_since, std::nullopt))
    learn(*lease, Move::pause, runtime.moved, std::min(now_ - *since, driver_limit));
  if (!runtime.acting) look_again(*lease);
  return lease->id;
}

Result<LeaseId> Stepper::on(const Unparked& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || lease->state != LeaseState::resuming)
    return not_found(to_string(fact.lease) + " is not being resumed");
  State::LeaseRuntime& runtime = state_.runtime_.at(lease->id);
  runtime.acting = false;
  runtime.overdue_at = Time::never();
  runtime.overdue = fact.how == Unparked::How::not_yet && fact.code == "stuck";
  runtime.no_room = fact.how == Unparked::How::not_yet && fact.no_room;
  if (fact.how == Unparked::How::not_yet) {
    const Duration pause = std::min(first_retry * (1 << std::min(runtime.retries, 5)), longest_retry);
    if (runtime.retries++ == 0 || fact.code != runtime.not_back_code)
      explain(*lease, ReasonKind::resume_failed, resume_failed_args(*lease, fact.detail));
    runtime.not_back = fact.detail;
    runtime.not_back_code = fact.code;
    runtime.look_at = now_ + pause;
    note_unanswered(*lease, fact);
    if (runtime.next) runtime.next.reset(), state_.room_stale_ = true;  // who waits for its room looks elsewhere
    may_be_blocked_.push_back(lease->id);
    end_unresponsive(*lease);
    state_.schedule(*lease, rules_);
    return lease->id;
  }
  const bool first = runtime.retries == 0;
  runtime.retries = runtime.unanswered = 0;
  runtime.late_since.reset();
  runtime.not_back.clear();
  runtime.look_at = Time::never();
  const Parking parking = *lease->parking;
  if (fact.how == Unparked::How::runs && first && runtime.moving_since > parking.since)
    learn(*lease, Move::resume, runtime.moved, now_ - runtime.moving_since);
  if (fact.how != Unparked::How::runs || !first || !fact.host || parking.then_stop) runtime.next.reset();
  const bool on_a_word = !parking.resume_requested;
  if (runtime.next && on_a_word && try_next(*lease, parking, *fact.host)) return lease->id;
  // The lease does not end as a parked one: what it holds on its devices is still to be measured.
  if (fact.how == Unparked::How::never && parking.then_stop && !program_may_live(*lease)) {
    end(*lease, EndReason::released, ReasonKind::ended_unrestorable, args("detail", fact.detail));
    return lease->id;
  }
  if (fact.how == Unparked::How::never) {
    Parking kept = parking;
    if (fact.nothing_parked) kept.host_bytes = {}, kept.measured = true;
    kept.cause = {
        PauseCauseKind::driver_failed, {}, args("detail", fact.detail, "nothing_parked", fact.nothing_parked)};
    kept.then_stop = false;
    state_.set_parking(*lease, std::move(kept), LeaseState::poisoned);
    runtime.restored_at = now_;
    want_snapshot();
    explain(*lease, ReasonKind::poisoned,
            args("detail", fact.detail, "ends", parking.then_stop, "nothing_parked", fact.nothing_parked));
    if (parking.then_stop && !mutant(Mutant::deferred_ends_get_lost)) stop_program(*lease);
  } else {
    state_.set_parking(*lease, std::nullopt, LeaseState::active);
    if (runtime.next && parking.resume_requested)
      undone_.emplace(lease->id, Undone{parking, *fact.host}), state_.room_stale_ = true;
    else runs_again(*lease, parking);
  }
  state_.schedule(*lease, rules_);
  touch(*lease);
  return lease->id;
}

void Stepper::runs_again(Lease& lease, const Parking& parking) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.next.reset();
  start_ttl(lease);
  explain(lease, ReasonKind::resumed,
          args("after", runtime.begun ? std::optional(now_ - parking.since) : std::nullopt));
  runtime.restored_at = now_;
  lease.resumed_at = now_;
  want_snapshot();
  if (runtime.undone) leave_alone(lease, *std::exchange(runtime.undone, std::nullopt));
  if (parking.then_stop) {
    note("resumed_to_end");
    return end_as_it_is(lease);
  }
  state_.schedule(lease, rules_);
  touch(lease);
}

// -------------------------------------------------------------------------------- time

// The longest time that such a move should ever take.
Duration Stepper::driver_time(const Lease& lease, Move move) const {
  const Bytes bytes = std::max(state_.runtime_.at(lease.id).moved, lease.parking ? lease.parking->host_bytes : Bytes{});
  const Prediction takes = state_.costs_.predict(lease.whose(), lease.devices, PauseMethod::driver, move, bytes);
  return std::min(takes.longest, driver_limit) + driver_grace;
}

// The driver may return at any time, and its result counts then; no plan counts on it before.
void Stepper::mark_overdue(Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  const Duration allowed = runtime.overdue_at - runtime.acting_since;
  runtime.overdue_at = Time::never();
  runtime.overdue = true;
  const bool out = lease.state == LeaseState::pausing;
  explain(lease, out ? ReasonKind::pausing_stuck : ReasonKind::resuming_stuck, args("allowed", allowed));
  if (lease.parking->then_stop && !lease.stop_requested && program_may_live(lease)) {
    stop_program(lease);
    touch(lease);
  }
  state_.room_stale_ = true;
}

// The daemon or its store failed in the middle of a move: nobody knows which orders were given and carried out.
void Stepper::finish_half_done() {
  for (const LeaseId id : std::exchange(state_.half_done_, {})) {
    Lease* lease = find(id);
    if (lease == nullptr || !lease->parking) continue;
    if (lease->parked()) {
      // Before the driver locked any process, the lock was stored, and with it that the driver parks the lease.
      const auto& before = lease->parking->before_top;
      const bool locked = before && before->method != lease->parking->method;
      if (before && !locked && lease->state == LeaseState::paused) forget_top(*lease);
      continue;
    }
    state_.runtime_.at(id).next.reset();
    if (lease->state == LeaseState::pausing) undo(*lease, ReasonKind::pause_interrupted, {}, LeftAlone::Ground::undone);
    else note("tried_again"), unpark(*lease);
  }
}

}  // namespace sublet::core
