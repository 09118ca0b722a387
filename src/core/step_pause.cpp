// SPDX-License-Identifier: Apache-2.0
// How a lease yields its VRAM and gets it back, in two phases each: it is asked, and then it is verified; its room is
// reserved, and then it is restored. Whatever goes wrong on the way is undone by a resume, repeated until its program
// is known to run: "not verified" never means "active".
#include "core/methods.h"
#include "core/stepper.h"

#include "base/planted.h"
#include "core/words.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr int proofs_needed = 2;          // snapshots in a row that show the bytes gone
constexpr Duration look_interval = 20ms;  // between two looks while it is verified
// A lease counts as one that lied no sooner than this after it said that it has yielded: drivers measure now and then.
constexpr Duration liar_at_least = 2s;
constexpr Duration first_retry = 1s;  // of a resume that did not come through; doubled each time
constexpr Duration longest_retry = 30s;

unsigned bit_of(PauseMethod method) { return 1U << static_cast<unsigned>(method); }

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
  if (host.may_swap && !rules_.allow_swap)
    return Error{Code::PauseUnsafe,
                 name_of(lease) +
                     " cannot be paused: this machine may write what is parked to its swap device, which takes minutes "
                     "and more to come back",
                 "turn swap off for it (memory.swap.max = 0 in its cgroup), or set ledger.allow_swap = true"};
  const Bytes bytes = held_by(state_, lease);
  const Bytes free = state_.ledger_free(rules_, host, lease.uid);
  if (bytes <= free || planted(Bug::ledger_has_no_limit)) return {};
  const Bytes limit_left = rules_.ledger_limit - state_.ledger_entries();
  const Bytes share_left = State::ledger_share(rules_) - state_.ledger_of(lease.uid);
  std::string text = name_of(lease) + " holds " + format_size(bytes) + ", and host memory takes " + format_size(free) +
                     " more of parked bytes: " + format_size(state_.ledger_entries()) + " of " +
                     format_size(rules_.ledger_limit) + " are entered";
  const bool shares = !state_.alone(lease.uid);
  if (shares)
    text += ", " + format_size(state_.ledger_of(lease.uid)) + " of the " + format_size(State::ledger_share(rules_)) +
            " that one user may take (" + lease.user + ")";
  text += "; " + format_size(host.available) + " is available, " + format_size(rules_.ledger_reserve) +
          " of it is kept free";
  if (host.headroom) text += "; the control group that is charged takes " + format_size(*host.headroom) + " more";
  // Whatever leaves least is in the way, and the hint is about that.
  std::string hint = "end something that takes host memory, or lower ledger.reserve";
  if (free >= limit_left) hint = "resume or end what is parked, or raise ledger.limit";
  else if (shares && free >= share_left)
    hint = "resume or end what is parked of this user, or raise ledger.user_share or ledger.limit";
  else if (host.headroom && free >= *host.headroom - state_.ledger_unsettled())
    hint = "raise memory.max of the control group that its program is in";
  return Error{Code::HostMemory, std::move(text), std::move(hint)};
}

Result<LeaseId> Stepper::on(const Pause& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::paused && state_.sides_.at(lease.id).relapsed) return pause_on_top(lease, fact.host);
  if (lease.parking && lease.state != LeaseState::resuming) {
    if (lease.state == LeaseState::paused && lease.parking->returns) give_up_return(lease, "its owner wants it paused");
    return lease.id;
  }
  if (const Status may = check_pause(lease, fact.host); !may) return may.error();
  begin_pause(lease, fact.reason, false);
  return lease.id;
}

// `returns`: it waits to come back as soon as it has yielded.
void Stepper::begin_pause(Lease& lease, const std::string& reason, bool returns) {
  if (lease.resize) forget_resize(lease, "it is paused");
  State::Side& side = state_.sides_.at(lease.id);
  side.tried = 0;
  side.blocked_by = 0;
  side.inhabited.reset();
  side.empty_since.reset();
  Parking parking;
  parking.since = now_;
  parking.reason = reason;
  parking.returns = returns;
  ask_to_yield(lease, *pause_method_of(state_, lease), std::move(parking));
}

