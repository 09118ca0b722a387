// SPDX-License-Identifier: Apache-2.0
// Preemption: plans, nominations, time slices, requests, and the obstacles that keep leases from being victims.
#pragma once

#include "lease/lease.h"
#include "lease/reclaim.h"
#include "lease/rules.h"
#include "state/preemption_plan.h"
#include "state/preemptors.h"
#include "state/shares.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::core {

struct State;

// Memory reserved for a lease that has waited long. Leases behind it get only what it leaves over on these devices, or
// memory that they give back before its start.
struct Nomination {
  LeaseId waiter;
  std::vector<std::string> devices;
  Time until;     // when devices are chosen anew, if it has not started by then
  int tries = 0;  // how often devices were chosen anew
};

// All terms of one lease.
struct Reclaims {
  std::vector<Reclaim> all;                       // never empty
  std::optional<PauseCauseKind> given_back = {};  // the capability of this cause is asked to take its memory
};

struct Preemption {
  std::vector<PreemptionPlan> plans;                                     // on devices of their own
  std::map<std::uint64_t, PlanRecord> stored;                            // the plans that are stored, by id
  std::uint64_t last_plan = 0;                                           // the largest id of a plan so far
  std::map<std::string, NextSlice> slices;                               // the next slice on each device, by uuid
  std::map<std::pair<std::string, Tier>, Shares<LeaseId>> slice_groups;  // service times, by uuid and tier
  std::map<std::pair<std::string, Tier>, Shares<AccountId>> turns;       // the same of tenants, in bytes
  std::vector<Rotation> rotations;                                       // none of one tier share a device
  std::set<LeaseId> requested;                                           // waiters with a preemption request
  std::map<LeaseId, Reclaims> reclaimable;                               // not stored
  Preemptors preemptors;                                                 // as of the last step that looked for victims
  bool stale = true;                 // something changed that may matter on any device
  std::vector<std::string> changed;  // uuids of devices with a change that matters only there
  Time look_at = Time::never();      // when to look for victims again
};

Standing standing_of(const State& state, LeaseId id);
const Obstacle* last_obstacle(const State& state, LeaseId id);  // to its last pause that failed; null: none
// The lasting obstacle to a pause of the lease by this method; null: none is known.
const Obstacle* bar_of(const State& state, LeaseId id, PauseMethod method, Time now);
const PreemptionPlan* plan_on(const State& state, std::string_view device);  // null: there is none
const PreemptionPlan* plan_for(const State& state, LeaseId beneficiary);     // null: there is none
// Goes on with the plans of an earlier run; called after State::load(). Plans without a lease that waits are removed
// from the store in the next step.
void restore_plans(State& state, std::vector<PlanRecord> records, Time now);
// True if a new plan for the waiter may take devices from this one.
bool may_displace(const State& state, const Lease& waiter, Cause cause, const PreemptionPlan& plan);
// True if the waiter goes before the plan's preemptor, whatever their priorities and waits.
bool goes_before(const State& state, const Lease& waiter, const PreemptionPlan& plan);
std::optional<PreemptionRequest> request_of(const State& state, LeaseId waiter);  // set if memory was requested for it

}  // namespace sublet::core
