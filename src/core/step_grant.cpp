// SPDX-License-Identifier: Apache-2.0
// Grants memory that became free. One order holds for all devices. A lease is granted where it leaves the least, and on
// all of its devices at once or on none.
#include "core/nominations.h"

#include "base/mutants.h"
#include "base/size_bounds.h"
#include "core/format.h"
#include "core/stepper.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

namespace sublet::core {

namespace {

// So many of those that fit are looked at for one that is back before those whose room is held can start: of each
// number of devices that is asked for, and of those that asked for one device by name.
constexpr std::size_t looked_past = 8;

}  // namespace

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
  const std::map<std::string, QueueKey>& all() const { return by_device_; }

 private:
  struct Before {
    bool operator()(const QueueKey& a, const QueueKey& b) const { return a.before(b); }
  };
  std::map<std::string, QueueKey> by_device_;
  std::set<QueueKey, Before> in_order_;
};

// Goes on until nobody who waits fits anywhere. After each step nobody does, so only those can fit who came since, or
// whose device has more room since, or is held less. Small requests may pass a large one that stands before them, until
// that one has waited so long that room is held for it.
void Stepper::grant_waiting() {
  if (rules_.safe_mode) return;
  NamedFits named;
  const auto look_at = [this, &named](const std::string& device) {
    const QueueTree* waiting = state_.queue_.named(device);
    const auto at = state_.devices_.find(device);
    const bool known = at != state_.devices_.end() && at->second.indexed.room;
    named.set(device, waiting == nullptr || !known ? nullptr : waiting->first_within(at->second.indexed.room->free));
  };
  state_.reindex(rules_, now_);
  if (served_ == state_.queue_.revision() && state_.opened_.empty()) return;
  for (const Nomination& had : state_.nominations_)
    state_.opened_.insert(state_.opened_.end(), had.devices.begin(), had.devices.end());
  std::optional<Nominations> held;  // until somebody is given room who changes that
  while (!state_.queue_.empty()) {
    for (const std::string& device : std::exchange(state_.opened_, {})) look_at(device);
    const auto placement = next_placement(named, held);
    if (!placement) break;
    Lease& lease = *find(placement->lease);
    const QueueKey key = *state_.queue_.key(lease.id);
    if (lease.parking) bring_back(lease);
    else if (lease.resize) grow(lease);
    else grant(lease, *placement);
    state_.reindex(rules_, now_);
    // A lease that is back is no obstacle any more to a nomination that was refused because of it.
    if (held && (lease.parking || !held->given(key, lease.devices))) held.reset();
    for (const std::string& device : lease.devices) look_at(device);
  }
  state_.opened_.clear();
  std::erase_if(state_.nominations_, [this](const Nomination& had) { return !state_.queue_.contains(had.waiter); });
  served_ = state_.queue_.revision();
}

// The next lease that gets memory, and where; none if all that fit must leave the memory to a nominated lease.
std::optional<Stepper::Placement> Stepper::next_placement(const NamedFits& named, std::optional<Nominations>& rooms) {
  const QueueKey* next = named.first();
  const auto consider = [&next](const QueueKey* key) {
    if (key != nullptr && (next == nullptr || key->before(*next))) next = key;
  };
  // Calls `act` with the waiters for any N devices, and the free memory on the Nth of the freest devices.
  const auto each_any = [this](const auto& act) {
    auto room = state_.rooms_.rbegin();
    std::size_t place = 1;
    for (const auto& [count, waiting] : state_.queue_.any()) {
      for (; place < static_cast<std::size_t>(count) && room != state_.rooms_.rend(); ++place) ++room;
      if (room == state_.rooms_.rend()) return;
      act(waiting, room->free, place);
    }
  };
  each_any([&](const QueueTree& waiting, Bytes room, std::size_t) { consider(waiting.first_within(room)); });
  // Each of these leases waits on devices of its own, which may have memory for it whatever stands before it. Such
  // leases are few.
  std::vector<QueueKey> sets;
  state_.queue_.sets().first(state_.queue_.sets().size(), sets);
  std::erase_if(sets, [this](const QueueKey& key) { return !place(key, nullptr); });
  if (!sets.empty()) consider(&sets.front());
  if (next == nullptr) return std::nullopt;
  if (!rooms) note_held(rooms.emplace(state_, rules_, now_));
  const Nominations& held = *rooms;
  if (auto placement = place(*next, &held); placement || held.devices() == 0) return placement;
  std::vector<QueueKey> fits = sets;
  for (const PreemptionPlan& plan : state_.plans_) {
    if (const QueueKey* key = state_.queue_.key(plan.preemptor)) fits.push_back(*key);
    for (const LeaseId id : plan.beneficiaries)
      if (const QueueKey* key = state_.queue_.key(id)) fits.push_back(*key);
  }
  const std::vector<Bytes> open = open_rooms(held);
  each_any([&](const QueueTree& waiting, Bytes room, std::size_t place) {
    waiting.within(room, looked_past, fits);
    const QueueKey* key = place <= open.size() ? waiting.first_within(open[place - 1]) : nullptr;
    if (key != nullptr) fits.push_back(*key);
  });
  for (const auto& [device, first] : named.all()) {
    const QueueTree& waiting = *state_.queue_.named(device);
    const DeviceFree& room = *state_.devices_.at(device).indexed.room;
    waiting.within(room.free, looked_past, fits);
    if (const QueueKey* key = waiting.first_within(held.open_room(room))) fits.push_back(*key);
  }
  std::sort(fits.begin(), fits.end(), [](const QueueKey& a, const QueueKey& b) { return a.before(b); });
  for (const QueueKey& key : fits)
    if (auto placement = place(key, &held)) return placement;
  return std::nullopt;
}

