// SPDX-License-Identifier: Apache-2.0
// Who gets what became free. One order for all devices; a lease is granted where it leaves the least, and on all of its
// devices at once or on none.
#include "core/stepper.h"
#include "core/words.h"

#include <algorithm>
#include <climits>
#include <set>
#include <tuple>
#include <utility>

namespace sublet::core {

namespace {

// The first in the order of those that want a device by name and fit there: one for each device that has one.
class NamedFits {
 public:
  void set(const std::string& device, const QueueKey* key) {
    const auto old = by_device_.find(device);
    if (old != by_device_.end()) {
      in_order_.erase(old->second);
      by_device_.erase(old);
    }
    if (key == nullptr) return;
    in_order_.insert(*key);
    by_device_.emplace(device, *key);
  }
  const QueueKey* first() const { return in_order_.empty() ? nullptr : &*in_order_.begin(); }

 private:
  struct Before {
    bool operator()(const QueueKey& a, const QueueKey& b) const { return a.before(b); }
  };
  std::map<std::string, QueueKey> by_device_;
  std::set<QueueKey, Before> in_order_;
};

}  // namespace

// Goes on until nobody who waits fits anywhere. After each step nobody does, so only those can fit who came since, or
// whose device has more room since. Small requests may pass a large one that stands before them.
void Stepper::grant_waiting() {
  NamedFits named;
  const auto look_at = [this, &named](const std::string& device) {
    const QueueTree* waiting = state_.queue_.named(device);
    const auto at = state_.devices_.find(device);
    const bool known = at != state_.devices_.end() && at->second.indexed.room;
    named.set(device, waiting == nullptr || !known ? nullptr : waiting->first_within(at->second.indexed.room->free));
  };
  state_.reindex(rules_, now_);
  while (!state_.queue_.empty()) {
    for (const std::string& device : std::exchange(state_.opened_, {})) look_at(device);
    const QueueKey* next = named.first();
    for (const auto& [count, waiting] : state_.queue_.any()) {
      const auto room = state_.room_for(count);
      const QueueKey* fits = room ? waiting.first_within(*room) : nullptr;
      if (fits != nullptr && (next == nullptr || fits->before(*next))) next = fits;
    }
    if (next == nullptr) break;
    Lease& lease = *find(next->lease);
    grant(lease);
    state_.reindex(rules_, now_);
    for (const std::string& device : lease.devices) look_at(device);
  }
  state_.opened_.clear();
}

// The devices for a lease that fits, by their indices. All of it goes where it leaves the least; where only less than
// all of it fits, it takes the roomiest.
std::vector<std::string> Stepper::choose_devices(const Lease& lease) const {
  if (!lease.wanted_device.empty()) return {lease.wanted_device};
  std::vector<Room> chosen;
  const auto count = static_cast<std::size_t>(lease.device_count);
  const bool whole = *state_.room_for(lease.device_count) >= lease.vram;
  auto at = whole ? state_.rooms_.lower_bound(Room{lease.vram, INT_MIN, {}})
                  : std::prev(state_.rooms_.end(), lease.device_count);
  for (; chosen.size() < count; ++at) chosen.push_back(*at);
  std::sort(chosen.begin(), chosen.end(),
            [](const Room& a, const Room& b) { return std::tie(a.index, a.device) < std::tie(b.index, b.device); });
  std::vector<std::string> devices;
  devices.reserve(count);
  for (Room& room : chosen) devices.push_back(std::move(room.device));
  return devices;
}

void Stepper::grant(Lease& lease) {
  lease.devices = choose_devices(lease);
  Bytes free = state_.devices_.at(lease.devices.front()).indexed.room->free;
  for (const std::string& device : lease.devices) free = std::min(free, state_.devices_.at(device).indexed.room->free);
  const Duration waited = now_ - lease.created_at;
  state_.queue_.erase(lease.id);
  lease.vram = std::min(lease.vram, free);
  lease.granted_at = now_;
  ++lease.generation;
  // A connection owner without a connection has nobody to tell, even in the step that brought it.
  const bool asking = lease.id == submitted_ && lease.owner.kind != OwnerKind::connection;
  const bool open = asking || state_.sides_.at(lease.id).held;
  lease.state = open ? LeaseState::active : LeaseState::offered;
  state_.book(lease);
  std::string text = format_size(lease.vram);
  if (lease.vram < lease.asked_vram) text += " of the " + format_size(lease.asked_vram) + " asked for";
  text += on_devices(state_, lease) + ", where " + format_size(free) + " was effectively free, after waiting " +
          format_duration(waited);
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

// Ends those who wait for more than their devices could ever give. A device that was never read could give anything.
void Stepper::reject_hopeless() {
  if (state_.queue_.empty()) return;
  state_.reindex(rules_, now_);
  const auto reject = [this](const auto& waiting, Bytes most, const std::string& why) {
    for (const QueueTree* tree = waiting(); tree != nullptr; tree = waiting()) {
      const QueueKey* first = tree->first_above(most);
      if (first == nullptr) return;
      Lease& lease = *find(first->lease);
      end(lease, EndReason::rejected, need_text(lease) + "; " + why);
    }
  };
  for (const auto& [uuid, device] : state_.devices_) {
    if (!device.read_at || state_.queue_.named(uuid) == nullptr) continue;
    reject([this, &uuid = uuid] { return state_.queue_.named(uuid); }, State::capacity(device, rules_),
           "at most " + capacity_text(device, rules_) + " can be had");
  }
  if (state_.unread() > 0 || state_.capacities_.empty()) return;
  std::vector<int> counts;
  for (const auto& [count, waiting] : state_.queue_.any()) counts.push_back(count);
  for (const int count : counts) {
    const auto waiting = [this, count] {
      const auto tree = state_.queue_.any().find(count);
      return tree == state_.queue_.any().end() ? nullptr : &tree->second;
    };
    if (const Device* tightest = state_.capacity_for(count))
      reject(waiting, State::capacity(*tightest, rules_),
             "at most " + capacity_text(*tightest, rules_) + " can be had" + (count > 1 ? " on the last of them" : ""));
    else reject(waiting, Bytes{-1}, "there are only " + std::to_string(state_.capacities_.size()) + " devices");
  }
}

}  // namespace sublet::core
