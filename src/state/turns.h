// SPDX-License-Identifier: Apache-2.0
// The rotation of tenants that share devices in time slices: in each branch of the tree, the tenant that has held least
// for its weight is next. Only the time counts in which its leases shared these devices, so that the window of past use
// decides nothing here. Private to this folder; reads only.
#pragma once

#include "state/state.h"

#include <compare>
#include <map>
#include <string>
#include <vector>

namespace sublet::core {

class Turns {
 public:
  Turns(const State& state, Tier tier, std::vector<std::string> devices, Time now)
      : state_(state), tier_(tier), devices_(std::move(devices)), now_(now) {}

  // At the same service the tenant comes first whose lease was added first.
  void add(LeaseId lease);
  // Less: the tenant of `a` comes first at this time, if nothing else changes. Equal: both are of the same user.
  std::strong_ordering compare(LeaseId a, LeaseId b, Time at) const;
  // When the tenant of the waiter comes before that of the lease; never() if it does not.
  Time passes(LeaseId waiter, LeaseId lease) const;

 private:
  struct Service {
    Integral had = 0, rate = 0;  // by weight: bytes × ns, and bytes
    std::size_t place = 0;       // in the order of adding
    Integral at(Duration later) const { return had + rate * later.count(); }
  };
  // Where the paths of two leases part. Null: nowhere.
  std::pair<const Service*, const Service*> part(LeaseId a, LeaseId b) const;
  std::vector<AccountId> path(LeaseId lease) const;  // from the top down

  const State& state_;
  Tier tier_;
  std::vector<std::string> devices_;
  Time now_;
  std::map<AccountId, Service> services_;
};

// Counts the service of the tenants of these leases, which share a device, from now on.
void count_turns(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                 Time now);

}  // namespace sublet::core