// Where the waiter would be put now, if it may.
std::optional<Stepper::Placement> Stepper::place(const QueueKey& key, const Nominations* held) const {
  const Lease& lease = *state_.find(key.lease);
  const auto allowance_in = [&](const DeviceFree& room) {
    return held == nullptr ? room.free : held->allowance(key, lease, room);
  };
  const auto allowance = [&](const std::string& device) -> std::optional<Bytes> {
    const auto& room = state_.devices_.at(device).indexed.room;
    return room ? std::optional(allowance_in(*room)) : std::nullopt;
  };
  if (lease.waits_in_place()) {
    for (const std::string& device : lease.devices) {
      const auto allowed = allowance(device);
      if (!allowed || *allowed < state_.need(lease, device)) return std::nullopt;
    }
    return Placement{lease.id, lease.devices, lease.wanted_vram()};
  }
  if (!lease.wanted_device.empty()) {
    const auto allowed = allowance(lease.wanted_device);
    if (!allowed || *allowed < lease.least()) return std::nullopt;
    return Placement{lease.id, {lease.wanted_device}, std::min(lease.vram, *allowed)};
  }
  // All of it goes where it leaves the least; where only less than all of it fits, it takes the roomiest.
  const auto count = static_cast<std::size_t>(lease.device_count);
  std::vector<std::pair<Bytes, const DeviceFree*>> chosen;
  const auto whole = state_.rooms_.lower_bound(DeviceFree{lease.vram, INT_MIN, {}, 0});
  for (auto room = whole; room != state_.rooms_.end() && chosen.size() < count; ++room)
    if (allowance_in(*room) >= lease.vram) chosen.emplace_back(lease.vram, &*room);
  if (chosen.size() < count && lease.least() < lease.vram) {
    chosen.clear();
    const std::size_t enough = count + (held == nullptr ? 0 : held->devices());
    for (auto room = state_.rooms_.rbegin(); room != state_.rooms_.rend() && chosen.size() < enough; ++room)
      if (const Bytes allowed = allowance_in(*room); allowed >= lease.least()) chosen.emplace_back(allowed, &*room);
    std::stable_sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (chosen.size() > count) chosen.resize(count);
  }
  if (chosen.size() < count) return std::nullopt;
  std::sort(chosen.begin(), chosen.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second->index, a.second->device) < std::tie(b.second->index, b.second->device);
  });
  Placement placement{lease.id, {}, lease.vram};
  for (const auto& [allowed, room] : chosen) {
    placement.devices.push_back(room->device);
    placement.vram = std::min(placement.vram, allowed);
  }
  return placement;
}

// The room on the first, the second … of the roomiest devices, of what is left to those who stand behind all for whom
// room is held.
std::vector<Bytes> Stepper::open_rooms(const Nominations& held) const {
  std::vector<Bytes> open;
  if (state_.queue_.any().empty()) return open;
  const std::size_t most = static_cast<std::size_t>(state_.queue_.any().rbegin()->first);
  const std::size_t enough = most + held.devices();
  for (auto room = state_.rooms_.rbegin(); room != state_.rooms_.rend() && open.size() < enough; ++room)
    open.push_back(held.open_room(*room));
  std::sort(open.begin(), open.end(), std::greater<>());
  if (open.size() > most) open.resize(most);
  return open;
}

