// SPDX-License-Identifier: Apache-2.0
#include "state/nominations.h"

#include "state/end_estimate.h"
#include "state/format.h"
#include "state/rank.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace sublet::core {
namespace {

// The number of long waiters that are examined, and the number of nominations.
constexpr std::size_t looked_at = 32;
constexpr std::size_t held_for = 8;
// A start on any device is sought on this many of the freest devices, and on twice as many at each new choice.
constexpr int devices_tried = 16;
constexpr int most_tries = 8;

// The expected start of the waiter on one device, and the memory that it leaves over there.
struct Shadow {
  std::optional<Time> start;  // by the known ends; unset: unknown
  Duration stay{};            // unknown: what is in the way has been there for so long, and may stay as long again
};

struct End {
  Time at;
  Bytes bytes;
  bool operator<(const End& other) const { return at < other.at; }
};

// The known ends on a device in order; ends of others are given by their age.
struct Ends {
  std::vector<End> known;
  std::vector<std::pair<Duration, Bytes>> unknown;
};

Ends ends_on(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now) {
  Ends ends;
  for (const auto& [bytes, id] : device.by_charge) {
    if (id == waiter.id) continue;
    const Lease& lease = *find(state, id);
    const Time start = lease.runs_since(now);
    const Expected end = expected_end(state, rules, lease, start, now);
    if (end.basis == Basis::settling) ends.known.push_back({now, bytes});
    else if (end.known()) ends.known.push_back({end.at, bytes});
    else ends.unknown.emplace_back(now - start, bytes);
  }
  std::sort(ends.known.begin(), ends.known.end());
  return ends;
}

Shadow shadow_of(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Ends& ends,
                 Time now) {
  const Bytes need = need_on(state, waiter, device.reading.uuid);
  Bytes free = free_on(state, device, rules, now);
  if (free >= need) return {now, {}};
  for (const End& end : ends.known) {
    free += end.bytes;
    if (free >= need) return {end.at, {}};
  }
  std::sort(ends.unknown.begin(), ends.unknown.end());
  for (const auto& [age, bytes] : ends.unknown) {
    free += bytes;
    if (free >= need) return {std::nullopt, age};
  }
  return {std::nullopt, Duration::max()};
}

// True if the lease was preempted, and waits to resume: its preemptor owes it the memory.
bool is_owed(const State& state, const Lease& lease) { return lease.is_preempted() && state.queue.contains(lease.id); }

// The bytes that leases behind preempted leases may take for any time: all of these must fit once their preemptors,
// which outrank them, have given back what they got since.
Bytes left_by_owed(const State& state, const Rules& rules, const Lease& waiter, const Device& device) {
  const std::string& uuid = device.reading.uuid;
  Bytes left = capacity_of(device, rules) - device.other;
  for (const auto& [bytes, id] : device.by_charge) {
    const Lease& lease = *find(state, id);
    if (is_owed(state, lease)) left -= bytes + need_on(state, lease, uuid);
    else if (!lease.ended()) left -= bytes;
    if (!lease.ended() && outranks(lease, waiter)) left += given_since(state, lease, uuid, waiter.waits_since());
  }
  return left;
}

// The bytes of the device that leases behind the waiter may take for any time.
Bytes left_by(const State& state, const Rules& rules, const Lease& waiter, const Device& device, const Ends& ends,
              const std::optional<Time>& start, Time now) {
  const Bytes need = need_on(state, waiter, device.reading.uuid);
  if (start) {
    Bytes free = free_on(state, device, rules, now);
    for (const End& end : ends.known)
      if (end.at <= *start) free += end.bytes;
    return free - need;
  }
  if (is_owed(state, waiter)) return left_by_owed(state, rules, waiter, device);
  const Time since = waiter.waits_since() + rules.reserve_after;
  Bytes left = capacity_of(device, rules) - device.other - need;
  for (const auto& [bytes, id] : device.by_charge)
    left -= id == waiter.id ? bytes : given_since(state, *find(state, id), device.reading.uuid, since);
  return left;
}

}  // namespace

Nominations::Nominations(const State& state, const Rules& rules, Time now) : state_(state), rules_(rules), now_(now) {
  if (rules.reserve_after <= Duration{}) return;
  std::vector<QueueKey> waiters;
  state.queue.all().queued_by(now - rules.reserve_after, looked_at, waiters);
  for (const QueueKey& key : waiters)
    if (entries_.size() < held_for && (key.fixed || !any_) && !key.limited) add(key);
  if (!waiters.empty()) last_ = waiters.back();
}

bool Nominations::given(const QueueKey& key, const std::vector<std::string>& devices) {
  if (last_ && !last_->before(key)) return false;
  for (const std::string& device : devices)
    if (const Held* held = held_on(state_.devices.by_uuid.at(device).number)) terms_[held->entry].reset();
  return true;
}

// A walk over all of them is the fastest search, because they are few.
const Nominations::Held* Nominations::held_on(std::uint32_t device) const {
  const auto found = std::find_if(held_.begin(), held_.end(), [device](const Held& h) { return h.device == device; });
  return found == held_.end() ? nullptr : &*found;
}

