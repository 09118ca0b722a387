// SPDX-License-Identifier: Apache-2.0
// Verifies that a paused lease really freed its bytes. A pause that is disproved, or that nobody can verify, is undone.
#include "core/methods.h"
#include "core/stepper.h"

#include "base/mutants.h"
#include "core/format.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr int proofs_needed = 2;  // snapshots in a row that show the bytes gone
// A report counts as false no sooner than this after it was made: drivers measure now and then.
constexpr Duration liar_at_least = 2s;
// At the end of the time to verify, the newest snapshot counts if it is no older than this. No snapshot begins at the
// very end.
constexpr Duration newest_snapshot = 1s;

}  // namespace

// Checks each plausible snapshot that began after the report: does the lease hold no more than its residue?
void Stepper::verify_yielding(Time began) {
  const std::vector<LeaseId> all(state_.verifying_.begin(), state_.verifying_.end());
  for (const LeaseId id : all) {
    Lease* lease = find(id);
    if (lease == nullptr || lease->state != LeaseState::pausing) {
      state_.verifying_.erase(id);
      continue;
    }
    State::LeaseRuntime& runtime = state_.runtime_.at(id);
    if (began < *runtime.yielded_at || (runtime.proofs > 0 && began <= runtime.proven_at)) continue;
    const bool gone = yields(*lease, began);
    if (told(*lease, began) && holds_on(*lease)) runtime.held_at = began;
    runtime.proofs = gone ? runtime.proofs + 1 : 0;
    runtime.proven_at = began;
    if (runtime.proofs >= proofs_needed) settle_down(*lease);
  }
}

// True if the snapshot that began then tells what the lease holds on all its devices.
bool Stepper::told(const Lease& lease, Time began) const {
  return std::all_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    const Device& device = state_.devices_.at(uuid);
    return device.read_at == began && device.problem.empty() && !device.lost && !state_.charge(lease.id, uuid).untold;
  });
}

// True if it is listed with more than its residue.
bool Stepper::holds_on(const Lease& lease) const {
  return std::any_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    return state_.charge(lease.id, uuid).used > lease.parking->residue;
  });
}

bool Stepper::yields(const Lease& lease, Time began) const {
  // A lease that left the list proves nothing while as many unlisted bytes are in use there.
  const bool seen = state_.unlisted_since_asked(lease) <= reading_slack || mutant(Mutant::unlisted_is_gone);
  return told(lease, began) && !holds_on(lease) && seen;
}

// Notes the bytes that no listed process holds on its devices before the pause, except bytes that may be its own. A
// device that was not read yet at the pause order is noted with its first reading.
void Stepper::look_at_unlisted(const Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.unlisted.resize(lease.devices.size());
  for (std::size_t i = 0; i < lease.devices.size(); ++i) {
    const Device& device = state_.devices_.at(lease.devices[i]);
    if (!runtime.unlisted[i] && device.read_at)
      runtime.unlisted[i] = std::max(device.unlisted - runtime.charges[i].hidden, Bytes{});
  }
}

// A time longer than the bytes of this consumer ever took to be measured gone.
Duration Stepper::liar_after(const Lease& lease) const {
  const Bytes bytes = state_.runtime_.at(lease.id).moved;
  const Prediction takes =
      state_.costs_.predict(lease.whose(), lease.devices, lease.parking->method, Move::settle, bytes);
  return std::clamp(takes.longest, std::min(liar_at_least, rules_.verify_timeout), rules_.verify_timeout);
}

void Stepper::learn(const Lease& lease, Move move, Bytes bytes, Duration took) {
  const std::string device = lease.devices.size() == 1 ? lease.devices.front() : std::string();
  plan_.learned.push_back({lease.whose(), lease.parking->method, move, {bytes, took}, now_, device});
  state_.costs_.learn(plan_.learned.back());
}

void Stepper::settle_down(Lease& lease) {
  Parking parking = *lease.parking;
  const bool resume_requested = std::exchange(parking.resume_requested, false);
  state_.verifying_.erase(lease.id);
  state_.note_yielded(lease, parking);
  drop_request(lease);  // not before: of a pause that fails it keeps its room, and the word that it was given it on
  state_.set_parking(lease, std::move(parking), LeaseState::paused);
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.failures = 0;
  runtime.barred.reset();
  if (lease.parking->method == PauseMethod::driver) runtime.seemed_unfit = false, state_.driver_barred_.reset();
  remember_pause(lease, lease.parking->method, true);
  learn(lease, Move::pause, runtime.moved,
        *runtime.yielded_at - runtime.moving_since);  // not before: a liar's word is none
  learn(lease, Move::settle, runtime.moved, now_ - *runtime.yielded_at);
  explain(lease, ReasonKind::paused,
          args("settled", now_ - *runtime.yielded_at, "took", now_ - lease.parking->since, "parked",
               lease.parking->host_bytes));
  runtime.yielded_at.reset();
  runtime.look_at = Time::never();
  state_.schedule(lease, rules_);
  touch(lease);
  // If a waiter still lacks memory after that, this lease is not to blame.
  for (const Preemptor& preemptor : state_.preemptors_.in_order()) may_be_blocked_.push_back(preemptor.key.lease);
  state_.reindex(rules_, now_);
  note_blocked();
  // A lease that is to end, and was stuck so that it could not be resumed first, is resumed now.
  if (resume_requested || lease.stop_requested) want_back(lease);
}

