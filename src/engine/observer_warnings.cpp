// SPDX-License-Identifier: Apache-2.0
// The warnings about devices, and about leases whose programs are not as they should be.
#include "engine/engine.h"
#include "engine/observer.h"
#include "explain/over_limit.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

namespace sublet::engine {
namespace {

std::optional<Warning> device_warning(const std::string& uuid, const core::Device& device, Duration max_age, Time now) {
  const std::string name = fmt::format("{} ({})", device.reading.id(), uuid);
  if (core::is_reconfigured(device)) {
    if (device.leases.empty()) return std::nullopt;
    return Warning{"device-lost", name + " is gone: " + device.problem, "an admin changed the slices: its leases end",
                   now};
  }
  if (device.lost) {
    return Warning{"device-lost", name + " is gone: " + device.problem, "look for Xid messages in the kernel's log",
                   now};
  }
  if (!device.problem.empty()) {
    return Warning{"device", name + " is not leased: " + device.problem, "'sublet gpus' shows its last reading", now};
  }
  if (device.read_at && now - *device.read_at <= max_age) return std::nullopt;
  return Warning{"device-stale", name + " is not leased: its last reading is too old",
                 "'sublet doctor' checks the driver", now};
}

// Without the bytes, which change all the time; /v1/ledger has them.
Warning swapped_warning(const core::Lease& lease, Time now) {
  return {"parked-swapped",
          fmt::format("the parked program of {} ({}, {}) is partly swapped out: it will resume slowly",
                      to_string(lease.id), lease.consumer, lease.user),
          fmt::format(
              "'sublet status' shows how much; set memory.swap.max = 0 in its cgroup, or resume it: 'sublet resume {}'",
              to_string(lease.id)),
          now};
}

// Without the result of each try, which is in the lease's reasons.
Warning not_back_warning(const core::Lease& lease, Time now) {
  return {
      "not-back",
      fmt::format("the paused program of {} ({}, {}) is not running again yet", to_string(lease.id), lease.consumer,
                  lease.user),
      fmt::format("the daemon retries; 'sublet why {}' shows the obstacle and what would help", to_string(lease.id)),
      now};
}

Warning poisoned_warning(const core::State& state, const core::Lease& lease, Time now) {
  return {"poisoned",
          fmt::format("the program of {} ({}, {}) is poisoned and can never run again: {}", to_string(lease.id),
                      lease.consumer, lease.user, core::text_of(lease.parking->cause)),
          fmt::format("its owner or an admin must end it: {} ends it and frees its memory",
                      core::end_command(state, lease)),
          now};
}

// Without the bytes, which change all the time.
Warning over_warning(const core::Lease& lease, const core::Device& device, Time now) {
  return {"over-lease",
          fmt::format("{} ({}, {}) uses more than the {} that it leased on {}", to_string(lease.id), lease.consumer,
                      lease.user, format_size(lease.vram), device.reading.id()),
          fmt::format("'sublet ps' shows how much; its owner can enlarge the lease (sublet resize {0} SIZE) or end it "
                      "(sublet stop {0})",
                      to_string(lease.id)),
          now};
}

}  // namespace

std::vector<Warning> Observer::device_warnings(Time now) const {
  std::vector<Warning> all;
  if (auto unread = unread_warning(now)) all.push_back(std::move(*unread));
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (auto warning = device_warning(uuid, device, engine_.rules().max_age, now)) all.push_back(std::move(*warning));
  }
  return all;
}

std::vector<Warning> Observer::lease_warnings(Time now) const {
  std::vector<Warning> all;
  for (const auto& [id, bytes] : swapped_) {
    if (const core::Lease* lease = core::find(state_, id)) all.push_back(swapped_warning(*lease, now));
  }
  for (const auto& [id, uuid] : over_) {
    const core::Lease* lease = core::find(state_, id);
    const auto device = state_.devices.by_uuid.find(uuid);
    if (lease == nullptr || device == state_.devices.by_uuid.end()) continue;
    if (explain::over_size(state_, *lease, uuid) > Bytes{}) all.push_back(over_warning(*lease, device->second, now));
  }
  for (const LeaseId id : state_.pauses.away) {
    const core::Lease& lease = *core::find(state_, id);
    if (lease.state == core::LeaseState::poisoned) all.push_back(poisoned_warning(state_, lease, now));
    if (!core::resume_failure(state_, id).empty()) all.push_back(not_back_warning(lease, now));
  }
  return all;
}

}  // namespace sublet::engine
