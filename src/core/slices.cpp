// SPDX-License-Identifier: Apache-2.0
#include "core/slices.h"

#include "core/cover.h"
#include "core/ledger_set.h"
#include "core/methods.h"
#include "core/rank.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration shortest_residency = 10s;
constexpr int residency_per_switch = 10;  // bounds what is spent on switching to a tenth
constexpr std::size_t most_moments = 64;  // at which a time slice may begin

Duration moving(const State& state, const Lease& lease, const std::vector<std::string>& devices, Move move,
                Bytes bytes) {
  const auto method = pause_method_of(state, lease);
  const PauseMethod next = method ? *method : PauseMethod::driver;
  const PauseMethod by = lease.parking ? lease.parking->method : next;
  return state.learned.costs.predict(lease.whose(), devices, by, move, bytes).likely;
}

Duration moving(const State& state, const Lease& lease, const std::vector<std::string>& devices, Move move) {
  return moving(state, lease, devices, move, bytes_to_move(state, lease));
}

// The bytes that the lease is expected to leave with: a lease that got its memory a moment ago may still be filling it.
Bytes will_move(const State& state, const Lease& lease, Time now) {
  const bool settled = now - standing_of(state, lease.id).came_back >= shortest_residency || !lease.reserves();
  const Bytes all{lease.vram.count * static_cast<std::int64_t>(lease.devices.size())};
  return settled ? bytes_to_move(state, lease) : std::max(bytes_to_move(state, lease), all);
}

}  // namespace

std::size_t devices_wanted(const Lease& lease) {
  return lease.waits_in_place() ? lease.devices.size() : static_cast<std::size_t>(lease.device_count);
}

SliceGroup slice_group_on(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now) {
  SliceGroup slice_group;
  for (const LeaseId id : device.leases) {
    const Lease& lease = *find(state, id);
    if (lease.tier != waiter.tier || lease.state != LeaseState::active || lease.stop_requested) continue;
    if (id == waiter.id) continue;  // it wants to grow, and does not leave for itself
    if (now < standing_of(state, id).ineligible_until) continue;
    const WayToYield way = way_to_yield(state, rules, lease, waiter.uid, now);
    if (!way.parks()) continue;  // nobody's turn ends another
    slice_group.residents.push_back(id);
  }
  for (const LeaseId id : state.preemption.preemptors.on(device.reading.uuid)) {
    const Lease& lease = *find(state, id);
    const bool is_it = id == waiter.id;
    if (lease.resize && !is_it) continue;  // resident, and counted as such
    if (is_it || (ranks_like(lease, waiter) && devices_wanted(lease) == 1)) slice_group.waiters.push_back(id);
  }
  return slice_group;
}

Duration residency(const State& state, const Rules& rules, const Lease& lease,
                   const std::vector<std::string>& devices) {
  if (rules.min_residency) return *rules.min_residency;
  const Duration away = moving(state, lease, devices, Move::pause) + moving(state, lease, devices, Move::resume);
  return std::max(shortest_residency, residency_per_switch * away);
}

