// SPDX-License-Identifier: Apache-2.0
// Chooses victims: the cheapest set of eligible leases that frees enough. Private to this folder; reads only.
#pragma once

#include "core/methods.h"
#include "core/preemption_plan.h"
#include "core/rules.h"
#include "core/state.h"

namespace sublet::core {

// A lease that came back a moment ago is no victim for this time, except for critical leases.
inline constexpr Duration resume_grace = std::chrono::seconds(2);

// So many waiters, the first in the order of those who want the same device, or as many of any, may have others asked
// without anybody's word; and those who want to come back, as far as they are among the first of more.
inline constexpr std::size_t preemptors = 8;
inline constexpr std::size_t parked_preemptors = 4 * preemptors;

// A question for victims: by a waiter, or by the lease of a preview (`lease.id` none).
struct PreemptionQuery {
  const Lease& lease;  // its tier, size and devices
  std::optional<PreemptionRequest> preemption_request{};
  bool lists_all = true;  // those whom it does not reach are looked at too: a decision needs only who it reaches
  bool by_rules = true;   // beyond what was ordered, it may have those yield whom anybody in its place may
  // Those count too who may be asked a little later: they are coming back, or are left alone for a while.
  bool patient = false;
  std::vector<std::string> on{};  // only on these devices, uuids; none: on any that it may use

  Cause cause() const { return preemption_request ? Cause::request : Cause::tier; }
  // The word of an administrator reaches everybody's programs, that of a user the user's own.
  bool by_request(const Lease& other) const {
    return preemption_request && (preemption_request->any_user || preemption_request->uid == other.uid);
  }
  bool may_be_on(const std::string& device) const;
  // Whether the other yields to this one at all: on that word, or to its tier.
  bool reaches(const Lease& other) const;
};

// Whether it is this lease's moment to yield to the preemptor, and the `way` it would: nothing, or why not. Not of
// turns: slices.h.
std::optional<Ineligible> ineligible(const State& state, const Rules& rules, const PreemptionQuery& query,
                                     const Lease& lease, const WayToYield& way, Time now);
// The same as a sentence, at the same moment.
std::string ineligible_text(const State& state, const Rules& rules, const PreemptionQuery& query,
                            const Ineligible& ineligible, Time now);
// Why no victims were found; "" if some were.
std::string no_victims_text(const State& state, const Rules& rules, const PreemptionQuery& query, const NoVictims& why);

// How much longer the lease takes to yield until it is measured gone, or to come back; unset: nobody knows, or it takes
// longer than it ever should.
std::optional<Duration> time_left(const State& state, LeaseId id, Time now);

// From the order until the bytes are measured gone.
Duration yields_in(const State& state, const Victim& victim);
Duration yields_in(const State& state, const std::vector<Victim>& victims);  // of all, one after the other

// It is yielding, and nobody counts on that: the driver does not return.
bool passed_over(const State& state, LeaseId id);

// It is on its way out, and counted on: it was asked to yield, or will be by its next method as soon as the one before
// is undone.
bool is_leaving(const State& state, const Lease& lease);

// The lease as a victim on one device, for a lease of the user `preemptor`.
Victim as_victim(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor,
                 const Device& device, Time now);

// The same of several leases on several devices, the cheapest first.
std::vector<Victim> as_victims(const State& state, const Rules& rules, const std::vector<LeaseId>& leases,
                               std::uint32_t preemptor, const std::vector<std::string>& devices, Time now);

// The devices on which room may be made for it: those it is to have, else the roomiest first.
std::vector<const Device*> devices_for(const State& state, const Lease& lease);

// The bytes that come free on the device once all pauses in progress are done.
Bytes being_yielded(const State& state, const Device& device);

// The bytes that the preemptor lacks on the device even then; 0 or less: nothing.
Bytes lacking(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now);

// False: the waiter surely cannot have room made for it on this device now, by whatever others might yield there.
bool might_make_room(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now);

// Whether it could have others yield if nothing were ordered: its place in the queue, or the one that it would get.
bool may_ask(const State& state, const Rules& rules, const Lease& lease);

// On the cheapest of the devices that it may use.
VictimPlan plan_victims(const State& state, const Rules& rules, const PreemptionQuery& query, Time now);

// Until when the waiter's room on the device will be there by itself, as far as the ends of the other leases are known.
std::optional<Time> room_by_itself(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                   Time now);

}  // namespace sublet::core
