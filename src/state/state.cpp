// SPDX-License-Identifier: Apache-2.0
// The state after a restart: what is stored, and what has to be assumed of the rest.
#include "state/state.h"
#include "base/mutants.h"
#include "state/tenant_rights.h"

#include <algorithm>
#include <utility>

namespace sublet::core {

State State::load(std::vector<Lease> leases, std::map<Consumer, ConsumerHistory> history, std::uint64_t last_id,
                  const Rules& rules, Time now, const std::vector<LearnedMove>& moves, std::set<Consumer> grants,
                  const std::vector<LearnedRecord>& records) {
  State state;
  for (const LearnedRecord& learned : records)
    state.learned.records.insert_or_assign({learned.consumer, learned.method}, learned.record);
  for (const LearnedMove& move : moves) state.learned.costs.learn(move);
  state.learned.grants = std::move(grants);
  state.leases.last_id = last_id;
  state.queue.set_aging(rules.aging_per_minute);
  load_histories(state, std::move(history));
  std::sort(leases.begin(), leases.end(), [](const Lease& a, const Lease& b) { return a.id < b.id; });
  for (Lease& given : leases) {
    Lease& lease = add_lease(state, std::move(given));
    LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
    state.leases.last_id = std::max(state.leases.last_id, lease.id.number);
    state.last_queued_at = std::max(state.last_queued_at, lease.queued_at);
    if (lease.ended()) {
      runtime.charges.assign(lease.devices.size(), Charge{.settling = true});
    } else if (lease.queues()) {
      state.queue.insert(lease, place_by_tenant(state, lease));
    }
    if (!lease.ended()) {
      if (lease.owner.kind == OwnerKind::connection) lease.unheld_since = now;
      forgive(state, lease, rules, now);
    }
    if (lease.stop_requested) state.leases.unsignalled.push_back(lease.id);
    if (lease.reserves() || lease.ended()) book(state, lease);
    if (lease.resize) state.last_queued_at = std::max(state.last_queued_at, lease.resize->queued_at);
    if (lease.waits_in_place()) requeue_in_place(state, lease);
    runtime.restored_at = lease.resumed_at.value_or(Time{});
    runtime.used_until = now;
    runtime.silent_since = now;  // who wanted to register could not
    // Whether its pause came to anything is not stored, nor when it grew: a resumed lease may have been granted its
    // memory.
    runtime.back_at = lease.state == LeaseState::resuming ? now : runtime.restored_at;
    if (lease.preemption_request && !lease.held_back_at &&
        (state.queue.contains(lease.id) || !lease.preemption_request->given_at))
      state.preemption.requested.insert(lease.id);
    if (lease.parking && !lease.ended()) {
      enter(state, lease, 1);
      if (!lease.parked()) runtime.attempt = Attempt{.told_since = now};
      if (!lease.parked() && !mutant(Mutant::half_done_stays_so)) state.leases.half_done.push_back(lease.id);
      if (!lease.parked()) rebook(state, lease, [&] { expect_all_back(state, lease); });
    }
    if (lease.state == LeaseState::queued)
      for (const std::string& device : lease.wanted_devices) device_entry(state, device);
    if (!lease.ended()) state.learned.requests.note(lease.device_count, lease.vram);
    schedule(state, lease, rules);
  }
  return state;
}

}  // namespace sublet::core
