// SPDX-License-Identifier: Apache-2.0
// Memory of released stacks for leases that wait. The core ends a pinned spot lease by itself only if no process was
// booked to it, because the core cannot end such processes. Stacks can.
#include "stacks/stacks.h"
#include "stacks/steps.h"

#include <fmt/format.h>

namespace sublet::stacks {
namespace {

constexpr std::size_t most_waiters = 8;  // that are looked at; the first ones of the queue

Need need_of(const core::Lease& lease, const core::State& state) {
  if (lease.waits_in_place())
    return {lease.wanted_vram() - lease.reserved_each(), static_cast<int>(lease.devices.size()), lease.devices};
  Need need{lease.least(), lease.device_count, {}};
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (core::may_use(lease, uuid)) need.devices.push_back(uuid);
  return need;
}

}  // namespace

std::string memory_is_for(LeaseId waiter) { return fmt::format("its memory is for {} ", to_string(waiter)); }

std::vector<Idle> Stacks::idle() const {
  std::vector<Idle> found;
  for (const auto& [name, entry] : entries_) {
    const core::Lease* lease = entry.stack.use.lease ? engine_.find(entry.stack.use.lease) : nullptr;
    const bool leaves = entry.stack.phase == Phase::stopping;
    if (lease == nullptr || lease->ended() || (!leaves && entry.stack.phase != Phase::released)) continue;
    found.push_back({name, lease->devices, lease->reserved_each(), entry.stack.since, leaves});
  }
  for (const auto& [id, lease] : engine_.state().leases.by_id)  // its bytes are free once they are measured gone
    if (lease.ended()) found.push_back({to_string(id), lease.devices, lease.vram, {}, true});
  return found;
}

std::optional<std::vector<std::string>> Stacks::choose_for(const core::Lease& lease) const {
  const core::State& state = engine_.state();
  std::map<std::string, Bytes> free;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (core::may_grant_on(state, device, engine_.rules(), engine_.now()))
      free[uuid] = core::unclaimed_on(device, engine_.rules());
  return choose_idle(need_of(lease, state), free, idle());
}

bool Stacks::makes_room_for(const core::Lease& lease) const {
  return lease.tier > core::Tier::spot && choose_for(lease).has_value();
}

// Brings down released stacks for the first lease that gets its memory by this.
void Stacks::make_room(Time now) {
  const core::State& state = engine_.state();
  const auto is_released = [](const auto& each) { return each.second.stack.phase == Phase::released; };
  if (state.queue.size() == 0 || std::ranges::none_of(entries_, is_released)) return;
  for (const LeaseId id : state.queue.in_order(most_waiters)) {
    const core::Lease& waiter = *core::find(state, id);
    if (waiter.tier <= core::Tier::spot) continue;
    const auto chosen = choose_for(waiter);
    if (!chosen || chosen->empty()) continue;
    for (const std::string& name : *chosen) {
      Entry& entry = *mutable_find(name);
      stop(entry.stack, fmt::format("{}({}, {})", memory_is_for(id), waiter.consumer, waiter.user), now);
      changed(entry);
    }
    return;
  }
}

}  // namespace sublet::stacks
