// SPDX-License-Identifier: Apache-2.0
// Leases that are pausing, paused or resuming: their ledger entries and their progress.
#include "core/state.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace sublet::core {
namespace {

// The price of each attempt that comes to nothing; their number is expected from earlier pauses.
constexpr Duration futile_try = std::chrono::seconds(10);

std::map<ProcessRef, Bytes> used_by_each(const Device& device, LeaseId lease) {
  std::map<ProcessRef, Bytes> all;
  for (const ProcessUse& use : device.reading.processes)
    if (use.lease == lease && use.used) all[use.process] += *use.used;
  return all;
}

// Within its residue it is as it promised, and the headroom of the device is for that.
Bytes beside(const Lease& lease, const Charge& charge, const HeldWhenPaused& its) {
  const Bytes taken = charge.used > lease.parking->residue ? charge.used - its.kept : Bytes{};
  return std::max(taken, its.tops);
}

}  // namespace

// -------------------------------------------------------------------------------- the ledger

Bytes State::ledger_of(std::uint32_t uid) const {
  const auto found = ledger_of_.find(uid);
  return found == ledger_of_.end() ? Bytes{} : found->second;
}

bool State::alone(std::uint32_t uid) const { return live_of_.size() == live_of_.count(uid); }

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

// -------------------------------------------------------------------------------- what they keep, and need beyond

Bytes State::in_headroom(Bytes residues) const {
  return indexed_under_ ? std::min(indexed_under_->first, residues) : Bytes{};
}

Bytes State::leaves_headroom(const Lease& lease, std::string_view device) const {
  const auto at = devices_.find(device);
  const bool here = std::find(lease.devices.begin(), lease.devices.end(), device) != lease.devices.end();
  if (!lease.parked() || !here || at == devices_.end()) return {};
  const Bytes all = at->second.residues;
  return in_headroom(all) - in_headroom(all - lease.parking->residue);
}

Bytes State::beyond_size(const Lease& lease) const {
  Bytes most;
  if (lease.state != LeaseState::paused) return most;
  for (const std::string& uuid : lease.devices) most = std::max(most, charge(lease.id, uuid).needed - lease.vram);
  return most;
}

// -------------------------------------------------------------------------------- turns

Duration State::had(LeaseId id, const std::string& device) const {
  const auto group = slice_groups_.find(device);
  if (group == slice_groups_.end()) return {};
  const auto its = group->second.find(id);
  return its == group->second.end() ? Duration{} : its->second.had;
}

// Adds (`sign` 1) or takes away (-1) what the lease is entered with.
void State::enter(const Lease& lease, int sign) {
  if (!lease.parking) return;
  const Bytes bytes = sign * lease.parking->host_bytes;
  ledger_entries_ += bytes;
  if (!lease.parking->measured) ledger_unsettled_ += bytes;
  Bytes& of_user = ledger_of_[lease.uid];
  of_user += bytes;
  if (of_user == Bytes{}) ledger_of_.erase(lease.uid);
  room_stale_ |= sign < 0 && lease.parking->host_bytes > Bytes{};  // others may fit in there now
  if (sign > 0) away_.insert(lease.id);
  else away_.erase(lease.id);
}

void State::set_cooperation(Lease& lease, std::optional<Cooperation> how, Time now) {
  if (!how) runtime_.at(lease.id).silent_since = now;
  rebook(lease, [&] { lease.cooperation = std::move(how); });
}

void State::set_parking(Lease& lease, std::optional<Parking> parking, LeaseState state) {
  std::vector<Bytes> had;
  if (state == LeaseState::poisoned)
    for (const std::string& device : lease.devices) had.push_back(charged(lease, device));
  rebook(lease, [&] {
    enter(lease, -1);
    lease.parking = std::move(parking);
    lease.state = state;
    // Bytes that its processes have taken again by now are still to be measured.
    for (std::size_t i = 0; i < had.size(); ++i) runtime_.at(lease.id).charges[i].coming = had[i];
    if (lease.parking && !lease.parked()) expect_all_back(lease);
    enter(lease, 1);
  });
}

// -------------------------------------------------------------------------------- what comes back with them

