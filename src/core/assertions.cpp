// SPDX-License-Identifier: Apache-2.0
#include "core/assertions.h"

#include <cassert>
#include <set>

namespace sublet::core {
namespace {

void assert_sums(const Device& device) {
  assert(device.leased_used >= Bytes{} && device.settling >= Bytes{} && device.other >= Bytes{});
  assert(device.residues >= Bytes{} && device.residues_to_come >= Bytes{} && device.kept_unseen >= Bytes{});
  assert(device.pausing >= 0 && device.parked >= 0);
  assert(device.charged >= device.leased_used && "each used byte is charged to its lease");
  assert(device.charged >= device.settling);
  assert(device.leases.size() == device.by_charge.size());
}

void assert_lease(const State& state, const Lease& lease) {
  assert(state.queue.contains(lease.id) == (lease.queues() || lease.waits_in_place()));
  assert(state.pauses.away.contains(lease.id) == lease.parking.has_value());
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end()) continue;
    assert(!lease.reserves() || device->second.leases.contains(lease.id));
    assert_sums(device->second);
  }
}

}  // namespace

void assert_step(const State& state, const Plan& plan) {
  assert(state.leases.by_id.size() == state.leases.runtime.size());
  assert(state.host.unsettled >= Bytes{} && state.host.entries >= state.host.unsettled);
  std::set<LeaseId> ordered;
  for (const Action& action : plan.actions) {
    if (const auto* park = std::get_if<Park>(&action)) assert(ordered.insert(park->lease).second);
    if (const auto* unpark = std::get_if<Unpark>(&action)) assert(ordered.insert(unpark->lease).second);
  }
  for (const Lease& changed : plan.changed)
    if (const Lease* lease = find(state, changed.id)) assert_lease(state, *lease);
}

}  // namespace sublet::core