namespace {

struct Contestant {
  const Lease* lease;
  bool resident;
  bool has_it;  // a resident, or the waiter, if it wants to grow
  Duration had;
  Bytes takes;    // beyond what it keeps when it is out
  Victim yields;  // a resident, when it leaves
};

// A device without its slice group and without the leases of lower tiers: the basis of a new slice, which nothing that
// follows changes.
struct Emptied {
  std::vector<Contestant> candidates;
  Bytes room;                    // without those below
  std::vector<Victim> below;     // of lower tiers, who may be asked: as far as that is needed, they leave as well
  std::vector<Candidate> gives;  // what each of them does
};

// A lease of a lower tier is paused for all members of the slice group, as for any lease above it.
void add_below(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now,
               Emptied& emptied) {
  const PreemptionQuery query{waiter, std::nullopt, /*lists_all=*/false};
  for (const LeaseId id : device.leases) {
    const Lease& lease = *find(state, id);
    if (lease.ended() || !outranks(waiter, lease) || lease.state == LeaseState::pausing) continue;
    const WayToYield way = way_to_yield(state, rules, lease, waiter.uid, now);
    if (ineligible(state, rules, query, lease, way, now)) continue;
    const Victim its = as_victim(state, rules, lease, waiter.uid, device, now);
    emptied.below.push_back(its);
    emptied.gives.push_back({its.gain, its.cost});
  }
}

Emptied emptied(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                const SliceGroup& slice_group, Time now) {
  const std::string& uuid = device.reading.uuid;
  Emptied all;
  all.room = free_on(state, device, rules, now) + being_yielded(state, device);
  for (const LeaseId id : slice_group.residents) {
    const Lease& lease = *find(state, id);
    const Victim its = as_victim(state, rules, lease, waiter.uid, device, now);
    all.room += its.gain;
    all.candidates.push_back({&lease, true, true, service_time(state, id, uuid), its.gain, its});
  }
  for (const LeaseId id : slice_group.waiters) {
    const Lease& lease = *find(state, id);
    const bool has_it = lease.state == LeaseState::active;
    all.candidates.push_back({&lease, false, has_it, service_time(state, id, uuid), need_on(state, lease, uuid), {}});
  }
  add_below(state, rules, waiter, device, now, all);
  return all;
}

// The leases of lower tiers that leave with these members, one after the other, so that so much more is free. None:
// they cannot leave, or host memory does not take all of them.
std::optional<std::vector<Victim>> with_below(const State& state, const Rules& rules, const Lease& waiter,
                                              const Emptied& emptied, const std::vector<Victim>& equals, Bytes need) {
  const auto all = [&](const std::vector<std::size_t>& chosen) {
    std::vector<Victim> victims = equals;
    for (const std::size_t i : chosen) victims.push_back(emptied.below[i]);
    std::sort(victims.begin(), victims.end());
    return victims;
  };
  const auto fits = [&](const std::vector<Victim>& victims) {
    return beyond_ledger(state, rules, waiter.uid, victims).empty();
  };
  auto chosen = cheapest_cover(emptied.gives, need);
  if (!chosen) return std::nullopt;
  if (auto victims = all(*chosen); fits(victims)) return victims;
  return std::nullopt;
}

// Orders two leases with the same service time: the higher priority first, then a waiter before a resident.
bool first_of_equal(const Contestant& a, const Contestant& b) {
  if (a.lease->priority != b.lease->priority) return a.lease->priority > b.lease->priority;
  return !a.resident && b.resident;
}

// The leases that have the device from then on, if no lease comes or goes until then. Residents keep having it. None:
// leases of lower tiers would have to leave, and cannot. `below`: leases of lower tiers leave as far as they are
// needed.
std::optional<NextSlice> resident_set(const State& state, const Rules& rules, const Emptied& emptied,
                                      const Lease& waiter, const std::string& uuid, Duration then, bool below) {
  std::vector<Contestant> order = emptied.candidates;
  for (Contestant& candidate : order)
    if (candidate.has_it) candidate.had += then;
  std::stable_sort(order.begin(), order.end(), [](const Contestant& a, const Contestant& b) {
    if (a.had != b.had) return a.had < b.had;
    return first_of_equal(a, b);
  });
  NextSlice slice{{uuid}, {}, {}, {}};
  Bytes room = emptied.room;
  if (below)
    for (const Candidate& giver : emptied.gives) room += std::max(giver.frees, Bytes{});
  const Bytes all = room;
  std::vector<Victim> equals;
  for (const Contestant& candidate : order) {
    const bool fits = candidate.takes <= room;
    if (fits) room -= candidate.takes;
    if (fits && !candidate.resident) slice.enters.push_back(candidate.lease->id);
    if (!fits && candidate.resident) equals.push_back(candidate.yields);
  }
  const auto leave = with_below(state, rules, waiter, emptied, equals, all - room - emptied.room);
  if (!leave) return std::nullopt;
  for (const Victim& victim : *leave) slice.leaves.push_back(victim.lease);
  return slice;
}

// None: other leases come before the waiter. If leases of lower tiers cannot leave with the members, only the members
// share the device.
std::optional<NextSlice> built(const State& state, const Rules& rules, const Emptied& emptied, const Lease& waiter,
                               const std::string& uuid, Duration then) {
  auto slice = resident_set(state, rules, emptied, waiter, uuid, then, /*below=*/true);
  if (!slice && !emptied.below.empty())
    slice = resident_set(state, rules, emptied, waiter, uuid, then, /*below=*/false);
  const bool comes = slice && std::find(slice->enters.begin(), slice->enters.end(), waiter.id) != slice->enters.end();
  return comes ? slice : std::nullopt;
}

// The moments, in order, at which a resident's service time passes a waiter's: between them the order does not change.
// If there are too many, only the moments of this waiter count.
std::vector<Duration> moments_of(const Emptied& emptied, const Lease& waiter) {
  const auto against = [&emptied](const auto& counts) {
    std::vector<Duration> moments;
    for (const Contestant& waits : emptied.candidates) {
      if (waits.has_it || !counts(waits)) continue;
      for (const Contestant& has : emptied.candidates)
        if (const Duration until = waits.had - has.had + Duration(first_of_equal(waits, has) ? 0 : 1);
            has.has_it && until > Duration{})
          moments.push_back(until);
    }
    std::sort(moments.begin(), moments.end());
    moments.erase(std::unique(moments.begin(), moments.end()), moments.end());
    return moments;
  };
  auto moments = against([](const Contestant&) { return true; });
  if (moments.size() <= most_moments) return moments;
  return against([&waiter](const Contestant& candidate) { return candidate.lease->id == waiter.id; });
}

// The earliest start of a slice of this waiter: each leaving lease has had its memory for as long as the switch is
// worth.
Time first_quantum(const State& state, const Rules& rules, const Emptied& emptied, const Lease& waiter,
                   const std::string& uuid) {
  Time first = Time::never();
  for (const Contestant& candidate : emptied.candidates)
    if (candidate.resident) first = std::min(first, standing_of(state, candidate.lease->id).came_back);
  if (first == Time::never()) return {};
  return first + residency(state, rules, waiter, {uuid});
}

}  // namespace

