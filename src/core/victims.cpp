// SPDX-License-Identifier: Apache-2.0
#include "core/victims.h"

#include "base/mutants.h"
#include "core/other_devices.h"
#include "core/slices.h"
#include "state/cover.h"
#include "state/end_estimate.h"
#include "state/ledger_set.h"
#include "state/methods.h"
#include "state/rank.h"
#include "state/reclaim.h"
#include "state/tenant_rights.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>

namespace sublet::core {
namespace {

// For a preemptor that takes any device, victims are sought on this many of the freest devices.
constexpr std::size_t devices_tried = 16;
// Once a plan is found, no more devices are examined than hold this many leases: the decision must be quick.
constexpr std::size_t leases_looked_at = 1000;
// How many sets without one victim are tried if host memory does not take all victims.
constexpr std::size_t sets_tried = 4;

struct OnDevice {
  const Device* device = nullptr;
  std::vector<Victim> victims;
  Duration pause{}, cost{};
  Bytes lacks;        // once all who yield already have done so
  Bytes short_bytes;  // more than 0: all who may be asked are not enough
  std::vector<Ineligible> ineligible;
  bool found = true;
  NoVictims why_not;
  bool in_progress = false;  // somebody yields there already
  bool others = false;       // a plan there is for a waiter before it
  Time again = Time::never();
};

bool reclaims_from(const State& state, const PreemptionQuery& query, const Lease& lease) {
  return query.reclaims && reclaim_for(state, query.lease, lease) != nullptr;
}

// The candidates whose memory may be taken, by their numbers: only while it is borrowed, in the order in which they are
// asked or with the largest first.
std::vector<std::size_t> takeable(const State& state, const PreemptionQuery& query,
                                  const std::vector<Victim>& candidates, bool largest_first) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), 0);
  if (state.tenants.by_name.quotas() == 0) return order;
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return largest_first ? candidates[a].gain > candidates[b].gain : candidates[a] < candidates[b];
  });
  Borrowed borrowed(state);
  std::erase_if(order, [&](std::size_t i) {
    const Lease& lease = *find(state, candidates[i].lease);
    if (candidates[i].reclaim || reclaims_from(state, query, lease) || !needs_borrowed(query, lease)) return false;
    const bool has = borrowed.has(lease) || mutant(Mutant::guarantees_do_not_protect);
    if (has) borrowed.take(lease);
    return !has;
  });
  return order;
}

// The cheapest candidates that free enough, by their numbers; nothing: all of them do not.
std::optional<std::vector<std::size_t>> cheapest(const State& state, const PreemptionQuery& query,
                                                 const std::vector<Victim>& candidates, Bytes lacks) {
  for (const bool largest_first : {false, true}) {
    const std::vector<std::size_t> among = takeable(state, query, candidates, largest_first);
    std::vector<Candidate> gains;
    for (const std::size_t i : among) gains.push_back({candidates[i].gain, candidates[i].cost});
    if (auto chosen = cheapest_cover(gains, lacks)) {
      for (std::size_t& i : *chosen) i = among[i];
      return chosen;
    }
    if (among.size() == candidates.size()) break;  // another order takes no others
  }
  return std::nullopt;
}

OnDevice plan_on(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now) {
  OnDevice plan;
  plan.device = &device;
  const Bytes lacks = plan.lacks = lacking(state, rules, query, device, now);
  std::vector<Victim> candidates;
  Bytes gain;
  for (const LeaseId id : device.leases) {
    const Lease& lease = *find(state, id);
    const bool leaves = is_leaving(state, lease);
    plan.in_progress |= leaves;
    if (id == query.lease.id || lease.ended() || leaves || std::ranges::count(query.spared, id) > 0) continue;
    const Reclaim* terms = query.reclaims ? reclaim_for(state, query.lease, lease) : nullptr;
    if (!query.lists_all && terms == nullptr && !query.reaches(lease)) continue;
    WayToYield way = way_to_yield(state, rules, lease, query.lease.uid, now);
    if (query.patient && way.ends_later()) way = {WayToYield::Kind::end};
    if (auto left_alone = ineligible(state, rules, query, lease, way, now)) {
      if (query.lists_all || left_alone->until != Time::never()) plan.ineligible.push_back(std::move(*left_alone));
      continue;
    }
    candidates.push_back(terms != nullptr && !terms->is_paused() ? given_back(state, lease, *terms, device, now)
                                                                 : as_victim(state, lease, way, device, now));
    gain += std::max(candidates.back().gain, Bytes{});
  }
  // If nothing is lacking, no victim is chosen.
  const auto chosen = cheapest(state, query, candidates, lacks);
  if (!chosen) {
    plan.short_bytes = lacks - gain;
    plan.found = false;
    plan.why_not.code = candidates.empty() ? NoVictims::Code::nobody_eligible : NoVictims::Code::too_little;
    plan.why_not.gain = gain;
    plan.why_not.lacks = lacks;
    return plan;
  }
  for (const std::size_t i : *chosen) {
    plan.victims.push_back(candidates[i]);
    plan.pause += candidates[i].pause.likely;
    plan.cost += candidates[i].cost;
  }
  return plan;
}

