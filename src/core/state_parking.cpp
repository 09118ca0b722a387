// SPDX-License-Identifier: Apache-2.0
// What the state knows of leases that yield, are parked or come back: the ledger, and how far they are.
#include "core/state.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sublet::core {

// -------------------------------------------------------------------------------- the ledger

Bytes State::ledger_of(std::uint32_t uid) const {
  const auto found = ledger_of_.find(uid);
  return found == ledger_of_.end() ? Bytes{} : found->second;
}

bool State::alone(std::uint32_t uid) const {
  return std::none_of(leases_.begin(), leases_.end(),
                      [uid](const auto& entry) { return entry.second.uid != uid && !entry.second.ended(); });
}

Bytes State::ledger_share(const Rules& rules) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(rules.ledger_limit.count) * rules.ledger_user_share)};
}

Bytes State::ledger_free(const Rules& rules, const HostMemory& host, std::optional<std::uint32_t> uid) const {
  Bytes free =
      std::min(rules.ledger_limit - ledger_entries_, host.available - rules.ledger_reserve - ledger_unsettled_);
  if (uid && !alone(*uid)) free = std::min(free, ledger_share(rules) - ledger_of(*uid));
  if (host.headroom) free = std::min(free, *host.headroom - ledger_unsettled_);
  return std::max(free, Bytes{});
}

// Adds (`sign` 1) or takes away (-1) what the lease is entered with.
void State::enter(const Lease& lease, int sign) {
  if (!lease.parking) return;
  const Bytes bytes = sign * lease.parking->entry;
  ledger_entries_ += bytes;
  if (!lease.parking->settled) ledger_unsettled_ += bytes;
  Bytes& of_user = ledger_of_[lease.uid];
  of_user += bytes;
  if (of_user == Bytes{}) ledger_of_.erase(lease.uid);
  if (sign > 0) away_.insert(lease.id);
  else away_.erase(lease.id);
}

void State::set_cooperation(Lease& lease, std::optional<Cooperation> how) {
  rebook(lease, [&] { lease.cooperation = std::move(how); });
}

void State::set_parking(Lease& lease, std::optional<Parking> parking, LeaseState state) {
  rebook(lease, [&] {
    enter(lease, -1);
    lease.parking = std::move(parking);
    lease.state = state;
    enter(lease, 1);
  });
}

// -------------------------------------------------------------------------------- what comes back with them

void State::note_asked(const Lease& lease) {
  for (Charge& charge : sides_.at(lease.id).charges) {
    charge.parked = std::max(charge.used, charge.coming);  // back a moment ago, it may not be measured yet
    charge.kept = charge.on_top = charge.tops = charge.beside = {};
  }
}

void State::note_yielded(const Lease& lease) {
  for (Charge& charge : sides_.at(lease.id).charges) charge.kept = charge.used;
}

// Of an earlier try that failed, what is no longer on the device may be parked all the same.
void State::note_asked_on_top(const Lease& lease) {
  for (Charge& charge : sides_.at(lease.id).charges) {
    const Bytes here = std::max(charge.used - charge.kept, Bytes{});
    charge.parked += std::max(charge.tops - here, Bytes{});
    charge.tops = here;
    charge.on_top = charge.used;
  }
}

void State::note_parked_on_top(const Lease& lease) {
  for (Charge& charge : sides_.at(lease.id).charges) charge.parked += std::exchange(charge.tops, Bytes{});
}

// Within its residue it is as it promised, and the headroom of the device is for that.
Bytes State::beside(const Lease& lease, const Charge& charge) const {
  const Bytes taken = charge.used > lease.parking->residue ? charge.used - charge.kept : Bytes{};
  return std::max(taken, charge.tops);
}

// All that one lease could have there while those that are parked beside it stay so: who waits for more than that waits
// for them, and they may wait for it.
Bytes State::most_beside_others(const Lease& lease, const Device& device) const {
  Bytes most = device.reading.total - device.reading.driver_reserved - device.other;
  if (indexed_under_) most -= indexed_under_->first;
  for (const LeaseId id : device.leases) {
    const Lease& other = leases_.at(id);
    if (id != lease.id && other.parked()) most -= charged(other, device.reading.uuid);
  }
  return most;
}

// A program may have held all of its lease when it yielded, whatever was measured before; what it took since comes on
// top of that. Beside a whole device nobody is promised anything: no more is waited for, and nobody else is promised
// anything there before it is back.
void State::expect_return(const Lease& lease) {
  for (const std::string& uuid : lease.devices) {
    Charge& charge = *charge_at(lease, uuid);
    const Bytes whole = std::max(lease.vram, charge.parked) + beside(lease, charge);
    charge.coming = charge.needed = {};
    if (whole <= lease.vram) continue;
    const Device& device = devices_.at(uuid);
    charge.coming = whole;
    charge.needed = device.read_at ? std::clamp(most_beside_others(lease, device), lease.vram, whole) : whole;
  }
}

// -------------------------------------------------------------------------------- how far they are

std::optional<State::Moving> State::moving(LeaseId id) const {
  const Lease* lease = find(id);
  if (lease == nullptr || !lease->parking) return std::nullopt;
  const Side& side = sides_.at(id);
  Moving now{Move::pause, side.moved, side.moving_since, {}};
  if (lease->state == LeaseState::pausing && side.yielded_at) {
    now.move = Move::settle;
    now.since = *side.yielded_at;
  } else if (lease->state == LeaseState::resuming && side.moving_since > lease->parking->since) {
    now.move = Move::resume;  // while a pause is undone nobody knows how much of it there is to undo
  } else if (lease->state != LeaseState::pausing || !side.acting) {
    return std::nullopt;
  }
  now.takes = costs_.predict(lease->consumer, lease->parking->method, now.move, now.bytes);
  return now;
}

State::ToRestore State::to_restore(const Lease& lease, std::string_view device) const {
  ToRestore needs;
  if (!lease.parking) return needs;
  const Charge& seen = charge(lease.id, device);
  const auto devices = static_cast<std::int64_t>(std::max<std::size_t>(lease.devices.size(), 1));
  // Settled it is what host memory grew by, which is less where much of it was never written; else all that its program
  // might have held.
  const Bytes each = std::min(Bytes{lease.parking->entry.count / devices}, lease.vram);
  if (seen.on_top > Bytes{}) needs.all = seen.on_top;
  else if (!lease.parking->settled && seen.parked > Bytes{}) needs.all = seen.parked;
  else needs.all = std::max(each, seen.parked);
  for (const auto& [where, bytes] : sides_.at(lease.id).asked_with)
    if (where.first == device) needs.of.emplace(where.second, bytes);
  return needs;
}

bool State::lacks_room(LeaseId id) const {
  const auto side = sides_.find(id);
  return side != sides_.end() && side->second.no_room;
}

std::optional<bool> State::inhabited(LeaseId id) const {
  const auto side = sides_.find(id);
  return side == sides_.end() ? std::nullopt : side->second.inhabited;
}

// -------------------------------------------------------------------------------- how it went before

double MethodRecord::reliability() const {
  const std::uint32_t kept = outcomes & ((1U << tries) - 1);
  return (1.0 + std::popcount(kept)) / (1.0 + tries);
}

}  // namespace sublet::core
