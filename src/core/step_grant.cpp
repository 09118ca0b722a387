// SPDX-License-Identifier: Apache-2.0
// Grants memory that became free. One order holds for all devices. A lease is granted on all of its devices at once or
// on none.
#include "state/nominations.h"

#include "base/mutants.h"
#include "base/size_bounds.h"
#include "core/current_step.h"
#include "core/some_devices.h"
#include "core/step_end.h"
#include "core/step_grant.h"
#include "core/step_named.h"
#include "core/step_pause.h"
#include "core/step_resize.h"
#include "core/step_resume.h"
#include "core/step_tenants.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <algorithm>
#include <climits>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

namespace sublet::core {

namespace {

// Backfill looks at this many fitting waiters for each device count and for each named device.
constexpr std::size_t looked_past = 8;

// Calls `act` with the waiters for any N devices, and the free memory on the Nth of the freest devices.
template <typename Act>
void each_any(const State& state, const Act& act) {
  auto room = state.devices.by_free.rbegin();
  std::size_t place = 1;
  for (const auto& [count, waiting] : state.queue.any()) {
    for (; place < static_cast<std::size_t>(count) && room != state.devices.by_free.rend(); ++place) ++room;
    if (room == state.devices.by_free.rend()) return;
    act(waiting, room->free, place);
  }
}

// The free memory on the Nth of the freest devices of the set, for those who want N of it; nothing: so many are not
// known. With `held`: the part that any lease may take.
std::optional<Bytes> room_in(const State& state, const Queue::Subset& among, const Nominations* held) {
  std::vector<Bytes> rooms;
  for (const std::string& uuid : among.devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end() || !device->second.indexed.room) continue;
    const DeviceFree& room = *device->second.indexed.room;
    rooms.push_back(held == nullptr ? room.free : held->open_room(room));
  }
  if (std::ssize(rooms) < among.count) return std::nullopt;
  std::ranges::sort(rooms, std::greater<>());
  return rooms[static_cast<std::size_t>(among.count - 1)];
}

}  // namespace

class NamedFits;
static std::optional<Placement> next_placement(Step& step, const NamedFits& named, std::optional<Nominations>& rooms);
static void add_fits_beside(const Step& step, const Nominations& held, const NamedFits& named,
                            std::vector<QueueKey>& fits);
static std::vector<Bytes> open_rooms(const Step& step, const Nominations& held);
static void note_held(Step& step, const Nominations& held);

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

// Grants until no waiter fits. Only new waiters can fit, and waiters for devices whose free memory grew or that are
// reserved less. Small requests may pass a large one that stands before them, until
// that one has waited so long that it is nominated.
void grant_waiting(Step& step) {
  if (step.rules.safe_mode) return;
  NamedFits named;
  const auto look_at = [&step, &named](const std::string& device) {
    const QueueTree* waiting = step.state.queue.named(device);
    const auto at = step.state.devices.by_uuid.find(device);
    const bool known = at != step.state.devices.by_uuid.end() && at->second.indexed.room;
    named.set(device, waiting == nullptr || !known ? nullptr : waiting->first_within(at->second.indexed.room->free));
  };
  reindex(step.state, step.rules, step.now);
  place_waiters(step);
  if (step.served == step.state.queue.revision() && step.state.devices.opened.empty()) return;
  for (const Nomination& had : step.state.nominations)
    step.state.devices.opened.insert(step.state.devices.opened.end(), had.devices.begin(), had.devices.end());
  std::optional<Nominations> held;  // until a grant changes them
  while (step.state.queue.size() > 0) {
    for (const std::string& device : std::exchange(step.state.devices.opened, {})) look_at(device);
    const auto placement = next_placement(step, named, held);
    if (!placement) break;
    Lease& lease = *find(step, placement->lease);
    const QueueKey key = *step.state.queue.key(lease.id);
    if (lease.parking) bring_back(step, lease);
    else if (lease.resize) grow(step, lease);
    else grant(step, lease, *placement, why_there(step, key, lease, held ? &*held : nullptr, *placement));
    reindex(step.state, step.rules, step.now);
    if (place_waiters(step)) held.reset();
    // A lease that is back is no obstacle any more to a nomination that was refused because of it.
    if (held && (lease.parking || !held->given(key, lease.devices))) held.reset();
    for (const std::string& device : lease.devices) look_at(device);
  }
  step.state.devices.opened.clear();
  std::erase_if(step.state.nominations,
                [&step](const Nomination& had) { return !step.state.queue.contains(had.waiter); });
  step.served = step.state.queue.revision();
}

