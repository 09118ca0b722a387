// SPDX-License-Identifier: Apache-2.0
// The requests of an owner while its lease lives: claim, attach, renew, connect and disconnect.
#include "core/step_owner.h"
#include "core/current_step.h"
#include "core/step_grant.h"
#include "core/step_named.h"
#include "core/step_submit.h"
#include "core/step_tenants.h"

#include "base/mutants.h"
#include "state/format.h"

namespace sublet::core {
namespace {

Error wrong_state(const Lease& lease, std::string_view call, std::string hint) {
  std::string detail = std::string(call) + " needs a lease that is active; " + name_of(lease) + " is " +
                       std::string(to_string(lease.state));
  if (lease.ended()) detail += " (" + std::string(to_string(lease.end_reason)) + ")";
  return Error{Code::Stale, std::move(detail), std::move(hint)};
}

}  // namespace

Result<LeaseId> on(Step& step, const Claim& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::active) return lease.id;  // it was granted while its owner waited: nothing to claim
  if (lease.state != LeaseState::offered) {
    Error error = wrong_state(lease, "claim", lease.ended() ? "ask for a new lease" : "claim it when it is offered");
    error.detail = "there is no offer to claim: " + name_of(lease) + " is " + std::string(to_string(lease.state));
    if (lease.lapsed_offers > 0) error.detail += " after an offer lapsed";
    return error;
  }
  if (lease.owner.kind == OwnerKind::group && lease.owner.inode == 0)
    return Error{Code::Stale,
                 "no process was seen yet in " + lease.owner.cgroup + ", the control group of " + name_of(lease),
                 "claim it once a process runs there; its first process claims it, too"};
  if (*lease.offer_ends_at <= step.now)
    return Error{
        Code::Stale,
        "the offer of " + name_of(lease) + " ended " + format_duration(step.now - *lease.offer_ends_at) + " ago",
        "wait for the next one with an open request, which needs no claim"};
  lease.state = LeaseState::active;
  lease.offer_ends_at.reset();
  ++lease.generation;
  start_ttl(step, lease);
  explain(step, lease, ReasonKind::claimed, args("after", step.now - *lease.granted_at));
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  return lease.id;
}

Result<LeaseId> on(Step& step, const Attach& fact) {
  Lease* lease = find(step, fact.lease);
  const bool repeated = lease != nullptr && lease->state == LeaseState::active && fact.as_owner &&
                        lease->owner.kind == OwnerKind::process && fact.owner.process &&
                        lease->owner.process == fact.owner.process && lease->owner.keeper == fact.owner.keeper;
  if (repeated) return lease->id;
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  lease = *found;
  if (lease->state == LeaseState::offered)
    return wrong_state(*lease, "attach", "claim the offer first: `sublet claim " + to_string(lease->id) + "`");
  if (lease->state != LeaseState::active)
    return wrong_state(*lease, "attach", lease->ended() ? "ask for a new lease" : "wait until it is granted");
  if (fact.as_owner && lease->owner.kind == OwnerKind::group)
    return bad_request(name_of(*lease) + " belongs to the control group " + lease->owner.cgroup + " for its whole life",
                       "start the program in this group");
  if (fact.as_owner && !fact.owner.process)
    return bad_request("attach names no process to own " + name_of(*lease), "name a process that runs");
  const bool first = !lease->had_process;
  const bool book = !fact.as_owner && fact.booked != Booked{} &&
                    std::find(lease->booked.begin(), lease->booked.end(), fact.booked) == lease->booked.end();
  if (book && lease->booked.size() >= booked_limit)
    return Error{Code::InUse, name_of(*lease) + " has " + std::to_string(booked_limit) + " processes booked, the limit",
                 "put them into a cgroup and book that"};
  if (book) {
    rebook(step.state, *lease, [&] {
      // Another program may be parkable where an earlier one was not.
      if (!lease->owner.process) {
        lease->unfit.reset();
        step.state.leases.runtime.at(lease->id).seemed_unfit = false;
        step.state.leases.runtime.at(lease->id).obstacle.reset();
      }
      lease->booked.push_back(fact.booked);
    });
  }
  lease->had_process = true;
  if (fact.as_owner) {
    Owner owner = fact.owner;
    owner.kind = OwnerKind::process;
    set_owner(step.state, *lease, std::move(owner));
    lease->unheld_since.reset();
    ++lease->generation;
    // The process that said how the program yields was a process of the program before.
    if (lease->cooperation && lease->cooperation->process) set_cooperation(step.state, *lease, std::nullopt, step.now);
    step.state.leases.runtime.at(lease->id).program_ended = false;
    const ProcessRef keeper = fact.owner.keeper;
    explain(step, *lease, ReasonKind::attached,
            args("pid", fact.owner.process.pid, "keeper", keeper ? std::optional(keeper.pid) : std::nullopt));
    schedule(step.state, *lease, step.rules);
  }
  if (!fact.as_owner && (first || book)) note(step, "booked");
  if (fact.as_owner || first || book) touch(step, *lease);
  return lease->id;
}

