// SPDX-License-Identifier: Apache-2.0
// Who gets what became free. One order for all devices; a lease is granted where it leaves the least.
#include "core/stepper.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {

// Goes on until nobody who waits fits anywhere. Small requests may pass a large one that stands before them:
// holding what frees up for a large request that has waited long would lower `rooms` here, for those that
// stand behind it.
void Stepper::grant_waiting() {
  std::vector<Room> rooms;
  while (!state_.queue_.empty()) {
    rooms.clear();
    for (const auto& [uuid, device] : state_.devices_) {
      const Bytes free = state_.effective_free(device, rules_, now_);
      if (free > Bytes{}) rooms.push_back({uuid, free});
    }
    const auto next = rooms.empty() ? std::nullopt : state_.queue_.first_fit(rooms);
    if (!next) return;
    Lease& lease = *find(*next);
    grant(lease, *best_device(lease));
  }
}

// The fitting device with the least left over; of equals the lowest index, then uuid.
Device* Stepper::best_device(const Lease& lease) {
  Device* best = nullptr;
  Bytes best_free;
  for (auto& [uuid, device] : state_.devices_) {
    if (!may_use(lease, device)) continue;
    const Bytes free = state_.effective_free(device, rules_, now_);
    if (free < lease.vram) continue;
    const bool better =
        best == nullptr || free < best_free || (free == best_free && device.reading.index < best->reading.index);
    if (better) best = &device, best_free = free;
  }
  return best;
}

void Stepper::grant(Lease& lease, Device& device) {
  const Bytes free = state_.effective_free(device, rules_, now_);
  const Duration waited = now_ - lease.created_at;
  state_.queue_.erase(lease.id);
  lease.device = device.reading.uuid;
  lease.granted_at = now_;
  ++lease.generation;
  // A connection owner without a connection has nobody to tell, even in the step that brought it.
  const bool asking = lease.id == submitted_ && lease.owner.kind != OwnerKind::connection;
  const bool open = asking || state_.sides_.at(lease.id).held;
  lease.state = open ? LeaseState::active : LeaseState::offered;
  state_.book(lease);
  std::string text = format_size(lease.vram) + " on " + name_of(device) + ", where " + format_size(free) +
                     " was effectively free, after waiting " + format_duration(waited);
  if (open) {
    start_ttl(lease);
    explain(lease, "granted", "granted " + std::move(text));
  } else {
    lease.offer_ends_at = now_ + rules_.claim_window;
    explain(lease, "offered",
            "offered " + std::move(text) + "; to be claimed within " + format_duration(rules_.claim_window));
  }
  state_.schedule(lease, rules_);
  touch(lease);
}

// The TTL runs from the moment the lease can be used, not from an offer that nobody took yet.
void Stepper::start_ttl(Lease& lease) {
  if (lease.ttl) lease.expires_at = now_ + *lease.ttl;
}

// Ends those who wait for more than any device could ever give. A device that was never read could give
// anything.
void Stepper::reject_hopeless() {
  if (state_.queue_.empty()) return;
  const auto reject = [this](const std::string& wanted, const Device& largest) {
    const Bytes most = State::capacity(largest, rules_);
    while (const auto id = state_.queue_.first_above(wanted, most)) {
      Lease& lease = *find(*id);
      end(lease, EndReason::rejected,
          "needs " + format_size(lease.vram) + "; at most " + capacity_text(largest, rules_) + " can be had");
    }
  };
  const Device* largest = nullptr;
  bool unread = false;
  for (const auto& [uuid, device] : state_.devices_) {
    unread |= !device.read_at;
    if (!device.read_at) continue;
    if (state_.queue_.wanted(uuid)) reject(uuid, device);
    if (largest == nullptr || State::capacity(device, rules_) > State::capacity(*largest, rules_)) largest = &device;
  }
  if (largest != nullptr && !unread) reject("", *largest);
}

}  // namespace sublet::core
