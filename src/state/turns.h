// SPDX-License-Identifier: Apache-2.0
// The rotation of tenants that share devices in time slices: in each branch of the tree, the tenant that has held least
// for its weight is next. Only the time counts in which its leases shared these devices, so that the window of past use
// decides nothing here. Services count in whole slices: tenants that differ by less than half a slice take strict
// turns, in the order in which they left, whatever the exact lengths of their slices were. Private to this folder;
// reads only.
#pragma once

#include "state/state.h"

#include <compare>
#include <map>
#include <string>
#include <vector>

namespace sublet::core {

// A service in whole slices (`unit`) above the least beside it, to the nearest slice.
std::int64_t in_slices(Integral had, Integral least, Integral unit);
// The service from which on `other` counts at least as much as `own`, or more if a tie does not do. `least`: the least
// service beside `other`.
Integral service_to_pass(Integral own, Integral least, Integral unit, bool tie_does);

// The service with which a newcomer begins, beside others with these services, of which some wait. It has had as much
// as the least. In a rotation it stands behind those that wait, by one `turn` at most, so that newcomers delay nobody.
Integral service_of_newcomer(const std::vector<std::pair<Integral, bool>>& others, Integral turn);
// The length of a slice of the rotation on the device, among leases of the tier; 0: there is none.
Duration slice_on(const State& state, const std::pair<std::string, Tier>& where);

class Turns {
 public:
  Turns(const State& state, Tier tier, std::vector<std::string> devices, Time now)
      : state_(state), tier_(tier), devices_(std::move(devices)), now_(now) {}

  // At the same service, tenants that left at the same time come in the order of adding.
  void add(const Lease& lease);
  // After all leases are added: the order at this time, if nothing else changes. `slice`: the length of a time slice.
  void put_in_order(Time at, Duration slice);
  // The lease, and no other, had all its devices for so long, until this time. For looks ahead.
  void serve(const Lease& lease, Duration length, Time until);
  // From the top of the tree down to its user, it has at most this many slices more than the least beside it.
  bool has_at_most(LeaseId lease, std::int64_t slices) const;
  // Less: the tenant of `a` comes first. Equal: both are of the same user.
  std::strong_ordering compare(LeaseId a, LeaseId b) const;
  // When the tenant of the waiter comes before that of the lease; never() if it does not.
  Time passes(LeaseId waiter, LeaseId lease) const;

 private:
  struct Service {
    Integral had = 0, rate = 0;  // by weight: bytes × ns, and bytes
    Integral wants = 0;          // by weight: the bytes of its smallest lease
    Time since;                  // since when it has nothing on the devices, or has what it has
    std::size_t place = 0;       // in the order of adding
    Integral unit = 1;           // one slice, for it and the tenants beside it
    std::int64_t slices = 0;     // the service in these, above the least beside it
    Integral at(Duration later) const { return had + rate * later.count(); }
  };
  static bool wins_ties(const Service& a, const Service& b);
  // Where the paths of two leases part. 0: nowhere.
  std::pair<AccountId, AccountId> part(LeaseId a, LeaseId b) const;
  std::vector<AccountId> path(LeaseId lease) const;  // from the top down

  const State& state_;
  Tier tier_;
  std::vector<std::string> devices_;
  Time now_;
  std::map<AccountId, Service> services_;
  std::map<AccountId, std::vector<AccountId>> below_;  // by parent
};

// Counts the service of the tenants of these leases, which share a device, from now on.
void count_turns(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                 Time now);

// The same of the tenants that are counted already. None of them is forgotten, and no newcomer is counted.
void count_holders(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                   Time now);

}  // namespace sublet::core