// The next lease that gets memory, and where; none if all that fit must leave the memory to a nominated lease.
static std::optional<Placement> next_placement(Step& step, const NamedFits& named, std::optional<Nominations>& rooms) {
  const QueueKey* next = named.first();
  const auto consider = [&next](const QueueKey* key) {
    if (key != nullptr && (next == nullptr || key->before(*next))) next = key;
  };
  each_any(step.state,
           [&](const QueueTree& waiting, Bytes room, std::size_t) { consider(waiting.first_within(room)); });
  for (const auto& [among, waiting] : step.state.queue.subsets())
    if (const auto room = room_in(step.state, among, nullptr)) consider(waiting.first_within(*room));
  // Each of these leases waits on devices of its own, which may have memory for it whatever stands before it. Such
  // leases are few.
  std::vector<QueueKey> sets;
  step.state.queue.sets().first(step.state.queue.sets().size(), sets);
  std::erase_if(sets, [&step](const QueueKey& key) { return !place(step, key, nullptr); });
  if (!sets.empty()) consider(&sets.front());
  if (next == nullptr) return std::nullopt;
  if (!rooms) note_held(step, rooms.emplace(step.state, step.rules, step.now));
  const Nominations& held = *rooms;
  if (auto placement = place(step, *next, &held); placement || held.devices() == 0) return placement;
  add_fits_beside(step, held, named, sets);
  std::sort(sets.begin(), sets.end(), [](const QueueKey& a, const QueueKey& b) { return a.before(b); });
  for (const QueueKey& key : sets)
    if (auto placement = place(step, key, &held)) return placement;
  return std::nullopt;
}

// Adds waiters that may fit although memory is held for others: preemptors, the first that fit without that, and the
// first that fit beside it.
static void add_fits_beside(const Step& step, const Nominations& held, const NamedFits& named,
                            std::vector<QueueKey>& fits) {
  for (const PreemptionPlan& plan : step.state.preemption.plans) {
    for (const LeaseId id : plan.beneficiaries)
      if (const QueueKey* key = step.state.queue.key(id)) fits.push_back(*key);
  }
  const auto add = [&fits](const QueueTree& waiting, Bytes room, std::optional<Bytes> open) {
    waiting.within(room, looked_past, fits);
    const QueueKey* key = open ? waiting.first_within(*open) : nullptr;
    if (key != nullptr) fits.push_back(*key);
  };
  const std::vector<Bytes> open = open_rooms(step, held);
  each_any(step.state, [&](const QueueTree& waiting, Bytes room, std::size_t place) {
    add(waiting, room, place <= open.size() ? std::optional(open[place - 1]) : std::nullopt);
  });
  for (const auto& [among, waiting] : step.state.queue.subsets())
    if (const auto room = room_in(step.state, among, nullptr)) add(waiting, *room, room_in(step.state, among, &held));
  for (const auto& [device, first] : named.all()) {
    const DeviceFree& room = *step.state.devices.by_uuid.at(device).indexed.room;
    add(*step.state.queue.named(device), room.free, held.open_room(room));
  }
}

