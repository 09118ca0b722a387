// SPDX-License-Identifier: Apache-2.0
// Chooses victims: the cheapest set of eligible leases that frees enough. For this folder and src/explain; reads only.
#pragma once

#include "lease/rules.h"
#include "state/methods.h"
#include "state/preemption_plan.h"
#include "state/state.h"

namespace sublet::core {

// A lease that came back a moment ago is no victim for this time, except for critical leases.
inline constexpr Duration resume_grace = std::chrono::seconds(2);

// Number of waiters that may be preemptors without a request, among those for the same device or the same number of any
// devices. The first in the queue count. Paused leases that wait to resume count among more.
inline constexpr std::size_t preemptors = 8;
inline constexpr std::size_t parked_preemptors = 4 * preemptors;

// A question for victims: by a waiter, or by the lease of a preview (`lease.id` none).
struct PreemptionQuery {
  const Lease& lease;  // the waiter: tier, size and devices
  std::optional<PreemptionRequest> preemption_request{};
  bool lists_all = true;  // also examines leases that it does not reach; a decision does not need them
  bool by_rules = true;   // besides its request, it may also preempt by tier and quota
  bool by_quota = false;  // it is within the guarantee of its tenant; set by within_quota()
  bool reclaims = false;  // leases count too that are reclaimable for this waiter
  // true: leases count too that become eligible a little later (resuming, or ineligible for a while)
  bool patient = false;
  std::vector<std::string> on{};      // uuids of the only devices; empty: any that it may use
  std::vector<LeaseId> spared{};  // leases that are no victims: host memory does not take them

  Cause cause() const { return preemption_request ? Cause::request : by_quota ? Cause::quota : Cause::tier; }
  // A request by an admin reaches the programs of all users, a user's request only the user's own.
  bool by_request(const Lease& other) const {
    return preemption_request && (preemption_request->any_user || preemption_request->uid == other.uid);
  }
  // True if the other lease may be a victim for this one at all: by the request, or by tier.
  bool reaches(const Lease& other) const;
};

// True if only borrowed memory of the lease may be taken for the waiter.
bool needs_borrowed(const PreemptionQuery& query, const Lease& lease);
// The query with `by_quota`, as the waiter stands now.
PreemptionQuery within_quota(const State& state, PreemptionQuery query);

// Why the lease may not be a victim of the preemptor now; nothing if it may be one in this `way`. For time slices see
// slices.h.
std::optional<Ineligible> ineligible(const State& state, const Rules& rules, const PreemptionQuery& query,
                                     const Lease& lease, const WayToYield& way, Time now);
// The reason as a sentence, at the same moment.
std::string ineligible_text(const State& state, const Rules& rules, const PreemptionQuery& query,
                            const Ineligible& ineligible, Time now);
// Why no victims were found; "" if some were.
std::string no_victims_text(const State& state, const Rules& rules, const PreemptionQuery& query, const NoVictims& why);

// The time until a pausing lease is measured gone, or a resuming one runs; unset: unknown, or longer than it should
// ever take.
std::optional<Duration> time_left(const State& state, LeaseId id, Time now);

// The time from the order until the bytes are measured gone.
Duration yields_in(const State& state, const Victim& victim);
Duration yields_in(const State& state, const std::vector<Victim>& victims);  // all of them, one after the other

// True if it is pausing and the driver does not return, so that no plan counts on it.
bool passed_over(const State& state, LeaseId id);

// True if it leaves and plans count on it. It got a pause order, or gets one by its next method once the one before is
// undone; or its capability is asked to take its memory.
bool is_leaving(const State& state, const Lease& lease);

// The lease as a victim on one device, for a lease of the user `preemptor`.
Victim as_victim(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor,
                 const Device& device, Time now);

// The same in a known way.
Victim as_victim(const State& state, const Lease& lease, const WayToYield& way, const Device& device, Time now);

// The same for a lease whose capability takes its memory.
Victim given_back(const State& state, const Lease& lease, const Reclaim& terms, const Device& device, Time now);

// Several leases as victims on several devices, the cheapest first.
std::vector<Victim> as_victims(const State& state, const Rules& rules, const std::vector<LeaseId>& leases,
                               std::uint32_t preemptor, const std::vector<std::string>& devices, Time now);

// The devices where victims are sought for it: those that it names or has, otherwise the freest first.
std::vector<const Device*> devices_for(const State& state, const Lease& lease);

// The bytes that come free on the device once all pauses in progress are done.
Bytes being_yielded(const State& state, const Device& device);

// The bytes that the preemptor lacks on the device even then; 0 or less: nothing.
Bytes lacking(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now);

// False if no victims can help the waiter on this device now, whatever other leases might free there.
bool might_make_room(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now);

// True if it could be a preemptor without a request, by its place in the queue or the one that it would get.
bool may_ask(const State& state, const Rules& rules, const Lease& lease);

// The plan on the cheapest of the devices that it may use. Reclaimable leases are victims only if no others
// are enough.
VictimPlan plan_victims(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);

// The victims once they are eligible (`wait`, `wait_for`), if no others are to be had.
VictimPlan plan_later(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);
// The victims now, or else later, with the sentences of the plan.
VictimPlan plan_now_or_later(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);

// When the waiter's memory on the device is free by itself, as far as the ends of other leases are known.
std::optional<Time> room_by_itself(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                   Time now);

}  // namespace sublet::core
