// SPDX-License-Identifier: Apache-2.0
#include "engine/activity.h"

#include <algorithm>
#include <array>

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

State activity_of(const core::State& state, const core::Rules& rules, const core::Lease& lease, Time now) {
  State all = State::idle;
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices().find(uuid);
    if (device == state.devices().end() || !state.known(device->second, rules, now)) return State::unknown;
    const core::DeviceReading& reading = device->second.reading;
    all = both(all, activity_on(reading, lease.id));
    const bool listed = std::ranges::any_of(reading.processes, [&](const auto& use) { return use.lease == lease.id; });
    // Its bytes are there, and no list shows the process.
    if (!listed && state.charge(lease.id, uuid).used > Bytes{}) all = both(all, State::unknown);
  }
  return all;
}

}  // namespace

std::string_view to_string(State state) {
  constexpr std::array<std::string_view, 3> words{"busy", "idle", "unknown"};
  return words.at(static_cast<std::size_t>(state));
}

State activity_on(const core::DeviceReading& reading, LeaseId lease) {
  const auto idle = std::ranges::count_if(reading.processes, [](const auto& use) { return use.busy_percent == 0; });
  const bool alone = static_cast<std::size_t>(idle) + 1 == reading.processes.size();
  State all = State::idle;
  for (const core::ProcessUse& use : reading.processes) {
    if (use.lease != lease) continue;
    const State its = !use.busy_percent ? by_device(reading, alone) : *use.busy_percent > 0 ? State::busy : State::idle;
    all = both(all, its);
  }
  return all;
}

void Activities::observe(const core::State& state, const core::Rules& rules, Time now) {
  for (auto known = known_.begin(); known != known_.end();) {
    const core::Lease* lease = state.find(known->first);
    if (lease == nullptr || lease->ended()) {
      known = known_.erase(known);
      continue;
    }
    if (lease->state != core::LeaseState::active) known->second.was_active = false;
    ++known;
  }
  for (const auto& [id, lease] : state.leases()) {
    if (lease.state != core::LeaseState::active) continue;
    Known& known = known_[id];
    LeaseActivity& activity = known.activity;
    activity.state = activity_of(state, rules, lease, now);
    if (activity.state != State::idle || !std::exchange(known.was_active, true)) activity.last = now;
    known.was_active = true;
  }
}

void Activities::touch(LeaseId lease, Time now) { known_[lease].activity.last = now; }

void Activities::forgive(Duration gap) {
  for (auto& [lease, known] : known_)
    if (known.activity.last != Time{}) known.activity.last = known.activity.last + gap;
}

LeaseActivity Activities::of(LeaseId lease) const {
  const auto known = known_.find(lease);
  return known == known_.end() ? LeaseActivity{} : known->second.activity;
}

}  // namespace sublet::engine
