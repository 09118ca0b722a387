// SPDX-License-Identifier: Apache-2.0
#include "core/slices.h"

#include "core/victims.h"
#include "state/ledger_set.h"
#include "state/methods.h"
#include "state/rank.h"
#include "state/tenant_rights.h"
#include "state/turns.h"

#include <algorithm>
#include <set>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration shortest_residency = 10s;
constexpr int residency_per_switch = 10;  // bounds what is spent on switching to a tenth

Duration moving(const State& state, const Lease& lease, const std::vector<std::string>& devices, Move move,
                Bytes bytes, Duration Prediction::*which = &Prediction::likely) {
  const auto method = pause_method_of(state, lease);
  const PauseMethod by = lease.parking ? lease.parking->method : method ? *method : PauseMethod::driver;
  return state.learned.costs.predict(lease.whose(), devices, by, move, bytes).*which;
}

// How long it has had the device while leases of its tier waited for the device.
Duration service_time(const State& state, const Lease& lease, const std::string& device, Time now) {
  const auto group = state.preemption.slice_groups.find({device, lease.tier});
  const bool shares = group != state.preemption.slice_groups.end();
  return Duration(shares ? static_cast<std::int64_t>(group->second.of(lease.id, now)) : 0);
}

// A lease that got its memory a moment ago may still be filling it.
bool is_settled(const State& state, LeaseId id, Time now) {
  return now - standing_of(state, id).came_back >= shortest_residency;
}

}  // namespace

std::size_t devices_wanted(const Lease& lease) {
  return lease.waits_in_place() ? lease.devices.size() : static_cast<std::size_t>(lease.device_count);
}

static bool has_guarantee(const State& state, const Lease& waiter) {
  const QueueKey* key = state.queue.key(waiter.id);
  return key != nullptr && key->guaranteed;
}

bool may_leave(const State& state, const Rules& rules, const Lease& waiter, const Lease& lease, Time now) {
  if (lease.state != LeaseState::active || lease.stop_requested) return false;
  const WayToYield way = way_to_yield(state, rules, lease, waiter.uid, now);
  if (outranks(waiter, lease)) return !ineligible(state, rules, {waiter, {}, /*lists_all=*/false}, lease, way, now);
  if (is_protected(state, lease) && !has_guarantee(state, waiter)) return false;
  return ranks_like(lease, waiter) && way.parks() && now >= standing_of(state, lease.id).ineligible_until;
}

Duration residency(const State& state, const Rules& rules, const Lease& lease,
                   const std::vector<std::string>& devices, Duration Prediction::*which) {
  if (rules.min_residency) return *rules.min_residency;
  const Bytes bytes = bytes_to_move(state, lease);
  const Duration away = moving(state, lease, devices, Move::pause, bytes, which) +
                        moving(state, lease, devices, Move::resume, bytes, which);
  return std::max(shortest_residency, residency_per_switch * away);
}

