// SPDX-License-Identifier: Apache-2.0
#include "core/blocked.h"

#include "base/size_bounds.h"
#include "core/format.h"

#include <algorithm>

namespace sublet::core {
namespace {

constexpr std::size_t unleased_kept = 8;
constexpr std::size_t unleased_named = 3;
// What programs that are parked leave on a device, and what was allocated while it was read, is nobody's to be told.
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

std::string text_of(const UnleasedProcess& unleased) {
  if (!unleased.process) return "no listed process";
  return "pid " + std::to_string(unleased.process.pid) + " (" + (unleased.name.empty() ? "" : unleased.name + ", ") +
         "without a lease)";
}

std::string sentence(const Blocked& blocked, const Lease& lease, const Device& device, Bytes free) {
  std::string who;
  for (std::size_t i = 0; i < blocked.unleased_processes.size() && i < unleased_named; ++i)
    who += (i == 0 ? "" : ", ") + text_of(blocked.unleased_processes[i]) + " holds " +
           format_size(blocked.unleased_processes[i].bytes);
  std::string text = std::string(to_string(blocked.code)) + ": " + who + " on " + name_of(device) + ", where it ";
  if (lease.state == LeaseState::resuming)
    return text + "has its " + format_size(lease.vram) + " only in the table; nothing is restored before they are free";
  text += need_text(lease) + " and " + format_size_down(std::max(free, Bytes{})) + " is free";
  if (blocked.code == Code::ResumeBlocked) text += "; nothing is tried before that, and then it comes back by itself";
  return text;
}

// Whether it is wanted back or not: where it was is gone.
Blocked blocked_by_loss(const Device& device, const Rules& rules, const Lease& lease, Time now) {
  const bool comes =
      lease.state == LeaseState::pausing || lease.state == LeaseState::resuming || lease.parking->resume_requested;
  std::string then = comes ? "comes back by itself" : "can come back";
  if (lease.state == LeaseState::poisoned) then = "is kept";
  return {Code::ResumeBlocked,
          {},
          std::string(to_string(Code::ResumeBlocked)) + ": " + gone_text(device, now) +
              "; its program stays as it is, and " + then +
              (lease.state == LeaseState::poisoned ? " for " : " once it is there again; after ") +
              format_duration(rules.forget_after) + " without it, if another card is left, its lease ends"};
}

}  // namespace

std::optional<Blocked> what_blocks(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (const Device* gone = lease.parking ? state.given_up(lease, rules, now) : nullptr)
    return blocked_by_loss(*gone, rules, lease, now);
  const bool returns = lease.state == LeaseState::resuming && state.lacks_room(lease.id);
  if (!returns && !state.queue().contains(lease.id)) return std::nullopt;
  Blocked blocked;
  if (lease.parking) blocked.code = Code::ResumeBlocked;
  const auto look_at = [&](const Device& device, Bytes need) {
    const Bytes free = state.effective_free(device, rules, now);
    if (free >= need || free + device.other < need || !state.known(device, rules, now)) return false;
    blocked.unleased_processes = unleased_on(device);
    if (blocked.unleased_processes.empty()) return false;
    blocked.text = sentence(blocked, lease, device, free);
    return true;
  };
  if (!lease.parking) {
    const Nearest nearest = nearest_device(state, rules, lease, now);
    if (nearest.device == nullptr) return std::nullopt;
    if (!look_at(*nearest.device, state.need(lease, nearest.device->reading.uuid))) return std::nullopt;
    return blocked;
  }
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices().find(uuid);
    if (device == state.devices().end()) continue;
    if (look_at(device->second, returns ? Bytes{} : state.need(lease, uuid))) return blocked;
  }
  return std::nullopt;
}

}  // namespace sublet::core
