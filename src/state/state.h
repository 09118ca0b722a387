// SPDX-License-Identifier: Apache-2.0
// All that the core knows, as plain tables. Only step() and load() change them; everybody else reads. Not thread-safe:
// they belong to the engine's loop thread. Their invariants: core/testing/validate.cpp.
#pragma once

#include "state/devices.h"
#include "state/host.h"
#include "state/learned.h"
#include "state/leases.h"
#include "state/pauses.h"
#include "state/preemption.h"
#include "state/queue.h"
#include "state/tenants.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace sublet::core {

struct State {
  Leases leases;
  Devices devices;
  Queue queue;
  std::vector<Nomination> nominations;  // in the order of their waiters, as of the last step that could have granted
  HostLedger host;
  Learned learned;
  Pauses pauses;
  Preemption preemption;
  Tenants tenants;
  Time last_queued_at;      // no two leases are queued at the same time
  std::uint64_t steps = 0;  // number of steps since load(); only a step changes the state

  // Loads the content of the store, with the ended leases that must still settle. Owners get rules.reconnect from
  // `now`; the bytes of every lease count as reserved at once. A device that a lease names is listed without a reading
  // until a snapshot shows it. Call step with a Tick next.
  static State load(std::vector<Lease> leases, std::map<Consumer, ConsumerHistory> history, std::uint64_t last_id,
                    const Rules& rules, Time now, const std::vector<LearnedMove>& moves = {},
                    std::set<Consumer> grants = {}, const std::vector<LearnedRecord>& records = {});
};

// Makes a change to the lease, or to its charges, and keeps the sums of its devices in step with it.
template <typename Change>
void rebook(State& state, Lease& lease, const Change& change) {
  for (const std::string& uuid : lease.devices)
    include(state, state.devices.by_uuid.at(uuid), lease, *charge_at(state, lease, uuid), -1);
  change();
  for (const std::string& uuid : lease.devices)
    include(state, state.devices.by_uuid.at(uuid), lease, *charge_at(state, lease, uuid), 1);
}

}  // namespace sublet::core