// Where the waiter would be put now, if it may.
std::optional<Placement> place(const Step& step, const QueueKey& key, const Nominations* held) {
  const Lease& lease = *find(step.state, key.lease);
  if (key.limited) return std::nullopt;
  Placement placement{lease.id, lease.certain_devices(), lease.wanted_vram()};
  if (placement.devices.empty()) return place_on_some(step, key, lease, held);
  for (const std::string& uuid : placement.devices) {
    const auto device = step.state.devices.by_uuid.find(uuid);
    const bool known =
        device != step.state.devices.by_uuid.end() && device->second.indexed.room && may_use(lease, uuid);
    const Bytes allowed = known ? allowance(key, lease, *device->second.indexed.room, held) : Bytes{};
    if (!known || allowed < need_on(step.state, lease, uuid)) return std::nullopt;
    if (!lease.waits_in_place()) placement.vram = std::min(placement.vram, allowed);
  }
  if (!lease.waits_in_place()) placement.devices = sort_by_index(step.state, std::move(placement.devices));
  return placement;
}

// The free memory of the freest devices, less all nominations, the largest first.
static std::vector<Bytes> open_rooms(const Step& step, const Nominations& held) {
  std::vector<Bytes> open;
  if (step.state.queue.any().empty()) return open;
  const std::size_t most = static_cast<std::size_t>(step.state.queue.any().rbegin()->first);
  const std::size_t enough = most + held.devices();
  for (auto room = step.state.devices.by_free.rbegin();
       room != step.state.devices.by_free.rend() && open.size() < enough; ++room)
    open.push_back(held.open_room(*room));
  std::sort(open.begin(), open.end(), std::greater<>());
  if (open.size() > most) open.resize(most);
  return open;
}

// Stores the nominations, and tells the waiters that are nominated anew.
static void note_held(Step& step, const Nominations& held) {
  const auto same = [](const Nomination& had, const Nominations::Entry& entry) {
    const Nomination& room = entry.room;
    return std::tie(had.waiter, had.until, had.tries) == std::tie(room.waiter, room.until, room.tries) &&
           had.devices == room.devices;
  };
  const std::vector<Nomination>& known = step.state.nominations;
  if (std::equal(known.begin(), known.end(), held.entries().begin(), held.entries().end(), same)) return;
  std::vector<Nomination> rooms;
  for (const Nominations::Entry& entry : held.entries()) {
    const auto old = std::find_if(step.state.nominations.begin(), step.state.nominations.end(),
                                  [&](const Nomination& had) { return had.waiter == entry.room.waiter; });
    if (old == step.state.nominations.end() || old->devices != entry.room.devices) {
      const Lease& lease = *find(step, entry.room.waiter);
      const std::optional<Time> start = held.start(entry);
      explain(step, lease, ReasonKind::capacity_reserved,
              args("waited", step.now - lease.waits_since(), "devices", device_names(step.state, entry.room.devices),
                   "starts", start > step.now ? std::optional(*start - step.now) : std::nullopt));
    }
    rooms.push_back(entry.room);
  }
  for (const Nomination& had : step.state.nominations)  // what is held no more may be somebody's turn now
    step.state.devices.opened.insert(step.state.devices.opened.end(), had.devices.begin(), had.devices.end());
  step.state.nominations = std::move(rooms);
}

void grant(Step& step, Lease& lease, const Placement& placement, ReasonArgs why) {
  lease.devices = placement.devices;
  if (mutant(Mutant::a_gang_of_fewer) && lease.devices.size() > 1) lease.devices.pop_back();
  std::optional<Bytes> free;  // on that of them where it is least
  Time read_at = step.now;    // of that of them which was read first
  for (const std::string& uuid : lease.devices) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    free = std::min(free.value_or(device.indexed.room->free), device.indexed.room->free);
    read_at = std::min(read_at, device.read_at.value_or(step.now));
  }
  const Duration waited = step.now - lease.created_at;
  step.state.queue.erase(lease.id);
  lease.vram = placement.vram;
  lease.granted_at = step.now;
  ++lease.generation;
  // A waiter proves by its claim that it is still there: an open connection may belong to a stopped process. A
  // connection owner without a connection has nobody to tell, even in the step that brought it.
  const bool connected = lease.owner.kind != OwnerKind::connection || step.state.leases.runtime.at(lease.id).held;
  // Processes of a control group are a proof, too.
  const bool open =
      lease.owner.kind == OwnerKind::group ? lease.owner.inode != 0 : lease.id == step.submitted && connected;
  lease.state = open ? LeaseState::active : LeaseState::offered;
  book(step.state, lease);
  if (open) start_ttl(step, lease);
  else lease.offer_ends_at = step.now + step.rules.claim_window;
  const auto asked = lease.vram < lease.asked_vram ? std::optional(lease.asked_vram) : std::nullopt;
  const auto window = open ? std::nullopt : std::optional(step.rules.claim_window);
  ReasonArgs all = args("vram", lease.vram, "asked", asked, "devices", device_names(step.state, lease.devices), "free",
                        *free, "look", step.now - read_at, "waited", waited, "window", window);
  all.add(std::move(why));
  explain(step, lease, open ? ReasonKind::granted : ReasonKind::offered, std::move(all));
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// The TTL runs from the moment the lease can be used, not from an offer that nobody took yet.
void start_ttl(Step& step, Lease& lease) {
  if (lease.ttl) lease.expires_at = after(lease.clock(step.now), *lease.ttl);
}