Result<LeaseId> on(Step& step, const Renew& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return wrong_state(lease, "renew", "ask for a new lease");
  if (fact.ttl && fact.ttl->count() <= 0) return bad_request("a time limit must be above zero", "for example 10m");
  if (const Status ok = check_time_limit(step, lease, fact.ttl); !ok) return ok.error();
  if (!fact.ttl && !lease.ttl)
    return bad_request(name_of(lease) + " has no time limit to renew",
                       "give it one: `sublet renew " + to_string(lease.id) + " --ttl 1h` (in the API: ttl_seconds)");
  if (lease.state == LeaseState::active && lease.expires_at && *lease.expires_at <= step.now)
    return Error{Code::Stale, name_of(lease) + " expired " + format_duration(step.now - *lease.expires_at) + " ago",
                 "renew well before the end; ask for a new lease"};
  if (fact.ttl) lease.ttl = fact.ttl;
  if (lease.state == LeaseState::active || lease.parking) start_ttl(step, lease);
  note(step, "renewed");  // not explained: a token lease is renewed again and again
  schedule(step.state, lease, step.rules);
  touch(step, lease);
  return lease.id;
}

// No limit of the lease ran since the pause order. A lease of an earlier version has no end of its time.
void restart_clocks(Step& step, Lease& lease, const Parking& parking) {
  const Duration stood_still = std::max(step.now - parking.since, Duration{});
  if (lease.expires_at) lease.expires_at = after(*lease.expires_at, stood_still);
  else start_ttl(step, lease);
  step.plan.resumed.push_back({lease.id, stood_still, parking.cause.kind});
}

// A pause of the owner lasts until the owner ends it, whatever paused the lease before.
void take_cause(Step& step, Lease& lease, const PauseCause& cause) {
  if (lease.parking->cause.kind == cause.kind) return;
  Parking parking = *lease.parking;
  parking.cause = cause;
  set_parking(step.state, lease, std::move(parking), lease.state);
  note(step, "amended");
  touch(step, lease);
}

// A waiting lease stays outside of the queue until it is resumed, and has its place there again.
Result<LeaseId> hold_back(Step& step, Lease& lease) {
  if (lease.held_back_at) return lease.id;
  const std::size_t place = step.state.queue.place(lease.id);
  step.state.queue.erase(lease.id);
  step.state.preemption.requested.erase(lease.id);
  step.state.preemption.stale = true;
  lease.held_back_at = step.now;
  explain(step, lease, ReasonKind::held_back, args("place", place));
  touch(step, lease);
  return lease.id;
}

Result<LeaseId> let_queue(Step& step, Lease& lease) {
  lease.held_back_at.reset();
  insert_waiter(step, lease);
  if (lease.preemption_request && !lease.preemption_request->given_at) step.state.preemption.requested.insert(lease.id);
  step.state.preemption.stale = true;
  announce_wait(step, lease);
  touch(step, lease);
  return lease.id;
}

Result<LeaseId> on(Step& step, const ClockGap& fact) {
  for (auto& [id, lease] : step.state.leases.by_id) {
    bool changed = fact.asleep > Duration{} && sleep_through(step.state, lease, fact.asleep);
    // The driver may have returned meanwhile, and only we have not heard of it.
    if (auto& attempt = step.state.leases.runtime.at(id).attempt; attempt && attempt->overdue_at != Time::never())
      attempt->overdue_at = std::max(attempt->overdue_at, step.now + driver_grace);
    if (!lease.ended() && !mutant(Mutant::sleepers_are_late)) {
      changed |= forgive(step.state, lease, step.rules, step.now);
      stand_still(step.state, lease, fact.stood_still);
    }
    schedule(step.state, lease, step.rules);
    if (changed) touch(step, lease), note(step, "deadlines_extended");
  }
  for (auto& [uuid, device] : step.state.devices.by_uuid)
    if (device.missing_since) *device.missing_since = *device.missing_since + fact.asleep;
  for (auto& [where, group] : step.state.preemption.slice_groups) group.skip(step.now - fact.asleep, step.now);
  for (auto& [where, turns] : step.state.preemption.turns) turns.skip(step.now - fact.asleep, step.now);
  for (TenantAccount& account : step.state.tenants.accounts) {
    account.bytes_used.skip(step.now - fact.asleep, step.now, window_of(step.rules));
    account.devices_used.skip(step.now - fact.asleep, step.now, window_of(step.rules));
  }
  for (auto& [uuid, slice] : step.state.preemption.slices) slice.at = slice.at + fact.asleep;
  // Readings from before a sleep of the machine are too old, and nothing is granted on them.
  if (fact.asleep > Duration{}) step.snapshot_wanted = true;
  return LeaseId{};
}

// Coming and going is observed again after a restart, so it is not a change to store.
Result<LeaseId> on(Step& step, const HeldChanged& fact) {
  Lease* lease = find(step, fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (lease->ended()) return lease->id;
  LeaseRuntime& runtime = step.state.leases.runtime.at(lease->id);
  runtime.held = fact.held;
  if (fact.held) runtime.grace_until = {};
  if (fact.waiter != 0) runtime.waiter = fact.waiter;
  if (lease->owner.kind == OwnerKind::connection) {
    if (fact.held) {
      lease->unheld_since.reset();
    } else if (!lease->unheld_since) {
      lease->unheld_since = step.now;
    }
  }
  schedule(step.state, *lease, step.rules);
  return lease->id;
}

}  // namespace sublet::core
