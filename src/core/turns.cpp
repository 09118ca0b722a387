// SPDX-License-Identifier: Apache-2.0
#include "core/turns.h"

#include "base/planted.h"
#include "core/methods.h"
#include "core/victims.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

constexpr Duration shortest_residency = 10s;
constexpr int residency_per_switch = 10;  // bounds what is spent on switching to a tenth
constexpr std::size_t waiters_counted = 8;

Duration moving(const State& state, const Lease& lease, const std::vector<std::string>& devices, Move move) {
  const auto method = pause_method_of(state, lease);
  const PauseMethod next = method ? *method : PauseMethod::driver;
  const PauseMethod by = lease.parking ? lease.parking->method : next;
  return state.costs().predict(lease.whose(), devices, by, move, state.to_move(lease)).likely;
}

}  // namespace

bool waits_for(const Lease& lease, const Device& device) {
  const std::string& uuid = device.reading.uuid;
  if (lease.waits_in_place()) return std::find(lease.devices.begin(), lease.devices.end(), uuid) != lease.devices.end();
  return lease.wanted_device.empty() || lease.wanted_device == uuid;
}

std::size_t devices_wanted(const Lease& lease) {
  return lease.waits_in_place() ? lease.devices.size() : static_cast<std::size_t>(lease.device_count);
}

Contenders contenders_on(const State& state, const Rules& rules, const Lease& waiter, const Device& device, Time now) {
  Contenders contenders;
  for (const LeaseId id : device.leases) {
    const Lease& lease = *state.find(id);
    if (lease.tier != waiter.tier || lease.state != LeaseState::active || lease.stop_requested) continue;
    if (id == waiter.id) continue;  // it wants to grow, and does not leave for itself
    if (now < state.standing(id).spared_until) continue;
    const WayToYield way = way_to_yield(state, rules, lease, waiter.uid, now);
    if (!way.parks() && !(way.ends() && planted(Bug::turns_end_leases))) continue;  // nobody's turn ends another
    contenders.residents.push_back(id);
  }
  for (const LeaseId id : state.queue().in_order(waiters_counted)) {
    const Lease& lease = *state.find(id);
    const bool is_it = id == waiter.id;
    if (lease.resize && !is_it) continue;  // resident, and counted as such
    if (is_it || (lease.tier == waiter.tier && devices_wanted(lease) == 1 && waits_for(lease, device)))
      contenders.waiters.push_back(id);
  }
  return contenders;
}

Duration residency(const State& state, const Rules& rules, const Lease& lease,
                   const std::vector<std::string>& devices) {
  if (rules.min_residency) return *rules.min_residency;
  const Duration away = moving(state, lease, devices, Move::pause) + moving(state, lease, devices, Move::resume);
  return std::max(shortest_residency, residency_per_switch * away);
}

std::optional<NextTurn> turn_of(const State& state, const Rules& rules, const Lease& waiter, const Device& device,
                                const Contenders& contenders, Time now) {
  struct Candidate {
    const Lease* lease;
    bool resident;
    Duration had;
    Bytes takes;  // beyond what it keeps when it is out
  };
  const std::string& uuid = device.reading.uuid;
  std::vector<Candidate> candidates;
  Bytes room = state.effective_free(device, rules, now) + being_yielded(state, device);
  for (const LeaseId id : contenders.residents) {
    const Lease& lease = *state.find(id);
    const Bytes gain = as_victim(state, rules, lease, waiter.uid, device, now).gain;
    room += gain;
    candidates.push_back({&lease, true, state.had(id, uuid), gain});
  }
  for (const LeaseId id : contenders.waiters) {
    const Lease& lease = *state.find(id);
    candidates.push_back({&lease, false, state.had(id, uuid), state.need(lease, uuid)});
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.had != b.had) return a.had < b.had;
    if (a.lease->priority != b.lease->priority) return a.lease->priority > b.lease->priority;
    return !a.resident && b.resident;  // a quantum has ended: who has had no more than the others goes on with them
  });
  NextTurn turn{{uuid}, {}, {}, {}};
  bool comes = false;
  for (const Candidate& candidate : candidates) {
    const bool fits = candidate.takes <= room;
    if (fits) room -= candidate.takes;
    if (fits && !candidate.resident) turn.enters.push_back(candidate.lease->id);
    if (!fits && candidate.resident) turn.leaves.push_back(candidate.lease->id);
    comes |= fits && candidate.lease->id == waiter.id;
  }
  if (!comes) return std::nullopt;
  // Who leaves several devices, or comes in on several, does so at the pace of the slowest.
  std::vector<std::string> touched{uuid};
  for (const LeaseId id : turn.leaves)
    for (const std::string& its : state.find(id)->devices)
      if (std::find(touched.begin(), touched.end(), its) == touched.end()) touched.push_back(its);
  Duration switching{}, stays{};
  for (const LeaseId id : turn.leaves) {
    const Lease& lease = *state.find(id);
    switching += moving(state, lease, touched, Move::pause);
    turn.at = std::max(turn.at, state.standing(id).came_back);
  }
  for (const LeaseId id : turn.enters) {
    const Lease& lease = *state.find(id);
    if (lease.parking) switching += moving(state, lease, touched, Move::resume);
    stays = std::max(stays, residency(state, rules, lease, touched));
  }
  const auto quantum = Duration(static_cast<std::int64_t>(static_cast<double>(switching.count()) / rules.overhead));
  const Duration least = planted(Bug::switching_takes_no_time) ? shortest_residency : std::max(quantum, stays);
  if (!turn.leaves.empty()) turn.at = turn.at + least;
  return turn;
}

}  // namespace sublet::core