// `parking`: since when, why, and what was entered and told before.
void Stepper::ask_to_yield(Lease& lease, PauseMethod method, Parking parking) {
  const bool cooperative = method == PauseMethod::cooperative;
  const Bytes held = held_by(state_, lease);
  State::Side& side = state_.sides_.at(lease.id);
  parking.method = method;
  parking.entry = held;
  parking.settled = false;
  parking.residue = residue_of(lease, method);
  parking.touched.emplace();
  state_.note_asked(lease, parking, rules_, now_);
  parking.told = parking.told || (cooperative && !planted(Bug::nobody_is_told_to_go_on));
  explain(lease, "pausing",
          parking.reason + ": its program is asked to yield up to " + format_size(held) + on_devices(state_, lease) +
              (cooperative ? " by itself, within " + format_duration(yield_time(lease)) : " by the driver") +
              "; the ledger has entered them");
  state_.set_parking(lease, std::move(parking), LeaseState::pausing);
  if (!planted(Bug::time_runs_while_parked))
    lease.expires_at.reset();  // its time stands still: who is parked cannot renew
  side.acting = true;
  side.relapsed = false;
  side.next.reset();
  side.on_top.reset();
  side.tried |= bit_of(method);
  side.yielded_at.reset();
  side.held_at.reset();
  side.moved = state_.use(lease.id).used;
  side.moving_since = now_;
  plan_.actions.emplace_back(Park{lease.id, method, yield_time(lease)});
  state_.schedule(lease, rules_);
  touch(lease);
}

// Noted before the driver locks any of them: after a restart that is all there is to say who may have been parked.
Result<LeaseId> Stepper::on(const Touching& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || !lease->parking) return not_found(to_string(fact.lease) + " is not asked to yield");
  const State::Side& side = state_.sides_.at(lease->id);
  const bool on_top = lease->state == LeaseState::paused && side.on_top;
  const bool asked = lease->state == LeaseState::pausing && side.acting;
  if (!on_top && (!asked || lease->parking->method == PauseMethod::cooperative))
    return not_found(to_string(fact.lease) + " is not asked to yield");
  Parking parking = *lease->parking;
  if (on_top) parking.method = *side.on_top;
  if (parking.touched) parking.touched = fact.processes;
  state_.set_parking(*lease, std::move(parking), lease->state);
  plan_.actions.emplace_back(Lock{lease->id});
  touch(*lease);
  return lease->id;
}

Result<LeaseId> Stepper::on(const Parked& fact) {
  Lease* lease = find(fact.lease);
  if (lease != nullptr && lease->state == LeaseState::paused && state_.sides_.at(lease->id).on_top)
    return parked_on_top(*lease, fact);
  if (lease == nullptr || lease->state != LeaseState::pausing)
    return not_found(to_string(fact.lease) + " is not asked to yield");
  State::Side& side = state_.sides_.at(lease->id);
  side.acting = false;
  if (!fact.done) {
    if (fact.undone && lease->parking->touched) lease->parking->touched->clear();
    fail(*lease, fact.detail);
    return lease->id;
  }
  if (fact.bytes) {
    Parking parking = *lease->parking;
    parking.entry = *fact.bytes;
    parking.settled = true;
    state_.set_parking(*lease, std::move(parking), LeaseState::pausing);
    touch(*lease);
  }
  learn(*lease, Move::pause, side.moved, now_ - side.moving_since);
  side.yielded_at = now_;
  side.proofs = 0;
  if (planted(Bug::yielding_is_not_verified)) return settle_down(*lease), lease->id;
  state_.verifying_.insert(lease->id);
  look_again(*lease);
  state_.schedule(*lease, rules_);
  return lease->id;
}

// -------------------------------------------------------------------------------- verified