// Nothing is paused if the wait that it would save is shorter than what it costs.
void weigh_wait(const State& state, const Rules& rules, const PreemptionQuery& query, OnDevice& plan, Time now) {
  const bool all_ordered = std::all_of(plan.victims.begin(), plan.victims.end(), [&](const Victim& victim) {
    return query.by_request(*find(state, victim.lease));
  });
  if (!plan.found || all_ordered) return;
  const auto by_itself = room_by_itself(state, rules, query.lease, *plan.device, now);
  const auto ends = [&](const Victim& victim) { return victim.ends && find(state, victim.lease)->had_process; };
  const bool ended = std::any_of(plan.victims.begin(), plan.victims.end(), ends);
  // A higher tier does not wait to save others the cost of a resume or a new start. A victim that is ended has its
  // grace.
  const Duration price = plan.pause + (ended ? rules.grace : Duration{});
  if (!by_itself || *by_itself - now > price) return;
  plan.found = false;
  plan.again = *by_itself + Duration(1);
  plan.why_not.code = NoVictims::Code::free_sooner;
  plan.why_not.in = *by_itself - now;
  plan.why_not.takes = price;
}

std::size_t tried_for(const Lease& lease) {
  return std::max(devices_tried, static_cast<std::size_t>(lease.device_count));
}

// True if it is one of the lease's devices_for(); asked in every step of the devices that have changed.
bool among_its_devices(const State& state, const Lease& lease, const Device& device) {
  const std::string& uuid = device.reading.uuid;
  if (lease.waits_in_place() || !lease.wanted_devices.empty()) return may_use(lease, uuid);
  std::size_t left = tried_for(lease);
  for (auto room = state.devices.by_free.rbegin(); room != state.devices.by_free.rend() && left > 0; ++room) {
    if (room->device == uuid) return may_use(lease, uuid);
    left -= may_use(lease, room->device);
  }
  // Not among the freest: a lease of its tier leaves for a guarantee or a time slice.
  const auto yielding = std::span(device.might_yield).first(static_cast<std::size_t>(lease.tier) + 1);
  return std::ranges::any_of(yielding, [](const auto& its) { return its.leases > 0; }) && may_use(lease, uuid);
}

}  // namespace

static std::vector<const Device*> known_of(const State& state, const std::vector<std::string>& uuids) {
  std::vector<const Device*> devices;
  for (const std::string& uuid : uuids)
    if (const auto at = state.devices.by_uuid.find(uuid); at != state.devices.by_uuid.end())
      devices.push_back(&at->second);
  return devices;
}

std::vector<const Device*> devices_for(const State& state, const Lease& lease) {
  if (lease.waits_in_place()) return known_of(state, lease.devices);
  if (!lease.wanted_devices.empty()) return known_of(state, lease.wanted_devices);
  std::vector<const Device*> devices;
  const std::size_t most = tried_for(lease);
  for (auto room = state.devices.by_free.rbegin(); room != state.devices.by_free.rend() && devices.size() < most;
       ++room)
    if (may_use(lease, room->device)) devices.push_back(&state.devices.by_uuid.at(room->device));
  return devices;
}