// A device without a measurement counts with all that the lease may hold there. A value measured after an earlier
// method was half done is not less than the value of that method.
void State::note_asked(const Lease& lease, Parking& parking, const Rules& rules, Time now) const {
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  std::vector<HeldWhenPaused> before = std::exchange(parking.held_when_paused, {});
  before.resize(lease.devices.size());
  for (std::size_t i = 0; i < lease.devices.size(); ++i) {
    const Device& device = devices_.at(lease.devices[i]);
    const Charge& charge = runtime.charges[i];
    const bool measured = known(device, rules, now) && !charge.untold && device.read_at >= runtime.restored_at;
    std::map<ProcessRef, Bytes> of(before[i].of.begin(), before[i].of.end());
    if (measured)
      for (const auto& [process, bytes] : used_by_each(device, lease.id)) of[process] = std::max(of[process], bytes);
    HeldWhenPaused& its = parking.held_when_paused.emplace_back();
    its.all = std::max({charge.used, charge.coming, before[i].all, measured ? Bytes{} : lease.vram});
    its.of.assign(of.begin(), of.end());
  }
}

void State::note_yielded(const Lease& lease, Parking& parking) const {
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  for (std::size_t i = 0; i < parking.held_when_paused.size(); ++i)
    parking.held_when_paused[i].kept = runtime.charges[i].used;
}

// Bytes that left the device in an earlier attempt that failed may be parked all the same.
void State::note_asked_on_top(const Lease& lease, Parking& parking) const {
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  for (std::size_t i = 0; i < parking.held_when_paused.size(); ++i) {
    HeldWhenPaused& its = parking.held_when_paused[i];
    const Bytes here = std::max(runtime.charges[i].used - its.kept, Bytes{});
    its.all += std::max(its.tops - here, Bytes{});
    its.tops = here;
    its.on_top = runtime.charges[i].used;
    const auto of = used_by_each(devices_.at(lease.devices[i]), lease.id);
    its.of.assign(of.begin(), of.end());
  }
}

void State::note_parked_on_top(Parking& parking) {
  for (HeldWhenPaused& its : parking.held_when_paused) its.all += std::exchange(its.tops, Bytes{});
}

void State::note_beside(const Lease& lease, Parking& parking) const {
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  for (std::size_t i = 0; i < parking.held_when_paused.size(); ++i)
    parking.held_when_paused[i].beside = beside(lease, runtime.charges[i], parking.held_when_paused[i]);
}

// Bytes that the processes held when the driver was to park them on top, and that are not on the device any more.
Bytes State::gone_since_top(const Lease& lease) const {
  Bytes gone;
  for (std::size_t i = 0; i < lease.parking->held_when_paused.size(); ++i) {
    auto here = used_by_each(devices_.at(lease.devices[i]), lease.id);
    for (const auto& [process, bytes] : lease.parking->held_when_paused[i].of)
      gone += std::max(bytes - here[process], Bytes{});
  }
  return gone;
}

// A lease that waits for more than this waits for the leases parked there, and they may wait for it.
Bytes State::most_beside_others(const Lease& lease, const Device& device) const {
  const Bytes residues = device.residues - (lease.parked() ? lease.parking->residue : Bytes{});
  Bytes most = device.reading.total - device.reading.driver_reserved - device.other + in_headroom(residues);
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
  for (std::size_t i = 0; i < lease.parking->held_when_paused.size(); ++i) {
    Charge& charge = runtime_.at(lease.id).charges[i];
    const HeldWhenPaused& its = lease.parking->held_when_paused[i];
    const Bytes whole = std::max(lease.vram, its.all) + beside(lease, charge, its);
    charge.coming = charge.needed = {};
    if (whole <= lease.vram) continue;
    const Device& device = devices_.at(lease.devices[i]);
    charge.coming = whole;
    charge.needed = device.read_at ? std::clamp(most_beside_others(lease, device), lease.vram, whole) : whole;
  }
}

// It has its room, still or again: until it runs, and is measured, nobody else is promised what it held, and took
// since, beyond its size. Called while what it is charged is out of its devices' sums.
void State::expect_all_back(const Lease& lease) {
  for (std::size_t i = 0; i < lease.parking->held_when_paused.size(); ++i) {
    const HeldWhenPaused& its = lease.parking->held_when_paused[i];
    const Bytes whole = std::max(lease.vram, its.all) + its.beside;
    runtime_.at(lease.id).charges[i].coming = whole > lease.vram ? whole : Bytes{};
  }
}

// -------------------------------------------------------------------------------- how far they are

bool State::begun(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  return runtime == runtime_.end() || runtime->second.begun;
}

bool State::measured_later(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  return runtime != runtime_.end() &&
         std::ranges::any_of(runtime->second.charges, [](const Charge& its) { return its.coming > Bytes{}; });
}

bool State::is_away(const Lease& lease) const {
  if (lease.state != LeaseState::resuming) return lease.state == LeaseState::paused;
  return runtime_.at(lease.id).unanswered > 0;
}