// The method failed: its consumer is trusted less with it, unless an obstacle was to blame. The next method is tried
// once this one is undone, if the pause is wanted then.
void Stepper::fail(Lease& lease, ReasonKind kind, ReasonArgs args, std::optional<Hindrance> hindrance) {
  const bool unvouched = lease.unfit && lease.unfit->kind == Unfit::unvouched;
  const bool unasked = lease.parking->method == PauseMethod::driver && unvouched;
  if (!unasked && !hindrance) remember_pause(lease, lease.parking->method, false);
  bar(lease, hindrance, args.text("detail"));
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  runtime.next.reset();
  for (const PauseMethod method : open_methods_of(state_, lease, now_))
    if ((runtime.tried & bit_of(method)) == 0 && !runtime.next) runtime.next = method;
  if (runtime.next) args.add(lease.parking->resume_requested ? "next_if_wanted" : "next", to_string(*runtime.next));
  undo(lease, kind, std::move(args), hindrance ? LeftAlone::Ground::undone : LeftAlone::Ground::failed);
}

// A pause that is not verified may still take effect, so it is undone until the program runs.
void Stepper::undo(Lease& lease, ReasonKind kind, ReasonArgs args, LeftAlone::Ground ground) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  state_.verifying_.erase(lease.id);
  runtime.yielded_at.reset();
  runtime.moving_since = {};  // what it takes to be undone says nothing of a resume
  runtime.undone = LeftAlone{ground, kind, args};
  runtime.told_since = now_;
  if (mutant(Mutant::undone_is_active))
    return state_.set_parking(lease, std::nullopt, LeaseState::active), touch(lease);
  state_.set_parking(lease, lease.parking, LeaseState::resuming);
  args.add("begun", runtime.begun);
  explain(lease, kind, std::move(args));
  state_.room_stale_ = true;
  unpark(lease);
}

// A lease that fails again and again is ineligible for longer and longer; a failure that was not its own is tried again
// soon.
void Stepper::leave_alone(Lease& lease, LeftAlone why) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  const bool failed = why.ground == LeftAlone::Ground::failed;
  const int doublings = failed ? std::min(runtime.failures, most_doublings) : 0;
  if (failed) ++runtime.failures;
  runtime.left_alone = std::move(why);
  runtime.tried_at = now_;
  runtime.ineligible_until = now_ + rules_.cooldown * (1 << doublings);
  state_.room_stale_ = true;
  look_again_at(runtime.ineligible_until);
}

// The driver cannot park the program here. The lease is not asked again and again, no waiter is promised its memory,
// and a spot lease is ended for a higher tier. A spot lease is asked a second time before, because the obstacle may
// have been there for a moment only. Its owner may have a pause tried at any time.
void Stepper::bar(const Lease& lease, std::optional<Hindrance> by, const std::string& why) {
  if (!by || by == Hindrance::passing) return;
  std::optional<Barred>& before = state_.runtime_.at(lease.id).barred;
  const bool asks = *by != Hindrance::swap;  // else it is weighed once more before it is ended
  const bool again = before && before->by != Hindrance::swap && now_ < before->until + barred_for;
  const bool is_asked_again = asks && lease.tier == Tier::spot && !again;
  const Barred its{*by, why, now_ + (is_asked_again ? rules_.cooldown : barred_for)};
  before = its;
  if (*by == Hindrance::driver) state_.driver_barred_ = Barred{*by, why, now_ + barred_for};
  state_.room_stale_ = true;
  look_again_at(its.until);
}

// Schedules the next proof, or the next attempt.
void Stepper::look_again(Lease& lease) {
  State::LeaseRuntime& runtime = state_.runtime_.at(lease.id);
  if (lease.state == LeaseState::resuming) return note("tried_again"), unpark(lease);
  const bool over = now_ - *runtime.yielded_at >= rules_.verify_timeout;
  if (runtime.held_at) {
    const bool speaks_for_now =
        over && *runtime.held_at == runtime.proven_at && now_ - *runtime.held_at <= newest_snapshot;
    const Duration held_for = (speaks_for_now ? now_ : *runtime.held_at) - *runtime.yielded_at;
    if (held_for >= liar_after(lease))
      return fail(lease, ReasonKind::pause_disproved, args("after", held_for, "holds", state_.use(lease.id).used));
  }
  const std::string problem = unverified_text(state_, rules_, lease, now_);
  ReasonArgs why = args("timeout", rules_.verify_timeout, "problem", problem);
  if (over) return undo(lease, ReasonKind::pause_unmeasured, std::move(why), LeftAlone::Ground::undone);
  if (!problem.empty() && !std::exchange(runtime.unverified, true)) {
    explain(lease, ReasonKind::unverified, std::move(why));
    touch(lease);
  }
  want_snapshot();
  runtime.look_at = now_ + look_interval;
}

}  // namespace sublet::core