// A lease can never have what it waits for. `why`: arguments of the fragment "hopeless".
void reject_as_hopeless(Step& step, Lease& lease, ReasonArgs why) {
  if (lease.parking) return withdraw_return(step, lease, ReasonKind::resume_hopeless, std::move(why));
  if (lease.resize) return withdraw_resize(step, lease, ReasonKind::resize_hopeless, std::move(why));
  ReasonArgs all = need_args(step.state, lease);
  all.add(std::move(why));
  end(step, lease, EndReason::rejected, ReasonKind::rejected, std::move(all));
}

// Ends those who wait for more than their devices could ever give. A device that was never read could give anything.
void reject_hopeless(Step& step) {
  if (step.state.queue.size() == 0) return;
  reindex(step.state, step.rules, step.now);
  const auto reject = [&step](const auto& waiting, Bytes most, const auto& why) {  // `why`: the fragment "hopeless"
    for (const QueueTree* tree = waiting(); tree != nullptr; tree = waiting()) {
      const QueueKey* first = tree->first_above(most);
      if (first == nullptr) return;
      Lease& lease = *find(step, first->lease);
      reject_as_hopeless(step, lease, why());
    }
  };
  for (const auto& [uuid, device] : step.state.devices.by_uuid) {
    if (!device.read_at || step.state.queue.named(uuid) == nullptr) continue;
    reject([&step, &uuid = uuid] { return step.state.queue.named(uuid); }, capacity_of(device, step.rules),
           [&step, &device = device] { return capacity_args(device, step.rules); });
  }
  std::vector<Queue::Subset> subsets;
  for (const auto& [among, waiting] : step.state.queue.subsets()) subsets.push_back(among);
  for (const Queue::Subset& among : subsets) {
    if (!are_read(step, among.devices)) continue;
    const auto waiting = [&step, &among] {
      const auto tree = step.state.queue.subsets().find(among);
      return tree == step.state.queue.subsets().end() ? nullptr : &tree->second;
    };
    if (const Device* tightest = capacity_for(step.state, among.count, among.devices))
      reject(waiting, capacity_of(*tightest, step.rules), [&] { return capacity_args(*tightest, step.rules); });
    else reject(waiting, Bytes{-1}, [&step] { return args("present", count_whole(step.state)); });
  }
  if (count_unread(step.state) > 0 || step.state.devices.capacities.empty()) return;
  std::vector<int> counts;
  for (const auto& [count, waiting] : step.state.queue.any()) counts.push_back(count);
  for (const int count : counts) {
    const auto waiting = [&step, count] {
      const auto tree = step.state.queue.any().find(count);
      return tree == step.state.queue.any().end() ? nullptr : &tree->second;
    };
    if (const Device* tightest = capacity_for(step.state, count))
      reject(waiting, capacity_of(*tightest, step.rules),
             [&step, tightest] { return capacity_args(*tightest, step.rules); });
    else
      reject(waiting, Bytes{-1}, [&step, count] {
        const auto all = std::ssize(step.state.devices.capacities);
        return args("present", count > 1 ? count_whole(step.state) : all);
      });
  }
}

}  // namespace sublet::core