// Remembers for whom room is held where, and tells those for whom it is new.
void Stepper::note_held(const Nominations& held) {
  const auto same = [](const Nomination& had, const Nominations::Entry& entry) {
    const Nomination& room = entry.room;
    return std::tie(had.waiter, had.until, had.tries) == std::tie(room.waiter, room.until, room.tries) &&
           had.devices == room.devices;
  };
  const std::vector<Nomination>& known = state_.nominations_;
  if (std::equal(known.begin(), known.end(), held.entries().begin(), held.entries().end(), same)) return;
  std::vector<Nomination> rooms;
  for (const Nominations::Entry& entry : held.entries()) {
    const auto old = std::find_if(state_.nominations_.begin(), state_.nominations_.end(),
                                  [&](const Nomination& had) { return had.waiter == entry.room.waiter; });
    if (old == state_.nominations_.end() || old->devices != entry.room.devices) {
      const Lease& lease = *find(entry.room.waiter);
      const std::optional<Time> start = held.start(entry);
      explain(lease, ReasonKind::capacity_reserved,
              args("waited", now_ - lease.waits_since(), "devices", device_names(state_, entry.room.devices), "starts",
                   start ? std::optional(*start - now_) : std::nullopt));
    }
    rooms.push_back(entry.room);
  }
  for (const Nomination& had : state_.nominations_)  // what is held no more may be somebody's turn now
    state_.opened_.insert(state_.opened_.end(), had.devices.begin(), had.devices.end());
  state_.nominations_ = std::move(rooms);
}

void Stepper::grant(Lease& lease, const Placement& placement) {
  lease.devices = placement.devices;
  if (mutant(Mutant::a_gang_of_fewer) && lease.devices.size() > 1) lease.devices.pop_back();
  std::optional<Bytes> free;  // on that of them where it is least
  Time read_at = now_;        // of that of them which was read first
  for (const std::string& uuid : lease.devices) {
    const Device& device = state_.devices_.at(uuid);
    free = std::min(free.value_or(device.indexed.room->free), device.indexed.room->free);
    read_at = std::min(read_at, device.read_at.value_or(now_));
  }
  const Duration waited = now_ - lease.created_at;
  state_.queue_.erase(lease.id);
  lease.vram = placement.vram;
  lease.granted_at = now_;
  ++lease.generation;
  // A waiter proves by its claim that it is still there: an open connection may belong to a stopped process. A
  // connection owner without a connection has nobody to tell, even in the step that brought it.
  const bool connected = lease.owner.kind != OwnerKind::connection || state_.runtime_.at(lease.id).held;
  const bool open = lease.id == submitted_ && connected;
  lease.state = open ? LeaseState::active : LeaseState::offered;
  state_.book(lease);
  if (open) start_ttl(lease);
  else lease.offer_ends_at = now_ + rules_.claim_window;
  const auto asked = lease.vram < lease.asked_vram ? std::optional(lease.asked_vram) : std::nullopt;
  const auto window = open ? std::nullopt : std::optional(rules_.claim_window);
  explain(lease, open ? ReasonKind::granted : ReasonKind::offered,
          args("vram", lease.vram, "asked", asked, "devices", device_names(state_, lease.devices), "free", *free,
               "look", now_ - read_at, "waited", waited, "window", window));
  state_.schedule(lease, rules_);
  touch_given(lease);
}

// The TTL runs from the moment the lease can be used, not from an offer that nobody took yet.
void Stepper::start_ttl(Lease& lease) {
  if (lease.ttl) lease.expires_at = now_ + *lease.ttl;
}

// A lease can never have what it waits for. `why`: arguments of the fragment "hopeless".
void Stepper::reject_as_hopeless(Lease& lease, ReasonArgs why) {
  if (lease.parking) return withdraw_return(lease, ReasonKind::resume_hopeless, std::move(why));
  if (lease.resize) return withdraw_resize(lease, ReasonKind::resize_hopeless, std::move(why));
  ReasonArgs all = need_args(lease);
  all.add(std::move(why));
  end(lease, EndReason::rejected, ReasonKind::rejected, std::move(all));
}

// Ends those who wait for more than their devices could ever give. A device that was never read could give anything.
void Stepper::reject_hopeless() {
  if (state_.queue_.empty()) return;
  state_.reindex(rules_, now_);
  const auto reject = [this](const auto& waiting, Bytes most, const auto& why) {  // `why`: the fragment "hopeless"
    for (const QueueTree* tree = waiting(); tree != nullptr; tree = waiting()) {
      const QueueKey* first = tree->first_above(most);
      if (first == nullptr) return;
      Lease& lease = *find(first->lease);
      reject_as_hopeless(lease, why());
    }
  };
  for (const auto& [uuid, device] : state_.devices_) {
    if (!device.read_at || state_.queue_.named(uuid) == nullptr) continue;
    reject([this, &uuid = uuid] { return state_.queue_.named(uuid); }, State::capacity(device, rules_),
           [this, &device = device] { return capacity_args(device, rules_); });
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
             [this, tightest] { return capacity_args(*tightest, rules_); });
    else reject(waiting, Bytes{-1}, [this] { return args("present", state_.capacities_.size()); });
  }
}

}  // namespace sublet::core
