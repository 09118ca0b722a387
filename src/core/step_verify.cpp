// SPDX-License-Identifier: Apache-2.0
// Verifies that a paused lease really freed its bytes. A pause that is disproved, or that nobody can verify, is undone.
#include "core/step_verify.h"
#include "core/current_step.h"
#include "core/step_away.h"
#include "core/step_method.h"
#include "core/step_pause.h"
#include "core/step_preempt.h"
#include "core/step_request.h"
#include "core/step_resume.h"
#include "state/methods.h"

#include "base/mutants.h"
#include "state/format.h"

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

static bool told(const Step& step, const Lease& lease, Time began);
static bool holds_on(const Step& step, const Lease& lease);
static bool yields(const Step& step, const Lease& lease, Time began);
static void bar(Step& step, const Lease& lease, Obstacle obstacle);

// Checks each plausible snapshot that began after the report: does the lease hold no more than its residue?
void verify_yielding(Step& step, Time began) {
  const std::vector<LeaseId> all(step.state.pauses.verifying.begin(), step.state.pauses.verifying.end());
  for (const LeaseId id : all) {
    Lease* lease = find(step, id);
    if (lease == nullptr || lease->state != LeaseState::pausing) {
      step.state.pauses.verifying.erase(id);
      continue;
    }
    Attempt& attempt = attempt_in(step, *lease);
    if (began < attempt.answered_at || (attempt.proofs > 0 && began <= attempt.proven_at)) continue;
    const bool gone = yields(step, *lease, began);
    if (told(step, *lease, began) && holds_on(step, *lease)) attempt.held_at = began;
    attempt.proofs = gone ? attempt.proofs + 1 : 0;
    attempt.proven_at = began;
    if (attempt.proofs >= proofs_needed) settle_down(step, *lease);
  }
}

// True if the snapshot that began then tells what the lease holds on all its devices.
static bool told(const Step& step, const Lease& lease, Time began) {
  return std::all_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    return device.read_at == began && device.problem.empty() && !device.lost &&
           !charge_on(step.state, lease.id, uuid).untold;
  });
}

// True if it is listed with more than its residue.
static bool holds_on(const Step& step, const Lease& lease) {
  return std::any_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    return charge_on(step.state, lease.id, uuid).used > lease.parking->residue;
  });
}

static bool yields(const Step& step, const Lease& lease, Time began) {
  // A lease that left the list proves nothing while as many unlisted bytes are in use there.
  const bool seen = unlisted_since_asked(step.state, lease) <= reading_slack || mutant(Mutant::unlisted_is_gone);
  return told(step, lease, began) && !holds_on(step, lease) && seen;
}

// Notes the bytes that no listed process holds on its devices before the pause, except bytes that may be its own. A
// device that was not read yet at the pause order is noted with its first reading.
void look_at_unlisted(Step& step, const Lease& lease) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  auto& unlisted = runtime.attempt->unlisted;
  unlisted.resize(lease.devices.size());
  for (std::size_t i = 0; i < lease.devices.size(); ++i) {
    const Device& device = step.state.devices.by_uuid.at(lease.devices[i]);
    if (!unlisted[i] && device.read_at) unlisted[i] = std::max(device.unlisted - runtime.charges[i].hidden, Bytes{});
  }
}

// A time longer than the bytes of this consumer ever took to be measured gone.
static Duration liar_after(const Step& step, const Lease& lease) {
  const Bytes bytes = attempt_of(step.state, lease.id)->moved;
  const Prediction takes =
      step.state.learned.costs.predict(lease.whose(), lease.devices, lease.parking->method, Move::settle, bytes);
  return std::clamp(takes.longest, std::min(liar_at_least, step.rules.verify_timeout), step.rules.verify_timeout);
}

void learn(Step& step, const Lease& lease, Move move, Bytes bytes, Duration took) {
  const std::string device = lease.devices.size() == 1 ? lease.devices.front() : std::string();
  step.plan.learned.push_back({lease.whose(), lease.parking->method, move, {bytes, took}, step.now, device});
  step.state.learned.costs.learn(step.plan.learned.back());
}

// The bytes that the method reported replace those that were entered for the pause.
static Parking with_parked(const Lease& lease, const Attempt& attempt) {
  Parking parking = *lease.parking;
  if (!attempt.parked) return parking;
  parking.host_bytes = *attempt.parked;
  parking.measured = true;
  return parking;
}

void settle_down(Step& step, Lease& lease) {
  Parking parking = with_parked(lease, attempt_in(step, lease));
  const bool resume_requested = std::exchange(parking.resume_requested, false);
  step.state.pauses.verifying.erase(lease.id);
  note_yielded(step.state, lease, parking);
  drop_request(step,
               lease);  // not earlier: after a failed pause it keeps its memory and its request
  set_parking(step.state, lease, std::move(parking), LeaseState::paused);
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  const Attempt attempt = *std::exchange(runtime.attempt, std::nullopt);
  runtime.failures = 0;
  runtime.obstacle.reset();
  if (lease.parking->method == PauseMethod::driver) runtime.seemed_unfit = false, step.state.pauses.obstacle.reset();
  remember_pause(step, lease, lease.parking->method, true);
  const Duration settled = step.now - attempt.answered_at;
  // Not before: a report that readings disprove teaches nothing.
  learn(step, lease, Move::pause, attempt.moved, attempt.answered_at - attempt.moving_since);
  learn(step, lease, Move::settle, attempt.moved, settled);
  explain(step, lease, ReasonKind::paused,
          args("settled", settled, "took", step.now - lease.parking->since, "parked", lease.parking->host_bytes));
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  // If a waiter still lacks memory after that, this lease is not to blame.
  for (const Preemptor& preemptor : step.state.preemption.preemptors.in_order())
    step.may_be_blocked.push_back(preemptor.key.lease);
  reindex(step.state, step.rules, step.now);
  note_blocked(step);
  // A lease that is to end, and was stuck so that it could not be resumed first, is resumed now.
  if (resume_requested || lease.stop_requested) want_back(step, lease);
}