// In every plausible snapshot that was begun after it yielded: does it hold no more than it promised?
void Stepper::verify_yielding(Time began) {
  const std::vector<LeaseId> all(state_.verifying_.begin(), state_.verifying_.end());
  for (const LeaseId id : all) {
    Lease* lease = find(id);
    if (lease == nullptr || lease->state != LeaseState::pausing) {
      state_.verifying_.erase(id);
      continue;
    }
    State::Side& side = state_.sides_.at(id);
    if (began < *side.yielded_at || (side.proofs > 0 && began <= side.proven_at)) continue;
    const bool gone = yields(*lease, began);
    if (!gone && told(*lease, began)) side.held_at = began;
    side.proofs = gone ? side.proofs + 1 : 0;
    side.proven_at = began;
    if (side.proofs >= proofs_needed) settle_down(*lease);
  }
}

// Whether the snapshot that was begun then says of all its devices what it holds there.
bool Stepper::told(const Lease& lease, Time began) const {
  return std::all_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    const Device& device = state_.devices_.at(uuid);
    return device.read_at == began && device.problem.empty() && !device.lost && !state_.charge(lease.id, uuid).untold;
  });
}

bool Stepper::yields(const Lease& lease, Time began) const {
  return told(lease, began) && std::all_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
           return state_.charge(lease.id, uuid).used <= lease.parking->residue;
         });
}

// Longer than the bytes of this consumer ever took to be measured gone.
Duration Stepper::liar_after(const Lease& lease) const {
  const Bytes bytes = state_.sides_.at(lease.id).moved;
  return std::clamp(state_.costs_.predict(lease.consumer, lease.parking->method, Move::settle, bytes).longest,
                    std::min(liar_at_least, rules_.verify_timeout), rules_.verify_timeout);
}

void Stepper::learn(const Lease& lease, Move move, Bytes bytes, Duration took) {
  plan_.learned.push_back({lease.consumer, lease.parking->method, move, {bytes, took}, now_});
  state_.costs_.learn(plan_.learned.back());
}

void Stepper::settle_down(Lease& lease) {
  Parking parking = *lease.parking;
  const bool returns = std::exchange(parking.returns, false);
  state_.verifying_.erase(lease.id);
  state_.note_yielded(lease, parking);
  drop_word(lease);  // not before: of a pause that fails it keeps its room, and the word that it was given it on
  state_.set_parking(lease, std::move(parking), LeaseState::paused);
  State::Side& side = state_.sides_.at(lease.id);
  side.failures = 0;
  remember_pause(lease, lease.parking->method, true);
  learn(lease, Move::settle, side.moved, now_ - *side.yielded_at);
  explain(lease, "paused",
          "its bytes are measured gone " + format_duration(now_ - *side.yielded_at) + " after it yielded, " +
              format_duration(now_ - lease.parking->since) + " after it was asked; " +
              format_size(lease.parking->entry) + " are parked in host memory");
  side.yielded_at.reset();
  side.look_at = Time::never();
  state_.schedule(lease, rules_);
  touch(lease);
  // If that does not make the room that somebody waits for, it is not this one who is to blame.
  for (const QueueKey& key : state_.askers_) may_be_blocked_.push_back(key.lease);
  state_.reindex(rules_, now_);
  note_blocked();
  if (returns) want_back(lease);
}

// The method failed: its consumer is trusted less with it, and the next one is tried once this one is undone.
void Stepper::fail(Lease& lease, const std::string& why) {
  remember_pause(lease, lease.parking->method, false);
  State::Side& side = state_.sides_.at(lease.id);
  side.next.reset();
  for (const PauseMethod method : pause_methods_of(state_, lease))
    if ((side.tried & bit_of(method)) == 0 && !side.next) side.next = method;
  undo(lease, why + (side.next ? "; then the " + std::string(to_string(*side.next)) + " is tried" : ""));
}

// Not verified is not active: what was begun may still take effect, so it is taken back until the program runs.
void Stepper::undo(Lease& lease, const std::string& why) {
  state_.verifying_.erase(lease.id);
  state_.sides_.at(lease.id).yielded_at.reset();
  state_.sides_.at(lease.id).moving_since = {};  // what it takes to be undone says nothing of a resume
  if (planted(Bug::undone_is_active)) return state_.set_parking(lease, std::nullopt, LeaseState::active), touch(lease);
  state_.set_parking(lease, lease.parking, LeaseState::resuming);
  explain(lease, "resuming", "the pause is undone: " + why);
  spare(lease, why);
  unpark(lease);
}

