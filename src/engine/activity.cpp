// SPDX-License-Identifier: Apache-2.0
#include "engine/activity.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace sublet::engine {
namespace {

using State = LeaseActivity::State;

// Work on one device is work; one unknown device may hide work.
State both(State one, State other) {
  if (one == State::busy || other == State::busy) return State::busy;
  return one == State::unknown || other == State::unknown ? State::unknown : State::idle;
}

// A process without a figure of its own. `alone`: all other processes of the device have figures, and did nothing.
State by_device(const core::DeviceReading& reading, bool alone) {
  if (!reading.busy_percent) return State::unknown;
  if (*reading.busy_percent == 0) return State::idle;
  return alone ? State::busy : State::unknown;
}

bool can_be_read(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now) {
  return std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const auto device = state.devices.by_uuid.find(uuid);
    return device != state.devices.by_uuid.end() && core::is_known(state, device->second, rules, now);
  });
}

// The work of the listed processes of each lease on one device, in one pass.
using Work = std::unordered_map<LeaseId, State>;
Work work_on(const core::DeviceReading& reading) {
  const auto idle = std::ranges::count_if(reading.processes, [](const auto& use) { return use.busy_percent == 0; });
  const bool alone = static_cast<std::size_t>(idle) + 1 == reading.processes.size();
  Work work;
  for (const core::ProcessUse& use : reading.processes) {
    const State its = !use.busy_percent ? by_device(reading, alone) : *use.busy_percent > 0 ? State::busy : State::idle;
    const auto [known, is_new] = work.emplace(use.lease, its);
    if (!is_new) known->second = both(known->second, its);
  }
  return work;
}

State activity_of(const core::State& state, const std::unordered_map<std::string, Work>& works,
                  const core::Lease& lease) {
  State all = State::idle;
  for (const std::string& uuid : lease.devices) {
    const auto work = works.find(uuid);
    if (work == works.end()) return State::unknown;
    const auto listed = work->second.find(lease.id);
    if (listed != work->second.end()) all = both(all, listed->second);
    // Its bytes are there, and no list shows the process.
    else if (core::charge_on(state, lease.id, uuid).used > Bytes{}) all = both(all, State::unknown);
  }
  return all;
}

}  // namespace

std::string_view to_string(State state) {
  constexpr std::array<std::string_view, 3> words{"busy", "idle", "unknown"};
  return words.at(static_cast<std::size_t>(state));
}

State activity_on(const core::DeviceReading& reading, LeaseId lease) {
  const Work work = work_on(reading);
  const auto its = work.find(lease);
  return its == work.end() ? State::idle : its->second;
}

void Activities::observe(const core::State& state, const core::Rules& rules, Time now) {
  for (auto known = known_.begin(); known != known_.end();) {
    const core::Lease* lease = core::find(state, known->first);
    if (lease == nullptr || lease->ended()) {
      known = known_.erase(known);
      continue;
    }
    if (lease->state != core::LeaseState::active) known->second.was_active = false;
    ++known;
  }
  std::unordered_map<std::string, Work> works;
  for (const auto& [uuid, device] : state.devices.by_uuid)
    if (core::is_known(state, device, rules, now)) works.emplace(uuid, work_on(device.reading));
  // Without readings, the activity was unknown until now.
  const bool unseen = now - std::exchange(observed_, now) > rules.max_age;
  for (const auto& [id, lease] : state.leases.by_id) {
    if (lease.state != core::LeaseState::active) continue;
    Known& known = known_[id];
    LeaseActivity& activity = known.activity;
    activity.state = activity_of(state, works, lease);
    if (unseen || activity.state != State::idle || !std::exchange(known.was_active, true)) activity.last = now;
    known.was_active = true;
  }
}

void Activities::touch(LeaseId lease, Time now) { known_[lease].activity.last = now; }

void Activities::forgive(Duration gap) {
  observed_ = observed_ + gap;
  for (auto& [lease, known] : known_)
    if (known.activity.last != Time{}) known.activity.last = known.activity.last + gap;
}

void Activities::resumed(const core::Resumed& lease) {
  const auto known = known_.find(lease.lease);
  if (known == known_.end() || known->second.activity.last == Time{}) return;
  known->second.was_active = true;
  LeaseActivity& activity = known->second.activity;
  if (lease.cause != core::PauseCauseKind::idle) activity.last = activity.last + lease.stood_still;
}

LeaseActivity Activities::of(LeaseId lease, const core::State& state, const core::Rules& rules, Time now) const {
  const auto known = known_.find(lease);
  if (known == known_.end()) return {};
  LeaseActivity activity = known->second.activity;
  const core::Lease* found = core::find(state, lease);
  const bool runs = found != nullptr && found->state == core::LeaseState::active;
  if (runs && !can_be_read(state, rules, *found, now)) activity.state = State::unknown;
  return activity;
}

}  // namespace sublet::engine