// The method failed: its consumer is trusted less with it, unless an obstacle was to blame. The next method is tried
// once this one is undone, if the pause is wanted then.
void fail(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args, Obstacle obstacle) {
  if (obstacle.kind().blames) remember_pause(step, lease, lease.parking->method, false);
  bar(step, lease, obstacle);
  Attempt& attempt = attempt_in(step, lease);
  attempt.next.reset();
  for (const PauseMethod method : open_methods_of(step.state, lease, step.now))
    if ((attempt.tried & bit_of(method)) == 0 && !attempt.next) attempt.next = method;
  if (attempt.next) args.add(lease.parking->resume_requested ? "next_if_wanted" : "next", to_string(*attempt.next));
  undo(step, lease, kind, std::move(args), std::move(obstacle));
}

// A pause that is not verified may still take effect, so it is undone until the program runs.
void undo(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args, Obstacle obstacle) {
  Attempt& attempt = attempt_in(step, lease);
  step.state.pauses.verifying.erase(lease.id);
  attempt.phase = Attempt::Phase::waiting;
  attempt.moving_since = {};  // what it takes to be undone says nothing of a resume
  obstacle.detail = text_of_fragment(to_string(kind), args);
  attempt.undone = std::move(obstacle);
  attempt.told_since = step.now;
  if (mutant(Mutant::undone_is_active)) {
    step.state.leases.runtime.at(lease.id).attempt.reset();
    return set_parking(step.state, lease, std::nullopt, LeaseState::active), touch(step, lease);
  }
  set_parking(step.state, lease, with_parked(lease, attempt), LeaseState::resuming);
  args.add("begun", attempt.begun);
  explain(step, lease, kind, std::move(args));
  step.state.preemption.stale = true;
  unpark(step, lease);
}

// A lease that fails again and again is ineligible for longer and longer; a failure that was not its own is tried again
// soon.
void leave_alone(Step& step, Lease& lease, Obstacle why) {
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease.id);
  const int doublings = why.kind().blames ? std::min(runtime.failures, most_doublings) : 0;
  runtime.failures += why.kind().blames ? 1 : 0;
  why.until = step.now + step.rules.cooldown * (1 << doublings);
  look_again_at(step, why.until);
  runtime.left_alone = std::move(why);
  runtime.tried_at = step.now;
  step.state.preemption.stale = true;
}

// An obstacle that lasts. The lease is not asked again and again, no waiter is promised its memory, and a spot lease is
// ended for a higher tier. A spot lease is asked a second time before, because the obstacle may have been there for a
// moment only. Its owner may have a pause tried at any time.
static void bar(Step& step, const Lease& lease, Obstacle obstacle) {
  if (obstacle.kind().lasts != ObstacleLasts::minutes) return;
  obstacle.until = step.now + barred_for;
  if (obstacle.kind().scope == ObstacleScope::machine) step.state.pauses.obstacle = obstacle;
  std::optional<Obstacle>& before = step.state.leases.runtime.at(lease.id).obstacle;
  const bool again = before && step.now < before->until + barred_for;
  if (lease.tier == Tier::spot && !again) obstacle.until = step.now + step.rules.cooldown;
  step.state.preemption.stale = true;
  look_again_at(step, obstacle.until);
  before = std::move(obstacle);
}

// Schedules the next proof, or the next attempt.
void look_again(Step& step, Lease& lease) {
  Attempt& attempt = attempt_in(step, lease);
  if (lease.state == LeaseState::resuming) return note(step, "tried_again"), unpark(step, lease);
  const bool over = step.now - attempt.answered_at >= step.rules.verify_timeout;
  if (attempt.held_at) {
    const bool speaks_for_now =
        over && *attempt.held_at == attempt.proven_at && step.now - *attempt.held_at <= newest_snapshot;
    const Duration held_for = (speaks_for_now ? step.now : *attempt.held_at) - attempt.answered_at;
    if (held_for >= liar_after(step, lease))
      return fail(step, lease, ReasonKind::pause_disproved,
                  args("after", held_for, "holds", use_of(step.state, lease.id).used), {ObstacleCode::disproved});
  }
  const std::string problem = unverified_text(step.state, step.rules, lease, step.now);
  ReasonArgs why = args("timeout", step.rules.verify_timeout, "problem", problem);
  if (over) return undo(step, lease, ReasonKind::pause_unmeasured, std::move(why), {ObstacleCode::unmeasured});
  if (!problem.empty() && !std::exchange(attempt.unverified, true)) {
    explain(step, lease, ReasonKind::unverified, std::move(why));
    touch(step, lease);
  }
  step.snapshot_wanted = true;
  attempt.look_at = step.now + look_interval;
}

}  // namespace sublet::core
