// SPDX-License-Identifier: Apache-2.0
// The requests of an owner while its lease lives: claim, attach, renew, connect and disconnect.
#include "core/stepper.h"

#include "base/mutants.h"
#include "core/format.h"

namespace sublet::core {
namespace {

Error wrong_state(const Lease& lease, std::string_view call, std::string hint) {
  std::string detail = std::string(call) + " needs a lease that is active; " + name_of(lease) + " is " +
                       std::string(to_string(lease.state));
  if (lease.ended()) detail += " (" + std::string(to_string(lease.end_reason)) + ")";
  return Error{Code::Stale, std::move(detail), std::move(hint)};
}

}  // namespace

Result<LeaseId> Stepper::on(const Claim& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.state == LeaseState::active) return lease.id;  // it was granted while its owner waited: nothing to claim
  if (lease.state != LeaseState::offered) {
    Error error = wrong_state(lease, "claim", lease.ended() ? "ask for a new lease" : "claim it when it is offered");
    error.detail = "there is no offer to claim: " + name_of(lease) + " is " + std::string(to_string(lease.state));
    if (lease.lapsed_offers > 0) error.detail += " after an offer lapsed";
    return error;
  }
  if (*lease.offer_ends_at <= now_)
    return Error{Code::Stale,
                 "the offer of " + name_of(lease) + " ended " + format_duration(now_ - *lease.offer_ends_at) + " ago",
                 "wait for the next one with an open request, which needs no claim"};
  lease.state = LeaseState::active;
  lease.offer_ends_at.reset();
  ++lease.generation;
  start_ttl(lease);
  explain(lease, ReasonKind::claimed, args("after", now_ - *lease.granted_at));
  state_.schedule(lease, rules_);
  touch(lease);
  return lease.id;
}

Result<LeaseId> Stepper::on(const Attach& fact) {
  Lease* lease = find(fact.lease);
  const bool repeated = lease != nullptr && lease->state == LeaseState::active && fact.as_owner &&
                        lease->owner.kind == OwnerKind::process && fact.owner.process &&
                        lease->owner.process == fact.owner.process && lease->owner.keeper == fact.owner.keeper;
  if (repeated) return lease->id;
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  lease = *found;
  if (lease->state == LeaseState::offered)
    return wrong_state(*lease, "attach", "claim the offer first: `sublet claim " + to_string(lease->id) + "`");
  if (lease->state != LeaseState::active)
    return wrong_state(*lease, "attach", lease->ended() ? "ask for a new lease" : "wait until it is granted");
  if (fact.as_owner && !fact.owner.process)
    return bad_request("attach names no process to own " + name_of(*lease), "name a process that runs");
  const bool first = !lease->had_process;
  const bool book = !fact.as_owner && fact.booked != Booked{} &&
                    std::find(lease->booked.begin(), lease->booked.end(), fact.booked) == lease->booked.end();
  if (book && lease->booked.size() >= booked_limit)
    return Error{Code::InUse, name_of(*lease) + " has " + std::to_string(booked_limit) + " processes booked, the limit",
                 "put them into a cgroup and book that"};
  if (book) {
    state_.rebook(*lease, [&] {
      // Another program may be parkable where an earlier one was not.
      if (!lease->owner.process) {
        lease->unfit.reset();
        state_.runtime_.at(lease->id).seemed_unfit = false;
        state_.runtime_.at(lease->id).barred.reset();
      }
      lease->booked.push_back(fact.booked);
    });
  }
  lease->had_process = true;
  if (fact.as_owner) {
    Owner owner = fact.owner;
    owner.kind = OwnerKind::process;
    state_.set_owner(*lease, std::move(owner));
    lease->unheld_since.reset();
    ++lease->generation;
    // The process that said how the program yields was a process of the program before.
    if (lease->cooperation && lease->cooperation->process) state_.set_cooperation(*lease, std::nullopt, now_);
    state_.runtime_.at(lease->id).program_ended = false;
    const ProcessRef keeper = fact.owner.keeper;
    explain(*lease, ReasonKind::attached,
            args("pid", fact.owner.process.pid, "keeper", keeper ? std::optional(keeper.pid) : std::nullopt));
    state_.schedule(*lease, rules_);
  }
  if (!fact.as_owner && (first || book)) note("booked");
  if (fact.as_owner || first || book) touch(*lease);
  return lease->id;
}

Result<LeaseId> Stepper::on(const Renew& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (lease.ended()) return wrong_state(lease, "renew", "ask for a new lease");
  if (fact.ttl && fact.ttl->count() <= 0) return bad_request("a time limit must be above zero", "for example 10m");
  if (!fact.ttl && !lease.ttl)
    return bad_request(name_of(lease) + " has no time limit to renew",
                       "give it one: `sublet renew " + to_string(lease.id) + " --ttl 1h` (in the API: ttl_seconds)");
  if (lease.state == LeaseState::active && lease.expires_at && *lease.expires_at <= now_)
    return Error{Code::Stale, name_of(lease) + " expired " + format_duration(now_ - *lease.expires_at) + " ago",
                 "renew well before the end; ask for a new lease"};
  if (fact.ttl) lease.ttl = fact.ttl;
  if (lease.state == LeaseState::active) start_ttl(lease);
  note("renewed");  // not explained: a token lease is renewed again and again
  state_.schedule(lease, rules_);
  touch(lease);
  return lease.id;
}

Result<LeaseId> Stepper::on(const ClockGap& fact) {
  for (auto& [id, lease] : state_.leases_) {
    bool changed = fact.asleep > Duration{} && state_.sleep_through(lease, fact.asleep);
    // The driver may have returned meanwhile, and only we have not heard of it.
    if (Time& overdue = state_.runtime_.at(id).overdue_at; overdue != Time::never())
      overdue = std::max(overdue, now_ + driver_grace);
    if (!lease.ended() && !mutant(Mutant::sleepers_are_late)) {
      changed |= state_.forgive(lease, rules_, now_);
      state_.stand_still(lease, fact.stood_still);
    }
    state_.schedule(lease, rules_);
    if (changed) touch(lease), note("deadlines_extended");
  }
  for (auto& [uuid, device] : state_.devices_)
    if (device.missing_since) *device.missing_since = *device.missing_since + fact.asleep;
  for (auto& [uuid, group] : state_.slice_groups_)
    for (auto& [id, service] : group)
      if (service.since) *service.since = *service.since + fact.asleep;
  for (auto& [waiter, slice] : state_.said_) {
    slice.said = slice.said + fact.asleep;
    slice.first = slice.first + fact.asleep;
  }
  // Readings from before a sleep of the machine are too old, and nothing is granted on them.
  if (fact.asleep > Duration{}) want_snapshot();
  return LeaseId{};
}

// Coming and going is observed again after a restart, so it is not a change to store.
Result<LeaseId> Stepper::on(const HeldChanged& fact) {
  Lease* lease = find(fact.lease);
  if (lease == nullptr) return not_found(to_string(fact.lease) + " is not a live lease");
  if (lease->ended()) return lease->id;
  State::LeaseRuntime& runtime = state_.runtime_.at(lease->id);
  runtime.held = fact.held;
  if (fact.held) runtime.grace_until = {};
  if (fact.waiter != 0) runtime.waiter = fact.waiter;
  if (lease->owner.kind == OwnerKind::connection) {
    if (fact.held) {
      lease->unheld_since.reset();
    } else if (!lease->unheld_since) {
      lease->unheld_since = now_;
    }
  }
  state_.schedule(*lease, rules_);
  return lease->id;
}

}  // namespace sublet::core
