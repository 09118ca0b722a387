// SPDX-License-Identifier: Apache-2.0
// One lease as a victim: what its pause frees, costs and takes.
#include "core/victims.h"
#include "state/methods.h"
#include "state/reclaim.h"

#include <algorithm>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

// A spot lease that is ended loses its work and starts again from nothing.
constexpr Duration start_again = 60s;

Duration futile(const State& state, const Consumer& consumer, PauseMethod method) {
  const MethodRecord* record = record_of(state, consumer, method);
  return record == nullptr ? Duration{} : record->penalty();
}

Duration settles_in(const State& state, const Lease& lease, PauseMethod method, Bytes bytes) {
  return state.learned.costs.predict(lease.whose(), lease.devices, method, Move::settle, bytes).likely;
}

}  // namespace

Victim as_victim(const State& state, const Lease& lease, const WayToYield& way, const Device& device, Time now) {
  Victim victim;
  victim.lease = lease.id;
  victim.ends = way.ends();
  victim.gain = charged_on(state, lease, device.reading.uuid);
  if (victim.ends) {
    victim.cost = start_again + std::max(now - lease.runs_since(now), Duration{});
    return victim;
  }
  victim.method = standing_of(state, lease.id).next.value_or(way.method);
  const Bytes residue = residue_of(state, lease, victim.method);
  victim.gain -= residue - std::min(residue, headroom_share(state, device));
  for (const std::string& uuid : lease.devices) victim.bytes += charge_on(state, lease.id, uuid).used;
  if (!lease.parking) {  // else the ledger has entered it already
    victim.enters = enters_host(state, lease);
    victim.stays = stays_parked(state, lease, victim.method, victim.enters);
  } else {  // on its way back
    Bytes whole;
    for (const HeldWhenPaused& its : lease.parking->held_when_paused) whole += its.all;
    victim.bytes = std::max({victim.bytes, whole, lease.parking->host_bytes});
  }
  victim.pause = state.learned.costs.predict(lease.whose(), lease.devices, victim.method, Move::pause, victim.bytes);
  victim.resume = state.learned.costs.predict(lease.whose(), lease.devices, victim.method, Move::resume, victim.bytes);
  victim.cost = victim.pause.likely + victim.resume.likely + futile(state, lease.whose(), victim.method);
  return victim;
}

Victim given_back(const State& state, const Lease& lease, const Reclaim& terms, const Device& device, Time now) {
  Victim victim;
  victim.lease = lease.id;
  victim.ends = terms.taken == Reclaim::Taken::end;
  victim.reclaim = terms.cause;
  victim.gain = charged_on(state, lease, device.reading.uuid);
  if (victim.ends) victim.cost = start_again + std::max(now - lease.runs_since(now), Duration{});
  return victim;
}

std::optional<Duration> time_left(const State& state, LeaseId id, Time now) {
  const auto moving = move_of(state, id);
  if (!moving || lacks_memory(state, id)) return std::nullopt;
  const Duration past = now - moving->since;
  if (past > moving->takes.longest) return std::nullopt;
  Duration left = std::max((past <= moving->takes.likely ? moving->takes.likely : moving->takes.at_most) - past, {});
  if (moving->move == Move::pause) {
    const Lease& lease = *find(state, id);
    left += settles_in(state, lease, lease.parking->method, moving->bytes);
  }
  return left;
}

bool is_leaving(const State& state, const Lease& lease) {
  if (passed_over(state, lease.id)) return false;
  return lease.state == LeaseState::pausing || is_given_back(state, lease.id) ||
         (lease.state == LeaseState::resuming && standing_of(state, lease.id).next);
}

Duration yields_in(const State& state, const Victim& victim) {
  const Lease& lease = *find(state, victim.lease);
  return victim.pause.likely + settles_in(state, lease, victim.method, victim.bytes);
}

Duration yields_in(const State& state, const std::vector<Victim>& victims) {
  Duration takes{};
  for (const Victim& victim : victims) takes += yields_in(state, victim);
  return takes;
}

Victim as_victim(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor,
                 const Device& device, Time now) {
  return as_victim(state, lease, way_to_yield(state, rules, lease, preemptor, now), device, now);
}

std::vector<Victim> as_victims(const State& state, const Rules& rules, const std::vector<LeaseId>& leases,
                               std::uint32_t preemptor, const std::vector<std::string>& devices, Time now) {
  std::vector<Victim> victims;
  for (const LeaseId id : leases) {
    std::optional<Victim> victim;
    for (const std::string& uuid : devices) {
      const Device& device = state.devices.by_uuid.at(uuid);
      if (!device.leases.contains(id)) continue;
      const Victim here = as_victim(state, rules, *find(state, id), preemptor, device, now);
      if (victim) victim->gain += here.gain;
      else victim = here;
    }
    if (victim) victims.push_back(*victim);
  }
  std::sort(victims.begin(), victims.end());
  return victims;
}

Bytes being_yielded(const State& state, const Device& device) {
  Bytes bytes, residues = device.residues;
  for (const LeaseId id : device.leases) {
    const Lease& lease = *find(state, id);
    if (!is_leaving(state, lease)) continue;
    const auto next = standing_of(state, id).next;
    const Bytes residue = next            ? residue_of(state, lease, *next)
                          : lease.parking ? lease.parking->residue
                                          : Bytes{};  // its capability takes all of it
    bytes += charged_on(state, lease, device.reading.uuid) - residue;
    residues += residue;
  }
  return bytes + device.shrinking + in_headroom(state, residues) - in_headroom(state, device.residues);
}

Bytes lacking(const State& state, const Rules& rules, const PreemptionQuery& query, const Device& device, Time now) {
  return need_on(state, query.lease, device.reading.uuid) - free_on(state, device, rules, now) - device.settling -
         being_yielded(state, device);
}

}  // namespace sublet::core
