// SPDX-License-Identifier: Apache-2.0
// The part of the observer that looks at programs: their work, their control groups, and what becomes of them during a
// pause.
#include "engine/engine.h"
#include "engine/observer.h"

#include <algorithm>

namespace sublet::engine {

LeaseActivity Observer::activity(LeaseId lease) const {
  return activities_.of(lease, state_, engine_.rules(), engine_.now());
}

void Observer::touch(LeaseId lease) {
  activities_.touch(lease, engine_.now());
  engine_.call_capabilities();
}

// A group that cannot be read says nothing, and its lease stays as it is. A walk may miss processes that move
// meanwhile, so two readings must find such a group empty.
void Observer::watch_groups(bool at_reading) {
  std::vector<core::Lease> owned;  // copies, because a report may end a lease
  for (const auto& [id, lease] : state_.leases.by_id)
    if (lease.owner.kind == core::OwnerKind::group && !lease.ended()) owned.push_back(lease);
  for (const core::Lease& lease : owned) {
    if (at_reading && lease.state != core::LeaseState::offered && programs_.take_group_seen(lease.id)) {
      empty_groups_.erase(lease.id);
      continue;
    }
    const auto group = programs_.look_at_group(lease.owner.cgroup);
    if (!group) continue;
    const bool same = group->inode == lease.owner.inode, lives = group->populated && same;
    if (lives) empty_groups_.erase(lease.id);
    if (!lives && same && !group->certain && (!at_reading || empty_groups_.insert(lease.id).second)) continue;
    if (!lives || lease.state == core::LeaseState::offered)
      engine_.tick(core::GroupReport{lease.id, group->populated, group->inode});
  }
  std::erase_if(empty_groups_, [this](LeaseId id) {
    const core::Lease* lease = core::find(state_, id);
    return lease == nullptr || lease->ended();
  });
}

void Observer::watch_stopped() {
  std::map<LeaseId, Stopped> seen;
  for (const auto& [lease, by_debugger] : programs_.stopped_programs()) {
    const auto before = stopped_.find(lease);
    seen.emplace(lease, Stopped{before == stopped_.end() ? engine_.now() : before->second.since, by_debugger});
  }
  stopped_ = std::move(seen);
}

// --- during a pause ---

core::HostMemory Observer::host_memory(const core::Lease* lease) const {
  if (lease == nullptr) return host_.memory({}, {});
  // Without an actor no process keeps groups from swap, whatever the last actor could.
  std::optional<proc::SwapStopper> by;
  if (actor_.ready()) by = {lease->uid, actor_.introduction().uid == 0};
  return host_.memory(charged_of(*lease), by);
}

// Returns all processes that would be parked. Each is charged to its own groups. Empty: they are not known. The
// processes of a cooperative program may not all be booked.
std::vector<ProcessRef> Observer::charged_of(const core::Lease& lease) const {
  if (lease.owner.kind != core::OwnerKind::process && lease.cooperation) return {};
  std::vector<ProcessRef> processes = programs_.tree(lease.id);
  if (processes.empty() && lease.owner.process) processes.push_back(lease.owner.process);
  return processes;
}

void Observer::begin_moving(LeaseId lease) {
  resident_before_.insert_or_assign(lease, host_.use(programs_.tree(lease)).resident);
  copying_since_.erase(lease);
}

// Earlier changes of their memory do not belong to the move.
void Observer::begin_copying(LeaseId lease) {
  begin_moving(lease);
  copying_since_.insert_or_assign(lease, engine_.now());
}

bool Observer::any_moves() const {
  return std::any_of(state_.pauses.away.begin(), state_.pauses.away.end(), [this](LeaseId id) {
    const core::Lease* lease = core::find(state_, id);
    return lease != nullptr && !lease->parked();
  });
}

// The driver reports no progress: bytes are seen on the card, and for the driver method also in host memory. Host
// memory of a cooperative program says nothing about its VRAM.
std::optional<MoveProgress> Observer::progress(const core::Lease& lease) const {
  const auto moving = core::move_of(state_, lease.id);
  if (!moving || moving->bytes <= Bytes{}) return std::nullopt;
  const bool out = moving->move != core::Move::resume, driver = lease.parking->method == core::PauseMethod::driver;
  const auto copying = copying_since_.find(lease.id);
  MoveSeen seen;
  seen.stuck = core::is_stuck(state_, lease.id);
  seen.since_order = std::max<Duration>(engine_.now() - moving->since, std::chrono::milliseconds(1));
  seen.since_copying = out && copying != copying_since_.end() ? engine_.now() - copying->second : seen.since_order;
  seen.under_way = moving->move != core::Move::pause ||
                   (driver ? copying != copying_since_.end() : core::has_begun(state_, lease.id));
  const Bytes used = core::use_of(state_, lease.id).used;
  seen.bytes = out ? moving->bytes - used : used;
  const auto before = resident_before_.find(lease.id);
  if (driver && moving->move != core::Move::settle && before != resident_before_.end()) {
    const Bytes resident = host_.use(programs_.tree(lease.id)).resident;
    if (resident > Bytes{})
      seen.bytes = std::max(seen.bytes, out ? resident - before->second : before->second - resident);
  }
  return measure_progress(*moving, seen);
}

void Observer::watch_away() {
  const std::vector<LeaseId> away(state_.pauses.away.begin(), state_.pauses.away.end());
  const auto is_back = [this](const auto& entry) { return !state_.pauses.away.contains(entry.first); };
  std::erase_if(resident_before_, is_back);
  std::erase_if(copying_since_, is_back);
  std::erase_if(swapped_, is_back);
  for (const LeaseId id : away) {
    const core::Lease* lease = core::find(state_, id);
    if (lease == nullptr || !lease->parking) continue;
    watch_swap(*lease);
    if (lease->owner.kind != core::OwnerKind::token) continue;
    const bool told = lease->cooperation && lease->cooperation->process && programs_.lives(lease->cooperation->process);
    const bool lives = told || programs_.inhabited(id);
    if (core::is_inhabited(state_, id) != lives) engine_.tick(core::LivenessReport{id, lives});
  }
}

// Reported whatever ledger.allow_swap says: a program on a swap device resumes slowly.
void Observer::watch_swap(const core::Lease& lease) {
  const Bytes swapped = lease.parked() ? host_.use(programs_.tree(lease.id)).swapped : Bytes{};
  if (swapped > Bytes{}) swapped_[lease.id] = swapped;
  else swapped_.erase(lease.id);
}

}  // namespace sublet::engine