// -------------------------------------------------------------------------------- back again

Result<LeaseId> Stepper::on(const Resume& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::poisoned)
    return Error{Code::PauseUnsafe, name_of(lease) + " is poisoned: its restore failed for good",
                 "`sublet why " + to_string(lease.id) + "` says what the driver answered; `sublet stop` ends it"};
  if (lease.state == LeaseState::active) return lease.id;
  if (!lease.parking)
    return Error{
        Code::Stale,
        "resume needs a lease that is paused; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
        {}};
  want_back(lease);
  return lease.id;
}

void Stepper::want_back(Lease& lease) {
  if (lease.state == LeaseState::resuming || lease.state == LeaseState::poisoned || lease.parking->returns) return;
  Parking parking = *lease.parking;
  parking.returns = true;
  state_.set_parking(lease, std::move(parking), lease.state);
  touch(lease);
  if (lease.state == LeaseState::pausing) return;  // one thing after the other
  if (planted(Bug::back_without_room)) return state_.requeue_in_place(lease), bring_back(lease);
  state_.requeue_in_place(lease);
  grant_waiting();
  may_be_blocked_.push_back(lease.id);
  if (lease.state == LeaseState::paused)
    explain(lease, "queued",
            "wants to come back, at place " + std::to_string(state_.queue_.place(lease.id)) + " of " +
                std::to_string(state_.queue_.size()) + ": " + shortage_text(state_, rules_, lease, now_) +
                held_clause(state_, rules_, lease, now_));
}

// Its turn: the room is its own before anything is restored into it.
void Stepper::bring_back(Lease& lease) {
  state_.queue_.erase(lease.id);
  Parking parking = *lease.parking;
  state_.note_beside(lease, parking);
  parking.before_top.reset();
  state_.set_parking(lease, std::move(parking), LeaseState::resuming);
  State::Side& side = state_.sides_.at(lease.id);
  side.on_top.reset();  // what is still to be parked is brought back after that
  side.moving_since = now_;
  side.moved = lease.parking->entry;
  side.empty_since.reset();
  explain(lease, "resuming",
          "has " + format_size(lease.vram) + on_devices(state_, lease) + " again, after " +
              format_duration(now_ - lease.parking->since) + ": its program is restored");
  unpark(lease);
  touch_given(lease);
}

void Stepper::give_up_return(Lease& lease, const std::string& why) {
  state_.queue_.erase(lease.id);
  Parking parking = *lease.parking;
  parking.returns = false;
  state_.set_parking(lease, std::move(parking), lease.state);
  explain(lease, "paused", "stays paused: " + why);
  touch(lease);
}

void Stepper::unpark(Lease& lease) {
  State::Side& side = state_.sides_.at(lease.id);
  side.look_at = Time::never();
  const Parking& parking = *lease.parking;
  if (!std::exchange(side.acting, true))
    plan_.actions.emplace_back(Unpark{lease.id, parking.method, parking.told, rules_.yield_timeout, parking.touched});
  state_.schedule(lease, rules_);
  touch(lease);
}

// Its lease promises it so much and no more: what it took while it was paused stands in its own way.
std::string Stepper::beside_text(const Lease& lease) const {
  Bytes beside;
  for (const Yielded& its : lease.parking->yielded) beside += its.beside;
  if (beside <= Bytes{}) return {};
  return "; its processes took " + format_size(beside) + " while it was paused, and " +
         format_size(lease.parking->entry) + " are to come back into its " + format_size(lease.vram);
}