// Paused leases keep a residue on the device until they are back. No memory is reserved against paused leases without
// whose residue the waiter would not fit: both would wait for each other for ever.
const Device* Nominations::free_to_hold(const Lease& waiter, const std::string& device) const {
  const auto at = state_.devices.by_uuid.find(device);
  const bool free = at != state_.devices.by_uuid.end() && held_on(at->second.number) == nullptr;
  if (!free || !may_grant_on(state_, at->second, rules_, now_)) return nullptr;
  const Bytes here = waiter.waits_in_place() ? charged_on(state_, waiter, device) : Bytes{};
  return here + need_on(state_, waiter, device) <= most_beside_others(state_, waiter, at->second) ? &at->second
                                                                                                  : nullptr;
}

void Nominations::add(const QueueKey& key) {
  const Lease& waiter = *find(state_, key.lease);
  std::optional<Nomination> room;
  std::vector<std::string> certain = waiter.certain_devices();
  const bool any = certain.empty();
  if (any) {
    if (!any_) room = choose(waiter);
  } else {
    room = Nomination{key.lease, std::move(certain), {}, 0};
    for (const std::string& device : room->devices)
      if (free_to_hold(waiter, device) == nullptr) return;
  }
  if (!room) return;
  any_ |= any;
  for (std::size_t i = 0; i < room->devices.size(); ++i)
    held_.push_back({state_.devices.by_uuid.at(room->devices[i]).number, entries_.size(), i});
  entries_.push_back({std::move(*room), key});
  terms_.emplace_back();
}

const Nominations::Terms& Nominations::terms(std::size_t entry) const {
  std::optional<Terms>& terms = terms_[entry];
  if (terms) return *terms;
  const std::vector<std::string>& devices = entries_[entry].room.devices;
  const Lease& waiter = *find(state_, entries_[entry].key.lease);
  terms.emplace();
  terms->start = now_;
  std::vector<Ends> ends;
  for (const std::string& uuid : devices) {
    const Device& device = state_.devices.by_uuid.at(uuid);
    ends.push_back(ends_on(state_, rules_, waiter, device, now_));
    const Shadow shadow = shadow_of(state_, rules_, waiter, device, ends.back(), now_);
    if (!shadow.start || !terms->start) terms->start.reset();
    else terms->start = std::max(*terms->start, *shadow.start);
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const Device& device = state_.devices.by_uuid.at(devices[i]);
    terms->left.push_back(left_by(state_, rules_, waiter, device, ends[i], terms->start, now_));
  }
  return *terms;
}

// A nomination stays on its devices until the expected start: memory that becomes free there is not given away for a
// better chance elsewhere. Each new choice examines more devices and is kept longer, so that a possible one is found.
std::optional<Nomination> Nominations::choose(const Lease& waiter) const {
  Nomination chosen{waiter.id, {}, {}, 0};
  for (const Nomination& old : state_.nominations) {
    if (old.waiter != waiter.id) continue;
    const auto usable = [&](const std::string& device) {
      return may_use(waiter, device) && free_to_hold(waiter, device) != nullptr;
    };
    if (old.until > now_ && std::all_of(old.devices.begin(), old.devices.end(), usable)) return old;
    chosen.tries = std::min(old.tries + 1, most_tries);
  }
  struct Choice {
    Shadow shadow;
    const Device* device;
  };
  std::vector<Choice> choices;
  int left = (devices_tried << chosen.tries) + waiter.device_count;
  for (auto room = state_.devices.by_free.rbegin(); room != state_.devices.by_free.rend() && left > 0; ++room) {
    const Device* usable = may_use(waiter, room->device) ? free_to_hold(waiter, room->device) : nullptr;
    if (usable == nullptr) continue;
    const Device& device = *usable;
    Ends ends = ends_on(state_, rules_, waiter, device, now_);
    choices.push_back({shadow_of(state_, rules_, waiter, device, ends, now_), &device});
    --left;
  }
  const auto count = static_cast<std::size_t>(waiter.device_count);
  if (choices.size() < count) return std::nullopt;
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    const auto rank = [](const Choice& c) {
      return std::tuple(!c.shadow.start, c.shadow.start.value_or(Time{}), c.shadow.stay, c.device->reading.order());
    };
    return rank(a) != rank(b) ? rank(a) < rank(b) : a.device->reading.uuid < b.device->reading.uuid;
  });
  chosen.until =
      now_ + std::min<Duration>(rules_.reserve_after, std::chrono::hours(24)) * (std::int64_t{1} << chosen.tries);
  for (std::size_t i = 0; i < count; ++i) {
    chosen.devices.push_back(choices[i].device->reading.uuid);
    if (choices[i].shadow.start) chosen.until = std::max(chosen.until, *choices[i].shadow.start);
  }
  return chosen;
}

