// SPDX-License-Identifier: Apache-2.0
#include "state/blocked.h"

#include "base/size_bounds.h"
#include "state/format.h"

#include <algorithm>

namespace sublet::core {
namespace {

constexpr std::size_t unleased_kept = 8;
constexpr std::size_t unleased_named = 3;
// Bytes that parked programs leave on a device, and bytes allocated during a reading, are not reported.
constexpr Bytes slack = 64 * MiB;

std::vector<UnleasedProcess> unleased_on(const Device& device) {
  std::vector<UnleasedProcess> all;
  for (const ProcessUse& use : device.reading.processes) {
    if (device.leases.contains(use.lease) || use.used.value_or(Bytes{}) <= Bytes{}) continue;
    all.push_back({use.process, use.name, device.reading.uuid, *use.used});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const UnleasedProcess& a, const UnleasedProcess& b) { return a.bytes > b.bytes; });
  if (all.size() > unleased_kept) all.resize(unleased_kept);
  // Bytes of no listed process alone are no unleased process yet: those who end are off the list before their bytes are
  // gone.
  if (!all.empty() && device.other > device.unleased + slack)
    all.push_back({{}, {}, device.reading.uuid, device.other - device.unleased});
  return all;
}

std::string name_of(const State& state, const Device& device, const UnleasedProcess& unleased) {
  if (!unleased.process) return "no listed process";
  std::string whose = "without a lease";
  for (const ProcessUse& use : device.reading.processes) {
    const Lease* lease = use.process == unleased.process ? find(state, use.lease) : nullptr;
    if (lease != nullptr && !lease->ended())
      whose = "of " + name_of(*lease) + ", which has not leased " + name_of(device);
  }
  return "pid " + std::to_string(unleased.process.pid) + " (" + (unleased.name.empty() ? "" : unleased.name + ", ") +
         whose + ")";
}

void explain(Blocked& blocked, ReasonKind kind, ReasonArgs args) {
  blocked.kind = kind;
  args.add("problem", to_string(blocked.code));
  blocked.args = std::move(args);
  blocked.text = text_of(Reason{{}, {}, kind, blocked.args});
}

void explain_processes(Blocked& blocked, const State& state, const Lease& lease, const Device& device, Bytes free) {
  std::vector<ReasonPart> processes;
  for (std::size_t i = 0; i < blocked.unleased_processes.size() && i < unleased_named; ++i)
    processes.push_back({name_of(state, device, blocked.unleased_processes[i]), blocked.unleased_processes[i].bytes});
  ReasonArgs why = args("processes", std::move(processes), "device", name_of(device));
  const bool restores = lease.state == LeaseState::resuming;
  why.add("needs", restores ? "restore" : blocked.code == Code::ResumeBlocked ? "return" : "memory");
  why.add(need_args(state, lease));
  if (!restores) why.add("free", std::max(free, Bytes{}));
  explain(blocked, ReasonKind::blocked_by_processes, std::move(why));
}

// Whether it is to resume or not: its device is gone.
Blocked blocked_by_loss(const Device& device, const Rules& rules, const Lease& lease, Time now) {
  const bool comes =
      lease.state == LeaseState::pausing || lease.state == LeaseState::resuming || lease.parking->resume_requested;
  const bool never = lease.state == LeaseState::poisoned;
  Blocked blocked;
  blocked.code = Code::ResumeBlocked;
  explain(blocked, ReasonKind::blocked_by_missing_device,
          args("gone", gone_text(device, now), "will_resume", comes && !never, "may_resume", !comes && !never,
               "forget_after", rules.forget_after));
  return blocked;
}

}  // namespace

std::optional<Blocked> what_blocks(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (const Device* gone = lease.parking ? given_up_device(state, lease, rules, now) : nullptr)
    return blocked_by_loss(*gone, rules, lease, now);
  const bool returns = lease.state == LeaseState::resuming && lacks_memory(state, lease.id);
  if (!returns && !state.queue.contains(lease.id)) return std::nullopt;
  Blocked blocked;
  if (lease.parking) blocked.code = Code::ResumeBlocked;
  const auto look_at = [&](const Device& device, Bytes need) {
    const Bytes free = free_on(state, device, rules, now);
    if (free >= need || free + device.other < need || !may_grant_on(state, device, rules, now)) return false;
    blocked.unleased_processes = unleased_on(device);
    if (blocked.unleased_processes.empty()) return false;
    explain_processes(blocked, state, lease, device, free);
    return true;
  };
  if (!lease.parking) {
    const Nearest nearest = nearest_device(state, rules, lease, now);
    if (nearest.device == nullptr) return std::nullopt;
    if (!look_at(*nearest.device, need_on(state, lease, nearest.device->reading.uuid))) return std::nullopt;
    return blocked;
  }
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end()) continue;
    if (look_at(device->second, returns ? Bytes{} : need_on(state, lease, uuid))) return blocked;
  }
  return std::nullopt;
}

}  // namespace sublet::core