Result<LeaseId> Stepper::on(const Unparked& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr || lease->state != LeaseState::resuming)
    return not_found(to_string(fact.lease) + " is not being resumed");
  State::Side& side = state_.sides_.at(lease->id);
  side.acting = false;
  side.no_room = fact.how == Unparked::How::not_yet && fact.no_room;
  if (fact.how == Unparked::How::not_yet) {
    const Duration pause = std::min(first_retry * (1 << std::min(side.retries, 5)), longest_retry);
    if (side.retries++ == 0 || fact.code != side.not_back_code)
      explain(*lease, "resuming",
              "it does not run yet: " + fact.detail + beside_text(*lease) + "; tried again and again");
    side.not_back = fact.detail;
    side.not_back_code = fact.code;
    side.look_at = now_ + pause;
    may_be_blocked_.push_back(lease->id);
    state_.schedule(*lease, rules_);
    return lease->id;
  }
  const bool first = side.retries == 0;
  side.retries = 0;
  side.not_back.clear();
  side.look_at = Time::never();
  const Parking parking = *lease->parking;
  if (fact.how == Unparked::How::runs && first && side.moving_since > parking.since)
    learn(*lease, Move::resume, side.moved, now_ - side.moving_since);
  if (fact.how == Unparked::How::runs && first && try_next(*lease, parking, fact.host)) return lease->id;
  if (fact.how == Unparked::How::never) {
    state_.set_parking(*lease, parking, LeaseState::poisoned);
    explain(*lease, "poisoned", "its program can never be restored: " + fact.detail + "; it is kept, and not killed");
  } else {
    state_.set_parking(*lease, std::nullopt, LeaseState::active);
    start_ttl(*lease);
    explain(*lease, "resumed",
            "its program runs again, " + format_duration(now_ - parking.since) + " after the pause began");
    side.restored_at = now_;
    lease->resumed_at = now_;
    want_snapshot();
    if (parking.then_stop) stop_program(*lease);
  }
  state_.schedule(*lease, rules_);
  touch(*lease);
  return lease->id;
}

// Not after a while: whoever wanted the pause then may be gone by now.
bool Stepper::try_next(Lease& lease, Parking parking, const std::optional<HostMemory>& host) {
  const auto next = std::exchange(state_.sides_.at(lease.id).next, std::nullopt);
  if (!next || !host || parking.then_stop) return false;
  const auto methods = pause_methods_of(state_, lease);
  if (std::find(methods.begin(), methods.end(), *next) == methods.end()) return false;
  state_.set_parking(lease, std::nullopt, LeaseState::active);
  if (check_host(lease, *host)) {
    parking.told = false;
    ask_to_yield(lease, *next, std::move(parking));
    return true;
  }
  state_.set_parking(lease, std::move(parking), LeaseState::resuming);
  return false;
}

// -------------------------------------------------------------------------------- time

// The next proof, or the next try.
void Stepper::look_again(Lease& lease) {
  State::Side& side = state_.sides_.at(lease.id);
  if (lease.state == LeaseState::resuming) return unpark(lease);
  if (side.held_at && *side.held_at - *side.yielded_at >= liar_after(lease))
    return fail(lease, "it said that it has yielded, and " + format_duration(*side.held_at - *side.yielded_at) +
                           " later it still held " + format_size(state_.use(lease.id).used));
  if (now_ - *side.yielded_at >= rules_.verify_timeout)
    return undo(lease, "its bytes were not measured gone within " + format_duration(rules_.verify_timeout));
  want_snapshot();
  side.look_at = now_ + look_interval;
}

// The daemon, or its store, was away in the middle of it: nobody knows what had been ordered, and what was carried out.
void Stepper::finish_half_done() {
  for (const LeaseId id : std::exchange(state_.half_done_, {})) {
    Lease* lease = find(id);
    if (lease == nullptr || !lease->parking) continue;
    if (lease->parked()) {
      // Before the driver was to lock any of it, that was stored, and with it that it is parked by the driver.
      const auto& before = lease->parking->before_top;
      const bool locked = before && before->method != lease->parking->method;
      if (before && !locked && lease->state == LeaseState::paused) forget_top(*lease);
      continue;
    }
    state_.sides_.at(id).next.reset();
    if (lease->state == LeaseState::pausing) undo(*lease, "the daemon was restarted in the middle of it");
    else unpark(*lease);
  }
}

}  // namespace sublet::core
