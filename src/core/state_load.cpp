// SPDX-License-Identifier: Apache-2.0
// The state after a restart: what is stored, and what has to be assumed of the rest.
#include "base/mutants.h"
#include "core/state.h"

#include <algorithm>
#include <utility>

namespace sublet::core {

State State::load(std::vector<Lease> leases, std::map<Consumer, ConsumerHistory> history, std::uint64_t last_id,
                  const Rules& rules, Time now, const std::vector<LearnedMove>& moves, std::set<Consumer> grants,
                  const std::vector<LearnedRecord>& records) {
  State state;
  for (const LearnedRecord& learned : records)
    state.records_.insert_or_assign({learned.consumer, learned.method}, learned.record);
  for (const LearnedMove& move : moves) state.costs_.learn(move);
  state.grants_ = std::move(grants);
  state.last_id_ = mutant(Mutant::ids_come_again) ? 0 : last_id;
  state.queue_.set_aging(rules.aging_per_minute);
  state.load_histories(std::move(history));
  std::sort(leases.begin(), leases.end(), [](const Lease& a, const Lease& b) { return a.id < b.id; });
  for (Lease& given : leases) {
    Lease& lease = state.add(std::move(given));
    LeaseRuntime& runtime = state.runtime_.at(lease.id);
    state.last_id_ = std::max(state.last_id_, lease.id.number);
    state.last_queued_at_ = std::max(state.last_queued_at_, lease.queued_at);
    if (lease.ended()) {
      runtime.charges.assign(lease.devices.size(), Charge{.settling = true});
    } else if (lease.state == LeaseState::queued) {
      state.queue_.insert(lease);
    }
    if (!lease.ended()) {
      if (lease.owner.kind == OwnerKind::connection) lease.unheld_since = now;
      state.forgive(lease, rules, now);
    }
    if (lease.stop_requested) state.unsignalled_.push_back(lease.id);
    if (lease.reserves() || lease.ended()) state.book(lease);
    if (lease.resize) state.last_queued_at_ = std::max(state.last_queued_at_, lease.resize->queued_at);
    if (lease.waits_in_place()) state.requeue_in_place(lease);
    runtime.restored_at = lease.resumed_at.value_or(Time{});
    runtime.used_until = now;
    runtime.silent_since = now;  // who wanted to register could not
    // Whether its pause came to anything is not stored, nor when it grew: who came back may have been given its room.
    runtime.back_at = lease.state == LeaseState::resuming ? now : runtime.restored_at;
    runtime.told_since = now;
    if (lease.preemption_request && (state.queue_.contains(lease.id) || !lease.preemption_request->given_at))
      state.requested_.insert(lease.id);
    if (lease.parking && !lease.ended()) {
      state.enter(lease, 1);
      const bool half_done = !lease.parked() || lease.parking->before_top;
      if (half_done && !mutant(Mutant::half_done_stays_so)) state.half_done_.push_back(lease.id);
      if (!lease.parked()) state.rebook(lease, [&] { state.expect_all_back(lease); });
    }
    if (lease.state == LeaseState::queued && !lease.wanted_device.empty()) state.device_entry(lease.wanted_device);
    state.schedule(lease, rules);
  }
  return state;
}

}  // namespace sublet::core