std::optional<Time> room_by_itself(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                   Time now) {
  const Bytes need = need_on(state, waiter, device.reading.uuid);
  std::vector<std::pair<Time, Bytes>> ends;
  for (const LeaseId id : device.leases) {
    if (id == waiter.id) continue;
    const Lease& lease = *find(state, id);
    const Expected end = expected_end(state, rules, lease, lease.runs_since(now), now);
    const Bytes bytes = charged_on(state, lease, device.reading.uuid);
    if (end.basis == Basis::settling) ends.emplace_back(now, bytes);
    else if (end.known()) ends.emplace_back(end.at, bytes);
  }
  std::sort(ends.begin(), ends.end());
  Bytes free = free_on(state, device, rules, now);
  if (free >= need) return now;
  for (const auto& [at, bytes] : ends)
    if (free += bytes; free >= need) return at;
  return std::nullopt;
}

bool might_make_room(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now) {
  if (!may_grant_on(state, device, rules, now)) return false;
  if (device.pausing > 0 || !state.preemption.reclaimable.empty()) return true;
  Bytes room = free_on(state, device, rules, now) + device.settling;
  for (std::size_t tier = 0; tier <= static_cast<std::size_t>(waiter.tier); ++tier)
    room += device.might_yield[tier].charged;
  return need_on(state, waiter, device.reading.uuid) <= room && among_its_devices(state, waiter, device);
}

bool may_ask(const State& state, const Rules& rules, const Lease& lease) {
  if (!rules.automatic && !mutant(Mutant::nothing_is_manual)) return false;
  if (!state.queue.contains(lease.id)) return state.queue.size() < preemptors;
  return state.preemption.preemptors.by_rule(lease.id);
}