std::optional<Duration> State::told_in_vain(const Lease& lease, Time now) const {
  constexpr int often = 3;
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  if (lease.state != LeaseState::resuming || runtime.unanswered < often) return std::nullopt;
  return now - runtime.told_since;
}

std::optional<State::Moving> State::moving(LeaseId id) const {
  const Lease* lease = find(id);
  if (lease == nullptr || !lease->parking) return std::nullopt;
  const LeaseRuntime& runtime = runtime_.at(id);
  Moving now{Move::pause, runtime.moved, runtime.moving_since, {}};
  if (lease->state == LeaseState::pausing && runtime.yielded_at) {
    now.move = Move::settle;
    now.since = *runtime.yielded_at;
  } else if (lease->state == LeaseState::resuming && runtime.moving_since > lease->parking->since) {
    now.move = Move::resume;  // while a pause is undone nobody knows how much of it there is to undo
  } else if (lease->state != LeaseState::pausing || !runtime.acting) {
    return std::nullopt;
  }
  now.takes = costs_.predict(lease->whose(), lease->devices, lease->parking->method, now.move, now.bytes);
  return now;
}

// Bytes that the driver parked were measured. Bytes that cooperative programs saved say nothing about the bytes that
// they take back.
Bytes State::to_move(const Lease& lease) const {
  if (!lease.reserves()) return lease.vram;
  if (!lease.parking) return use(lease.id).used;
  if (lease.parking->measured && lease.parking->method == PauseMethod::driver) return lease.parking->host_bytes;
  Bytes held;
  for (const HeldWhenPaused& its : lease.parking->held_when_paused) held += its.all;
  return held;
}

State::ToRestore State::to_restore(const Lease& lease, std::string_view device) const {
  ToRestore needs;
  if (!lease.parking) return needs;
  const auto at =
      static_cast<std::size_t>(std::find(lease.devices.begin(), lease.devices.end(), device) - lease.devices.begin());
  if (at >= lease.parking->held_when_paused.size()) return needs;
  const HeldWhenPaused& its = lease.parking->held_when_paused[at];
  needs.all = its.on_top > Bytes{} ? its.on_top : its.all;
  // Host memory grew by more than was measured where its program took more after that; where nothing was measured it
  // may have taken all.
  if (its.on_top <= Bytes{} && (lease.parking->measured || its.all <= Bytes{})) {
    const auto devices = static_cast<std::int64_t>(lease.devices.size());
    needs.all = std::max(needs.all, std::min(Bytes{lease.parking->host_bytes.count / devices}, lease.vram));
  }
  needs.beside = its.beside;
  needs.of = {its.of.begin(), its.of.end()};
  return needs;
}

const std::string& State::not_back(LeaseId id) const {
  static const std::string none;
  const auto runtime = runtime_.find(id);
  return runtime == runtime_.end() ? none : runtime->second.not_back;
}

bool State::held(LeaseId id) const {
  const auto found = runtime_.find(id);
  return found != runtime_.end() && found->second.held;
}

bool State::lacks_room(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  return runtime != runtime_.end() && runtime->second.no_room;
}

bool State::stuck(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  const Lease* lease = find(id);
  return runtime != runtime_.end() && lease != nullptr && runtime->second.overdue &&
         (lease->state == LeaseState::pausing || lease->state == LeaseState::resuming);
}

std::optional<Time> State::yielded_at(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  return runtime == runtime_.end() ? std::nullopt : runtime->second.yielded_at;
}

Bytes State::unlisted_since_asked(const Lease& lease) const {
  const auto runtime = runtime_.find(lease.id);
  Bytes most;
  if (runtime == runtime_.end()) return most;
  const auto& before = runtime->second.unlisted;
  for (std::size_t i = 0; i < lease.devices.size() && i < before.size(); ++i)
    most = std::max(most, devices_.at(lease.devices[i]).unlisted - before[i].value_or(Bytes{}));
  return most;
}

std::optional<bool> State::inhabited(LeaseId id) const {
  const auto runtime = runtime_.find(id);
  return runtime == runtime_.end() ? std::nullopt : runtime->second.inhabited;
}

// -------------------------------------------------------------------------------- how it went before

int MethodRecord::failed() const { return tries - std::popcount(outcomes & ((1U << tries) - 1)); }

double MethodRecord::reliability() const { return (1.0 + tries - failed()) / (1.0 + tries); }

// A consumer whose pauses succeeded every other time is expected to need one more attempt.
Duration MethodRecord::penalty() const {
  const double more = 1 / reliability() - 1;
  return Duration(static_cast<std::int64_t>(more * static_cast<double>(futile_try.count())));
}

}  // namespace sublet::core