bool among_equals(const State& state, const Lease& waiter, const NextSlice& slice) {
  return std::any_of(slice.leaves.begin(), slice.leaves.end(),
                     [&](LeaseId id) { return ranks_like(*find(state, id), waiter); });
}

namespace {

// `bytes`: the bytes with which each lease leaves.
template <typename Moved>
Time quantum_ends(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice, Moved bytes) {
  // A lease that leaves or enters several devices does so at the pace of the slowest device.
  std::vector<std::string> touched = slice.devices;
  for (const LeaseId id : slice.leaves)
    for (const std::string& its : find(state, id)->devices)
      if (std::find(touched.begin(), touched.end(), its) == touched.end()) touched.push_back(its);
  Duration switching{}, stays{};
  Time since;
  for (const LeaseId id : slice.leaves) {
    const Lease& lease = *find(state, id);
    switching += moving(state, lease, touched, Move::pause, bytes(lease));
    if (ranks_like(lease, waiter)) since = std::max(since, standing_of(state, id).came_back);
  }
  for (const LeaseId id : slice.enters) {
    const Lease& lease = *find(state, id);
    if (lease.parking) switching += moving(state, lease, touched, Move::resume);
    stays = std::max(stays, residency(state, rules, lease, touched));
  }
  const auto quantum =
      Duration(static_cast<std::int64_t>(static_cast<double>(switching.count()) / rules.slice_overhead));
  return since + std::max(quantum, stays);
}

}  // namespace

Time quantum_ends(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice) {
  return quantum_ends(state, rules, waiter, slice,
                      [&state](const Lease& lease) { return bytes_to_move(state, lease); });
}

Time announced_at(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice, Time now) {
  if (!among_equals(state, waiter, slice)) return slice.at;
  const auto bytes = [&](const Lease& lease) { return will_move(state, lease, now); };
  return std::max(slice.at, quantum_ends(state, rules, waiter, slice, bytes));
}

std::vector<Victim> leaving(const State& state, const Rules& rules, const Lease& waiter, const NextSlice& slice,
                            Time now) {
  auto victims = as_victims(state, rules, slice.leaves, waiter.uid, slice.devices, now);
  for (Victim& victim : victims) {
    const Lease& lease = *find(state, victim.lease);
    const Bytes bytes = will_move(state, lease, now);
    if (victim.ends || bytes <= victim.bytes) continue;
    victim.bytes = bytes;
    victim.pause = state.learned.costs.predict(lease.whose(), lease.devices, victim.method, Move::pause, bytes);
  }
  return victims;
}

std::optional<NextSlice> slice_of(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                  const SliceGroup& slice_group, Time now) {
  const std::string& uuid = device.reading.uuid;
  const Emptied all = emptied(state, rules, waiter, device, slice_group, now);
  // The first moment at which the leases that then have to leave have had their time. Before that none of the members
  // leaves.
  const std::vector<Duration> moments = moments_of(all, waiter);
  const Duration any_has = first_quantum(state, rules, all, waiter, uuid) - now;
  Duration then{};
  std::optional<NextSlice> slice;
  for (std::size_t tries = 0; tries < 2 * most_moments; ++tries) {
    const auto moment = std::upper_bound(moments.begin(), moments.end(), then);
    const auto changes = moment == moments.end() ? std::nullopt : std::optional(*moment);
    slice = built(state, rules, all, waiter, uuid, then);
    if (!slice && !changes) return std::nullopt;
    if (!slice) {
      then = std::max(*changes, any_has);
      continue;
    }
    slice->at = now + then;
    if (!among_equals(state, waiter, *slice)) return slice;
    slice->at = std::max(slice->at, quantum_ends(state, rules, waiter, *slice));
    if (slice->at <= now + then) return slice;
    then = changes ? std::min(std::max(*changes, any_has), slice->at - now) : slice->at - now;
  }
  return slice;  // as far as it can be foreseen
}

}  // namespace sublet::core