namespace {

// A lease with memory on the devices of a group, or a waiter. A lease that wants to grow is both.
struct Member {
  const Lease* lease;
  bool waits;
  std::size_t count;                 // it takes so many devices
  std::vector<std::size_t> on = {};  // of these: indices in the group
  std::vector<Bytes> takes = {};     // on each of these, beyond what it keeps while it is paused
  Duration had{};                    // its service time, on the device where it had most
  std::int64_t slices = 0;           // the service time in slices, above the least of the leases of its user
};

struct Contest {
  const State& state;
  const Rules& rules;
  const SliceGroup& group;
  const Lease& waiter;  // the members that share are of its tier, and leave as they would for this lease
  const Time now;
  std::vector<Bytes> room = {};  // on each device, without the members
  std::vector<Member> members = {};
  Duration slice{};  // the length of each time slice
  Turns turns{state, waiter.tier, group.devices, now};
};

constexpr Duration before_all = Duration::min();  // as a service time

// At the same service time the higher priority comes first, then the lease that waits. Leases of lower tiers come last.
bool had_less(const Member& a, const Member& b) {
  if (a.lease->tier != b.lease->tier) return outranks(*a.lease, *b.lease);
  if (a.had != b.had) return a.had < b.had;
  if (a.lease->priority != b.lease->priority) return a.lease->priority > b.lease->priority;
  return a.waits && !b.waits;
}

// The same of leases of one user, in whole slices. Among leases that wait, the one that has waited longest.
bool comes_first_of_user(const Member& a, const Member& b) {
  if (a.slices != b.slices) return a.slices < b.slices;
  if (a.lease->priority != b.lease->priority) return a.lease->priority > b.lease->priority;
  if (a.waits != b.waits) return a.waits;
  return a.waits && a.lease->waits_since() < b.lease->waits_since();
}

bool counts_service(const Contest& all, const Member& member) {
  return ranks_like(*member.lease, all.waiter) && member.had != before_all;
}

// The least service time of the other leases of its user; its own if there are none.
Duration least_beside(const Contest& all, const Member& its) {
  const AccountId user = account_of(all.state, its.lease->id);
  Duration least = Duration::max();
  for (const Member& other : all.members)
    if (&other != &its && counts_service(all, other) && account_of(all.state, other.lease->id) == user)
      least = std::min(least, other.had);
  return least == Duration::max() ? its.had : least;
}

// Sorts for this time: the tenant that has held least for its weight comes first, and of its leases the one with the
// least service time. Services count in whole slices.
void put_in_order(Contest& all, std::vector<Member>& order, Time at) {
  all.turns.put_in_order(at, all.slice);
  std::map<AccountId, Duration> least;
  for (const Member& member : order)
    if (counts_service(all, member)) {
      const auto [its, is_new] = least.try_emplace(account_of(all.state, member.lease->id), member.had);
      its->second = std::min(its->second, member.had);
    }
  for (Member& member : order)
    if (counts_service(all, member))
      member.slices = in_slices(member.had.count(), least.at(account_of(all.state, member.lease->id)).count(),
                                std::max<std::int64_t>(all.slice.count(), 1));
  std::ranges::stable_sort(order, [&all](const Member& a, const Member& b) {
    if (!counts_service(all, a) || !counts_service(all, b)) return had_less(a, b);
    const auto turn = all.turns.compare(a.lease->id, b.lease->id);
    return turn != 0 ? turn < 0 : comes_first_of_user(a, b);
  });
}

// `wanted`: the devices on which it may have a slice; null: it has memory on some of the devices.
void add_member(Contest& all, const Lease& lease, const std::set<std::string>* wanted) {
  Member its{&lease, wanted != nullptr, wanted != nullptr ? devices_wanted(lease) : 0};
  for (std::size_t i = 0; i < all.group.devices.size(); ++i) {
    const std::string& uuid = all.group.devices[i];
    const Device& device = all.state.devices.by_uuid.at(uuid);
    if (wanted != nullptr ? !wanted->contains(uuid) : !device.leases.contains(lease.id)) continue;
    its.on.push_back(i);
    its.had = std::max(its.had, service_time(all.state, lease, uuid, all.now));
    if (wanted != nullptr) {
      its.takes.push_back(need_on(all.state, lease, uuid));
      continue;
    }
    const Victim victim = as_victim(all.state, all.rules, lease, all.waiter.uid, device, all.now);
    its.takes.push_back(victim.gain);
    its.count += 1;
    all.room[i] += victim.gain;
    if (outranks(all.waiter, lease)) its.had = -victim.cost;  // the cheapest leases of lower tiers leave first
  }
  all.members.push_back(std::move(its));
}

// The bytes that a switch moves. Until its use has settled, all of its reserved bytes count.
Bytes bytes_while_it_shares(const Contest& all, const Lease& lease) {
  const Bytes bytes = bytes_to_move(all.state, lease);
  const bool settled = lease.parking || (lease.reserves() && is_settled(all.state, lease.id, all.now));
  return settled ? bytes : std::max(bytes, static_cast<std::int64_t>(lease.device_count) * lease.vram);
}

Duration pausing(const Contest& all, const Lease& lease) {
  return moving(all.state, lease, lease.devices, Move::pause, bytes_while_it_shares(all, lease));
}

Duration resuming(const Contest& all, const Lease& lease) {
  if (!lease.parking) return {};
  return moving(all.state, lease, lease.devices, Move::resume, bytes_to_move(all.state, lease));
}

// The time slice that is worth so long a switch.
Duration worth(const Contest& all, Duration switching) {
  return Duration(static_cast<std::int64_t>(static_cast<double>(switching.count()) / all.rules.slice_overhead));
}

// All slices of a group have the same length, so that leases whose pauses cost different times take strict turns: that
// of the most expensive switch between two of them. A newcomer counts once no lease waits that came before it
// (`with_newcomers`: at once), so that it prolongs the wait of none.
Duration slice_length(const Contest& all, bool with_newcomers = false,
                      Duration Prediction::*which = &Prediction::likely) {
  Time oldest = Time::never();
  for (const Member& member : all.members)
    if (member.waits && ranks_like(*member.lease, all.waiter)) oldest = std::min(oldest, member.lease->waits_since());
  Duration out{}, in{}, stays{};
  for (const Member& member : all.members) {
    const Lease& lease = *member.lease;
    if (!ranks_like(lease, all.waiter)) continue;
    if (!with_newcomers && lease.state == LeaseState::queued && lease.waits_since() > oldest) continue;
    const Bytes bytes = bytes_while_it_shares(all, lease);
    out = std::max(out, moving(all.state, lease, all.group.devices, Move::pause, bytes, which));
    if (with_newcomers || lease.parking)
      in = std::max(in, moving(all.state, lease, all.group.devices, Move::resume, bytes, which));
    stays = std::max(stays, residency(all.state, all.rules, lease, all.group.devices, which));
  }
  return std::max(worth(all, out + in), stays);
}

// `below`: leases of lower tiers leave as well.
Contest contest_of(const State& state, const Rules& rules, const SliceGroup& group, bool below, Time now) {
  Contest all{state, rules, group, *find(state, group.waiters.front().lease), now};
  std::set<LeaseId> holders;
  const bool all_have_guarantees = std::ranges::all_of(
      group.waiters, [&state](const SliceWaiter& its) { return has_guarantee(state, *find(state, its.lease)); });
  for (const std::string& uuid : group.devices) {
    const Device& device = state.devices.by_uuid.at(uuid);
    all.room.push_back(free_on(state, device, rules, now) + being_yielded(state, device));
    for (const LeaseId id : device.leases) {
      const Lease& lease = *find(state, id);
      if (!all_have_guarantees && is_protected(state, lease)) continue;
      if ((below || ranks_like(lease, all.waiter)) && may_leave(state, rules, all.waiter, lease, now))
        holders.insert(id);
    }
  }
  for (const SliceWaiter& waiter : group.waiters) add_member(all, *find(state, waiter.lease), &waiter.devices);
  for (const LeaseId id : holders) add_member(all, *find(state, id), nullptr);
  std::ranges::stable_sort(all.members, had_less);
  for (const Member& member : all.members) all.turns.add(*member.lease);
  all.slice = slice_length(all);
  put_in_order(all, all.members, now);
  return all;
}

// Takes the bytes of the member from the free memory, and returns the devices. Empty: it does not fit.
std::vector<std::string> take(const Contest& all, std::vector<Bytes>& room, const Member& member) {
  std::vector<std::string> devices;
  std::vector<Bytes> left = room;
  for (std::size_t i = 0; i < member.on.size() && devices.size() < member.count; ++i) {
    Bytes& there = left[member.on[i]];
    if (member.takes[i] > there) continue;
    there -= member.takes[i];
    devices.push_back(all.group.devices[member.on[i]]);
  }
  if (devices.size() < member.count) return {};
  room = std::move(left);
  return devices;
}

// Places the members in this order. Returns the last waiter that enters; null: none does.
const Member* place(const Contest& all, const std::vector<Member>& order, Time at, std::vector<NextSlice>& slices,
                    std::vector<LeaseId>& leave) {
  std::vector<Bytes> room = all.room;
  const Member* last = nullptr;
  slices.clear(), leave.clear();
  for (const Member& member : order) {
    const auto devices = take(all, room, member);
    if (devices.empty() && !member.waits) leave.push_back(member.lease->id);
    if (devices.empty() || !member.waits) continue;
    last = &member;
    auto its = std::ranges::find(slices, devices, &NextSlice::devices);
    if (its == slices.end()) its = slices.insert(its, {devices, all.waiter.tier, at, true, {}, {}});
    its->enters.push_back(member.lease->id);
  }
  return last;
}

// False: some of them would leave beyond what their tenants have borrowed, for waiters outside of their guarantee.
bool are_borrowed(const Contest& all, const std::vector<NextSlice>& slices, const std::vector<Victim>& victims) {
  const auto guaranteed = [&all](LeaseId id) { return has_guarantee(all.state, *find(all.state, id)); };
  const bool all_guaranteed = std::ranges::all_of(
      slices, [&](const NextSlice& slice) { return std::ranges::all_of(slice.enters, guaranteed); });
  if (all.state.tenants.by_name.quotas() == 0 || all_guaranteed) return true;
  Borrowed borrowed(all.state);
  return std::ranges::all_of(victims, [&](const Victim& victim) {
    const Lease& lease = *find(all.state, victim.lease);
    const bool has = borrowed.has(lease);
    borrowed.take(lease);
    return has;
  });
}

// The slices that begin at this time, if no lease comes or goes until then. `first`: this member comes before all.
std::vector<NextSlice> slices_at(Contest& all, Time at, const Member* first = nullptr) {
  const Duration shortest = std::min(all.rules.min_residency.value_or(shortest_residency), shortest_residency);
  std::vector<Member> order = all.members;
  for (Member& member : order) {
    if (member.lease->state == LeaseState::active) member.had += at - all.now;
    const bool is_first = first && first->waits == member.waits && first->lease == member.lease;
    // A lease that came only just before the end stays.
    const bool stays = !first && !member.waits && at - standing_of(all.state, member.lease->id).came_back < shortest;
    if (is_first || stays) member.had = before_all;
  }
  put_in_order(all, order, at);
  std::vector<NextSlice> slices;
  std::vector<LeaseId> leave;
  // If host memory does not take all that would leave, or not all of it is borrowed, the last that enters waits for
  // another slice.
  for (bool fits = false; !fits;) {
    const Member* last = place(all, order, at, slices, leave);
    if (last == nullptr) return {};
    const auto victims = as_victims(all.state, all.rules, leave, all.waiter.uid, all.group.devices, all.now);
    fits = beyond_ledger(all.state, all.rules, all.waiter.uid, victims).empty() && are_borrowed(all, slices, victims);
    if (!fits) order.erase(order.begin() + (last - order.data()));
  }
  for (NextSlice& slice : slices) {
    for (const LeaseId id : leave) {
      const auto& devices = find(all.state, id)->devices;
      if (std::ranges::find_first_of(devices, slice.devices) != devices.end()) slice.leaves.push_back(id);
      slice.fixed &= is_settled(all.state, id, all.now);
      std::erase(slice.enters, id);  // it wanted to grow
    }
  }
  // Without a lease of its tier that leaves it is no slice.
  std::erase_if(slices, [&all](const NextSlice& slice) {
    return slice.enters.empty() || std::ranges::none_of(slice.leaves, [&all](LeaseId id) {
             return ranks_like(*find(all.state, id), all.waiter);
           });
  });
  return slices;
}

// The leases of the waiter's tier that leave have had enough time by then for the cost of the switch, and the entering
// leases are worth it.
Time quantum_ends(const Contest& all, const NextSlice& slice) {
  Duration switching{};
  Time since;
  for (const LeaseId id : slice.leaves) {
    const Lease& lease = *find(all.state, id);
    switching += pausing(all, lease);
    if (ranks_like(lease, all.waiter)) since = std::max(since, standing_of(all.state, id).came_back);
  }
  for (const LeaseId id : slice.enters) switching += resuming(all, *find(all.state, id));
  return since + std::max(worth(all, switching), all.slice);
}

constexpr std::size_t most_in_rotation = 64;

// Set if no two leases of the tier fit together, and each can be paused.
std::optional<Rotation> rotation_of(const Contest& all) {
  std::vector<const Member*> members;
  for (const Member& member : all.members)
    if (ranks_like(*member.lease, all.waiter)) members.push_back(&member);
  if (members.size() > most_in_rotation) return std::nullopt;
  Rotation rotation{.devices = all.group.devices,
                    .tier = all.waiter.tier,
                    .slice = slice_length(all, /*with_newcomers=*/true),
                    .longest_slice = slice_length(all, /*with_newcomers=*/true, &Prediction::at_most),
                    .switching = {},
                    .leases = {}};
  Duration out{}, in{};
  for (const Member* member : members) {
    if (std::ranges::find(rotation.leases, member->lease->id) != rotation.leases.end()) return std::nullopt;
    if (member->lease->pausable == Pausable::no) return std::nullopt;
    for (const Member* other : members) {
      std::vector<Bytes> room = all.room;
      if (other != member && !take(all, room, *member).empty() && !take(all, room, *other).empty()) return std::nullopt;
    }
    rotation.leases.push_back(member->lease->id);
    const Bytes bytes = bytes_while_it_shares(all, *member->lease);
    const auto& devices = all.group.devices;
    out = std::max(out, moving(all.state, *member->lease, devices, Move::pause, bytes, &Prediction::at_most) +
                            moving(all.state, *member->lease, devices, Move::settle, bytes, &Prediction::at_most));
    in = std::max(in, moving(all.state, *member->lease, devices, Move::resume, bytes, &Prediction::at_most));
  }
  rotation.switching = out + in;
  return rotation;
}

// The end of the present slice, if this waiter is the first to enter then: the quantum is over, and it has had less
// than the leases that leave.
std::optional<Time> end_for(Contest& all, const Member& waiter) {
  const auto slices = slices_at(all, all.now, &waiter);
  if (slices.empty() || slices.front().enters.front() != waiter.lease->id) return std::nullopt;
  const NextSlice& slice = slices.front();
  Time at = quantum_ends(all, slice);
  if (waiter.lease->state == LeaseState::active) return at;  // its service time grows as well
  for (const Member& other : all.members) {
    const bool leaves = std::ranges::find(slice.leaves, other.lease->id) != slice.leaves.end();
    if (!leaves || other.waits || !ranks_like(*other.lease, all.waiter)) continue;
    if (account_of(all.state, waiter.lease->id) != account_of(all.state, other.lease->id)) {
      at = std::max(at, all.turns.passes(waiter.lease->id, other.lease->id));
      continue;
    }
    const bool tie_does = waiter.lease->priority >= other.lease->priority;
    const Integral enough = service_to_pass(waiter.had.count(), least_beside(all, other).count(),
                                            std::max<std::int64_t>(all.slice.count(), 1), tie_does);
    at = std::max(at, all.now + Duration(static_cast<std::int64_t>(enough) - other.had.count()));
  }
  return at == Time::never() ? std::nullopt : std::optional(at);
}

}  // namespace

Slices next_slices(const State& state, const Rules& rules, const SliceGroup& group, std::optional<Time> ends,
                   Time now) {
  std::optional<Rotation> rotation;
  for (const bool below : {true, false}) {
    Contest all = contest_of(state, rules, group, below, now);
    if (below) rotation = rotation_of(all);
    if (ends)
      if (auto slices = slices_at(all, std::max(*ends, now)); !slices.empty()) {
        for (NextSlice& slice : slices) slice.at = *ends, slice.fixed = true;
        return {std::move(slices), std::move(rotation)};
      }
    for (const Member& member : all.members) {
      const auto end = member.waits ? end_for(all, member) : std::nullopt;
      if (!end) continue;
      auto slices = slices_at(all, std::max(*end, now));
      for (NextSlice& slice : slices) slice.at = *end;
      if (!slices.empty()) return {std::move(slices), std::move(rotation)};
    }
  }
  return {};
}

}  // namespace sublet::core