namespace {

OnDevice best_on(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now) {
  // A user's request reaches the user's own programs. Other leases are victims only as they would be without the
  // request.
  const bool own_first = query.preemption_request && !query.preemption_request->any_user;
  if (own_first) {
    PreemptionQuery word = query;
    word.by_rules = false;
    OnDevice own = plan_on(state, rules, word, device, now);
    if (own.found || !may_ask(state, rules, query.lease)) return own;
  }
  OnDevice plan = plan_on(state, rules, query, device, now);
  weigh_wait(state, rules, query, plan, now);
  return plan;
}

// A victim on several of the devices may be enough where others were chosen as well: these are left out, the dearest
// first.
void leave_out_needless(const State& state, const Rules& rules, std::uint32_t preemptor,
                        std::span<const OnDevice> plans, std::vector<Victim>& victims, Time now) {
  if (plans.size() < 2 || victims.size() < 2) return;
  std::vector<std::vector<Bytes>> gains(plans.size());  // of each victim, on each of the devices
  for (std::size_t on = 0; on < plans.size(); ++on) {
    for (const Victim& victim : victims) {
      const bool there = plans[on].device->leases.contains(victim.lease);
      gains[on].push_back(
          there ? as_victim(state, rules, *find(state, victim.lease), preemptor, *plans[on].device, now).gain
                : Bytes{});
    }
  }
  for (std::size_t dearest = victims.size(); dearest-- > 0;) {
    const auto without = [&](std::size_t on) {
      Bytes left;
      for (std::size_t i = 0; i < victims.size(); ++i)
        if (i != dearest) left += gains[on][i];
      return left;
    };
    bool needed = false;
    for (std::size_t on = 0; on < plans.size(); ++on) needed |= without(on) < plans[on].lacks;
    if (needed) continue;
    victims.erase(victims.begin() + static_cast<std::ptrdiff_t>(dearest));
    for (auto& its : gains) its.erase(its.begin() + static_cast<std::ptrdiff_t>(dearest));
  }
}

// The plan for the first `count` of these devices.
VictimPlan put_together(const State& state, const Rules& rules, const PreemptionQuery& query,
                        const std::vector<OnDevice>& plans, std::size_t count, Time now) {
  VictimPlan room;
  room.found = plans[count - 1].found;  // devices where victims can be paused come first
  const std::span<const OnDevice> first(plans.data(), count);
  for (const OnDevice& plan : first) {
    room.devices.push_back(plan.device->reading.uuid);
    room.in_progress |= plan.in_progress;
    room.again = std::min(room.again, plan.again);
    room.ineligible.insert(room.ineligible.end(), plan.ineligible.begin(), plan.ineligible.end());
    if (!plan.found) {
      room.no_victims = plan.why_not;
      room.no_victims.device = plan.device->reading.uuid;
      room.short_bytes = plan.short_bytes;
    }
    for (const Victim& victim : plan.victims) {  // one on several of them yields once
      const auto same = std::ranges::find(room.victims, victim.lease, &Victim::lease);
      if (same == room.victims.end()) room.victims.push_back(victim);
      else same->gain += victim.gain;
    }
  }
  std::sort(room.victims.begin(), room.victims.end());
  leave_out_needless(state, rules, query.lease.uid, first, room.victims, now);
  if (!room.found) room.victims.clear();
  for (const Victim& victim : room.victims) room.pause += victim.pause.likely, room.cost += victim.cost;
  return room;
}

VictimPlan plan_among(const State& state, const Rules& rules, const PreemptionQuery& query, Time now) {
  std::vector<OnDevice> plans;
  const std::vector<const Device*> devices =
      query.on.empty() ? devices_for(state, query.lease) : known_of(state, query.on);
  const std::size_t count =
      query.lease.waits_in_place() ? devices.size() : static_cast<std::size_t>(query.lease.device_count);
  std::size_t found = 0, leases = 0;
  const auto look_at = [&](const Device* device) {
    if (found >= count && leases >= leases_looked_at) return;
    if (!may_grant_on(state, *device, rules, now)) return;
    plans.push_back(best_on(state, rules, query, *device, now));
    const PreemptionPlan* preemption = plan_on(state, device->reading.uuid);
    plans.back().others = preemption != nullptr && !preemption->has(query.lease.id) &&
                          !may_displace(state, query.lease, query.cause(), *preemption);
    found += plans.back().found && !plans.back().others;
    leases += device->leases.size();
  };
  std::ranges::for_each(devices, look_at);
  OtherDevices others;
  if (found < count) others = other_devices_for(state, rules, query, devices, tried_for(query.lease), now);
  std::ranges::for_each(others.devices, look_at);
  std::stable_sort(plans.begin(), plans.end(), [](const OnDevice& a, const OnDevice& b) {
    if (a.found != b.found) return a.found;
    if (a.others != b.others) return b.others;
    return a.found ? a.cost < b.cost : a.short_bytes < b.short_bytes;
  });
  if (plans.size() < count || count == 0) {
    VictimPlan room;
    room.no_victims.code = NoVictims::Code::unknown_devices;
    room.no_victims.known = plans.size();
    return room;
  }
  VictimPlan room = put_together(state, rules, query, plans, count, now);
  room.again = std::min(room.again, others.again);
  return room;
}

// Without one of the victims that take most of it, there may be a set that host memory takes.
VictimPlan plan_within_ledger(const State& state, const Rules& rules, const PreemptionQuery& query, Time now) {
  const auto beyond = [&](const VictimPlan& plan) {
    return plan.found && !beyond_ledger(state, rules, query.lease.uid, plan.victims).empty();
  };
  VictimPlan plan = plan_among(state, rules, query, now);
  if (!beyond(plan)) return plan;
  std::vector<Victim> largest = plan.victims;
  std::ranges::stable_sort(largest, std::greater(), &Victim::enters);
  for (std::size_t i = 0; i < std::min(largest.size(), sets_tried); ++i) {
    PreemptionQuery smaller = query;
    smaller.spared = {largest[i].lease};
    if (VictimPlan other = plan_among(state, rules, smaller, now); other.found && !beyond(other)) return other;
  }
  plan.found = false;
  plan.beyond_ledger = true;
  plan.no_victims.code = NoVictims::Code::beyond_ledger;
  plan.no_victims.victims = std::exchange(plan.victims, {});
  plan.pause = plan.cost = {};
  return plan;
}

}  // namespace

VictimPlan plan_victims(const State& state, const Rules& rules, const PreemptionQuery& asked, Time now) {
  const PreemptionQuery query = within_quota(state, asked);
  VictimPlan plan = plan_within_ledger(state, rules, query, now);
  const bool sooner = plan.no_victims.code == NoVictims::Code::free_sooner;
  if (plan.found || sooner || state.preemption.reclaimable.empty()) return plan;
  PreemptionQuery reclaiming = query;
  reclaiming.reclaims = true;
  VictimPlan other = plan_within_ledger(state, rules, reclaiming, now);
  if (!other.found) return plan;
  other.reclaims = true;
  return other;
}

}  // namespace sublet::core
