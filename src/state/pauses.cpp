// SPDX-License-Identifier: Apache-2.0
// Leases that are pausing, paused or resuming: what comes back with them, and their progress.
#include "state/pauses.h"

#include "state/state.h"

#include <algorithm>
#include <utility>

namespace sublet::core {
namespace {

std::map<ProcessRef, Bytes> used_by_each(const Device& device, LeaseId lease) {
  std::map<ProcessRef, Bytes> all;
  for (const ProcessUse& use : device.reading.processes)
    if (use.lease == lease && use.used) all[use.process] += *use.used;
  return all;
}

// Within its residue it is as it promised, and the headroom of the device is for that.
Bytes beside(const Lease& lease, const Charge& charge, const HeldWhenPaused& its) {
  return charge.used > lease.parking->residue ? charge.used - its.kept : Bytes{};
}

}  // namespace

void set_parking(State& state, Lease& lease, std::optional<Parking> parking, LeaseState to) {
  std::vector<Bytes> had;
  if (to == LeaseState::poisoned)
    for (const std::string& device : lease.devices) had.push_back(charged_on(state, lease, device));
  const bool settles = lease.parking && !lease.parking->measured && parking && parking->measured;
  const Attempt* attempt = attempt_of(state, lease.id);
  // A snapshot from before the answer does not show that these bytes are taken.
  const bool shown = attempt != nullptr && attempt->parked && state.devices.snapshot_began >= attempt->answered_at;
  if (settles && !shown) state.host.memory.available -= parking->host_bytes;
  rebook(state, lease, [&] {
    enter(state, lease, -1);
    lease.parking = std::move(parking);
    lease.state = to;
    // Bytes that its processes have taken again by now are still to be measured.
    for (std::size_t i = 0; i < had.size(); ++i) state.leases.runtime.at(lease.id).charges[i].coming = had[i];
    if (lease.parking && !lease.parked()) expect_all_back(state, lease);
    enter(state, lease, 1);
  });
}

// A device without a measurement counts with all that the lease may hold there. A value measured after an earlier
// method was half done is not less than the value of that method.
void note_asked(const State& state, const Lease& lease, Parking& parking, const Rules& rules, Time now) {
  const LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  std::vector<HeldWhenPaused> before = std::exchange(parking.held_when_paused, {});
  before.resize(lease.devices.size());
  for (std::size_t i = 0; i < lease.devices.size(); ++i) {
    const Device& device = state.devices.by_uuid.at(lease.devices[i]);
    const Charge& charge = runtime.charges[i];
    const bool measured =
        is_known(state, device, rules, now) && !charge.untold && device.read_at >= runtime.restored_at;
    std::map<ProcessRef, Bytes> of(before[i].of.begin(), before[i].of.end());
    if (measured)
      for (const auto& [process, bytes] : used_by_each(device, lease.id)) of[process] = std::max(of[process], bytes);
    HeldWhenPaused& its = parking.held_when_paused.emplace_back();
    its.all = std::max({charge.used, charge.coming, before[i].all, measured ? Bytes{} : lease.vram});
    its.of.assign(of.begin(), of.end());
  }
}

void note_yielded(const State& state, const Lease& lease, Parking& parking) {
  const LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  for (std::size_t i = 0; i < parking.held_when_paused.size(); ++i)
    parking.held_when_paused[i].kept = runtime.charges[i].used;
}

void note_beside(const State& state, const Lease& lease, Parking& parking) {
  const LeaseRuntime& runtime = state.leases.runtime.at(lease.id);
  for (std::size_t i = 0; i < parking.held_when_paused.size(); ++i)
    parking.held_when_paused[i].beside = beside(lease, runtime.charges[i], parking.held_when_paused[i]);
}

// A program may have held all of its lease when it yielded, whatever was measured before; what it took since adds
// to that. A lease of the whole device needs no more: nothing else is granted there until it resumes.
void expect_return(State& state, const Lease& lease) {
  for (std::size_t i = 0; i < lease.parking->held_when_paused.size(); ++i) {
    Charge& charge = state.leases.runtime.at(lease.id).charges[i];
    const HeldWhenPaused& its = lease.parking->held_when_paused[i];
    const Bytes whole = std::max(lease.vram, its.all) + beside(lease, charge, its);
    charge.coming = charge.needed = {};
    if (whole <= lease.vram) continue;
    const Device& device = state.devices.by_uuid.at(lease.devices[i]);
    charge.coming = whole;
    charge.needed = device.read_at ? std::clamp(most_beside_others(state, lease, device), lease.vram, whole) : whole;
  }
}

// It has its memory, still or again. Until it runs and is measured, nothing is promised of what it held and took beyond
// its size. Called while what it is charged is out of its devices' sums.
void expect_all_back(State& state, const Lease& lease) {
  for (std::size_t i = 0; i < lease.parking->held_when_paused.size(); ++i) {
    const HeldWhenPaused& its = lease.parking->held_when_paused[i];
    const Bytes whole = std::max(lease.vram, its.all) + its.beside;
    state.leases.runtime.at(lease.id).charges[i].coming = whole > lease.vram ? whole : Bytes{};
  }
}

const Attempt* attempt_of(const State& state, LeaseId id) {
  const auto runtime = state.leases.runtime.find(id);
  return runtime != state.leases.runtime.end() && runtime->second.attempt ? &*runtime->second.attempt : nullptr;
}

bool has_begun(const State& state, LeaseId id) {
  const Attempt* attempt = attempt_of(state, id);
  return attempt == nullptr || attempt->begun;
}

bool is_away(const State& state, const Lease& lease) {
  if (lease.state != LeaseState::resuming) return lease.state == LeaseState::paused;
  const Attempt* attempt = attempt_of(state, lease.id);
  return attempt != nullptr && attempt->unanswered > 0;
}

std::optional<Duration> unanswered_for(const State& state, const Lease& lease, Time now) {
  constexpr int often = 3;
  const Attempt* attempt = attempt_of(state, lease.id);
  if (lease.state != LeaseState::resuming || attempt == nullptr || attempt->unanswered < often) return std::nullopt;
  return now - attempt->told_since;
}

std::optional<Moving> move_of(const State& state, LeaseId id) {
  const Lease* lease = find(state, id);
  const Attempt* attempt = attempt_of(state, id);
  if (lease == nullptr || !lease->parking || attempt == nullptr) return std::nullopt;
  Moving now{Move::pause, attempt->moved, attempt->moving_since, {}};
  if (attempt->phase == Attempt::Phase::answered) {
    now.move = Move::settle;
    now.since = attempt->answered_at;
  } else if (lease->state == LeaseState::resuming && attempt->moving_since > lease->parking->since) {
    now.move = Move::resume;  // while a pause is undone nobody knows how much of it there is to undo
  } else if (lease->state != LeaseState::pausing || !attempt->is_ordered()) {
    return std::nullopt;
  }
  now.takes = state.learned.costs.predict(lease->whose(), lease->devices, lease->parking->method, now.move, now.bytes);
  return now;
}

// Bytes that the driver parked were measured. Bytes that cooperative programs saved say nothing about the bytes that
// they take back.
Bytes bytes_to_move(const State& state, const Lease& lease) {
  if (!lease.reserves()) return lease.vram;
  if (!lease.parking) return use_of(state, lease.id).used;
  if (lease.parking->measured && lease.parking->method == PauseMethod::driver) return lease.parking->host_bytes;
  Bytes held;
  for (const HeldWhenPaused& its : lease.parking->held_when_paused) held += its.all;
  return held;
}

ToRestore to_restore(const State& state, const Lease& lease, std::string_view device) {
  ToRestore needs;
  if (!lease.parking) return needs;
  const auto at =
      static_cast<std::size_t>(std::find(lease.devices.begin(), lease.devices.end(), device) - lease.devices.begin());
  if (at >= lease.parking->held_when_paused.size()) return needs;
  const HeldWhenPaused& its = lease.parking->held_when_paused[at];
  needs.all = its.all;
  // Host memory grew by more than was measured where its program took more after that; where nothing was measured it
  // may have taken all.
  if (lease.parking->measured || its.all <= Bytes{}) {
    const auto devices = static_cast<std::int64_t>(lease.devices.size());
    needs.all = std::max(needs.all, std::min(Bytes{lease.parking->host_bytes.count / devices}, lease.vram));
  }
  needs.beside = its.beside;
  needs.of = {its.of.begin(), its.of.end()};
  return needs;
}

const std::string& resume_failure(const State& state, LeaseId id) {
  static const std::string none;
  const Attempt* attempt = attempt_of(state, id);
  return attempt == nullptr ? none : attempt->failure;
}

bool lacks_memory(const State& state, LeaseId id) {
  const Attempt* attempt = attempt_of(state, id);
  return attempt != nullptr && attempt->failure_code == ObstacleCode::no_room;
}

bool is_stuck(const State& state, LeaseId id) {
  const Attempt* attempt = attempt_of(state, id);
  return attempt != nullptr && attempt->overdue;
}

std::optional<Time> yield_time_of(const State& state, LeaseId id) {
  const Attempt* attempt = attempt_of(state, id);
  return attempt != nullptr && attempt->phase == Attempt::Phase::answered ? std::optional(attempt->answered_at)
                                                                          : std::nullopt;
}

Bytes unlisted_since_asked(const State& state, const Lease& lease) {
  const Attempt* attempt = attempt_of(state, lease.id);
  Bytes most;
  if (attempt == nullptr) return most;
  const auto& before = attempt->unlisted;
  for (std::size_t i = 0; i < lease.devices.size() && i < before.size(); ++i)
    most = std::max(most, state.devices.by_uuid.at(lease.devices[i]).unlisted - before[i].value_or(Bytes{}));
  return most;
}

std::optional<bool> is_inhabited(const State& state, LeaseId id) {
  const auto runtime = state.leases.runtime.find(id);
  return runtime == state.leases.runtime.end() ? std::nullopt : runtime->second.inhabited;
}

}  // namespace sublet::core