// The bytes that these waiters need if they enter one after the other, as far as they wait. A paused waiter that
// returns takes its residue out of the headroom, and the next waiters lose that part.
Bytes Nominations::kept_for(const std::vector<LeaseId>& waiters, const std::string& device) const {
  Bytes kept, lost;
  for (const LeaseId id : waiters) {
    if (!state_.queue.contains(id)) continue;
    const Lease& lease = *find(state_, id);
    kept += std::exchange(lost, leaves_headroom(state_, lease, device)) + need_on(state_, lease, device);
  }
  return kept;
}

// Victims were paused for the beneficiaries alone. Each may take what the others leave. If that is not enough any more,
// they enter one after the other.
std::optional<Bytes> Nominations::comes_in(const PreemptionPlan& plan, const Lease& lease,
                                           const DeviceFree& room) const {
  std::vector<LeaseId> others = plan.beneficiaries;
  const auto its = std::find(others.begin(), others.end(), lease.id);
  if (its == others.end()) return std::nullopt;
  const std::vector<LeaseId> before(others.begin(), its);
  others.erase(its);
  const Bytes need = need_on(state_, lease, room.device), lost = leaves_headroom(state_, lease, room.device);
  const Bytes kept = kept_for(others, room.device);
  const Bytes beside_all = kept > Bytes{} ? room.free - kept - lost : room.free;
  return beside_all >= need ? beside_all : std::min(room.free - kept_for(before, room.device), need);
}

// A lease of a higher tier or within a quota goes ahead. All other leases leave the memory that the preemption plan
// needs.
Bytes Nominations::beside_plan(const Lease& lease, const std::string& device, Bytes room) const {
  const PreemptionPlan* plan = plan_on(state_, device);
  const bool bound = plan != nullptr && !goes_before(state_, lease, *plan);
  return bound ? room - kept_for(plan->beneficiaries, device) - leaves_headroom(state_, lease, device) : room;
}

Bytes Nominations::allowance(const QueueKey& key, const Lease& lease, const DeviceFree& room) const {
  if (const PreemptionPlan* plan = plan_on(state_, room.device))
    if (const auto its = comes_in(*plan, lease, room)) return *its;
  const Bytes free = beside_plan(lease, room.device, room.free);
  const Held* held = held_on(room.number);
  if (held == nullptr) return free;
  const Entry& entry = entries_[held->entry];
  if (!entry.key.before(key)) return free;  // it stands before, or is the one
  if (const std::optional<Time> start = terms(held->entry).start) {
    const Expected end = expected_end(state_, rules_, lease, lease.runs_since(now_), now_);
    if (end.known() && end.at <= *start) return free;
  }
  const Bytes left = left_over(*held, room) - leaves_headroom(state_, lease, room.device);
  // The sum for preempted leases has the need of this one.
  const bool counted =
      !terms(held->entry).start && is_owed(state_, lease) && is_owed(state_, *find(state_, entry.key.lease));
  return std::min(free,
                  counted ? left + charged_on(state_, lease, room.device) + need_on(state_, lease, room.device) : left);
}

// The memory left over by the nominated waiter, and by preemptors on this device if these are other leases.
Bytes Nominations::left_over(const Held& held, const DeviceFree& room) const {
  const PreemptionPlan* plan = plan_on(state_, room.device);
  if (plan == nullptr) return left(held);
  const bool its = plan->has(entries_[held.entry].room.waiter);
  return its ? left(held) : left(held) - kept_for(plan->beneficiaries, room.device);
}

Bytes Nominations::open_room(const DeviceFree& room) const {
  const PreemptionPlan* plan = plan_on(state_, room.device);
  const Held* held = held_on(room.number);
  Bytes free = room.free;
  if (plan != nullptr) free -= kept_for(plan->beneficiaries, room.device);
  if (held != nullptr) free = std::min(free, left_over(*held, room));
  const bool less = plan != nullptr || held != nullptr;
  return less ? free - in_headroom(state_, state_.devices.by_uuid.at(room.device).residues) : free;
}

const Nominations::Entry* nomination_before(const State& state, const Rules& rules, const Lease& lease,
                                            const Nominations& held, Time now) {
  const QueueKey* key = state.queue.key(lease.id);
  for (const Nominations::Entry& entry : held.entries()) {
    if (key == nullptr || !entry.key.before(*key)) continue;
    for (const std::string& uuid : entry.room.devices) {
      const Device& device = state.devices.by_uuid.at(uuid);
      if (may_use(lease, uuid) && free_on(state, device, rules, now) >= need_on(state, lease, uuid)) return &entry;
    }
  }
  return nullptr;
}

ReasonArgs nomination_args(const State& state, const Nominations& held, const Nominations::Entry& entry, Time now) {
  const std::optional<Time> start = held.start(entry);
  const Lease& waiter = *find(state, entry.room.waiter);
  return args("reserved_on", device_names(state, entry.room.devices), "reserved_for", name_of(waiter), "reserved_since",
              now - waiter.waits_since(), "reserved_bytes", waiter.wanted_vram(), "reserved_start",
              start ? std::optional(*start - now) : std::nullopt);
}

}  // namespace sublet::core
