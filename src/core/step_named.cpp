// SPDX-License-Identifier: Apache-2.0
// The devices that waiting leases name: by any of their names, before the first reading, and after a device is gone.
#include "core/step_named.h"
#include "core/current_step.h"
#include "core/step_grant.h"
#include "state/format.h"
#include "state/reconfigured.h"
#include "state/tenant_rights.h"

#include <algorithm>

namespace sublet::core {

// True if none of them may turn out to have any size.
bool are_read(const Step& step, const std::vector<std::string>& uuids) {
  return std::ranges::all_of(uuids, [&step](const std::string& uuid) {
    const auto device = step.state.devices.by_uuid.find(uuid);
    return device != step.state.devices.by_uuid.end() && device->second.read_at;
  });
}

// Puts the lease into the queue, and has it looked at on the devices that it names.
void insert_waiter(Step& step, const Lease& lease) {
  step.state.queue.insert(lease, place_by_tenant(step.state, lease));
  step.state.devices.opened.insert(step.state.devices.opened.end(), lease.wanted_devices.begin(),
                                   lease.wanted_devices.end());
}

// The waiting leases that name the device, held back or not.
static std::vector<LeaseId> naming(const Step& step, const std::string& uuid) {
  std::vector<LeaseId> leases;
  for (const auto& [id, lease] : step.state.leases.by_id)
    if (lease.state == LeaseState::queued && std::ranges::count(lease.wanted_devices, uuid) > 0) leases.push_back(id);
  std::ranges::sort(leases);
  return leases;
}

// The lease names these devices in place of those before.
static void rename_wanted(Step& step, Lease& lease, std::vector<std::string> devices) {
  const bool waits = step.state.queue.contains(lease.id);
  if (waits) step.state.queue.erase(lease.id);
  lease.wanted_devices = std::move(devices);
  if (waits) insert_waiter(step, lease);
  step.state.preemption.preemptors = {};  // they stand where they stood, and want other devices
  note(step, "named");
  touch(step, lease);
}

// A device may be asked for by its name before any was read. The first reading says which one that is.
void adopt_named_devices(Step& step) {
  for (auto at = step.state.devices.by_uuid.begin(); at != step.state.devices.by_uuid.end();) {
    const Device* named = nullptr;
    if (!at->second.read_at && at->second.lost && at->second.leases.empty())
      for (const auto& [uuid, device] : step.state.devices.by_uuid)
        if (device.read_at && (name_of(device) == at->first || name_of(device) == "gpu" + at->first)) named = &device;
    if (named == nullptr) {
      ++at;
      continue;
    }
    for (const LeaseId id : naming(step, at->first)) {
      Lease& lease = *find(step, id);
      std::vector<std::string> devices = lease.wanted_devices;
      std::ranges::replace(devices, at->first, named->reading.uuid);
      devices = uuids_of(step.state, devices);
      if (std::ssize(devices) < lease.device_count) reject_as_hopeless(step, lease, args("present", devices.size()));
      else rename_wanted(step, lease, std::move(devices));
    }
    at = step.state.devices.by_uuid.erase(at);
  }
}

// Forgets the device, as if it had never been there. Leases that asked for it by name are told, or wait for the others
// that they named. Leases that only it could serve count as hopeless.
void forget(Step& step, const std::string& uuid) {
  const Device& device = step.state.devices.by_uuid.at(uuid);
  const std::string gone = device.read_at ? gone_text(device, step.now) : "there is no device '" + uuid + "'";
  forget_device(step.state, uuid);
  step.state.preemption.stale = true;  // nothing is made there any more, and nobody's turn comes
  const std::string known = list_devices(step.state);
  for (const LeaseId id : naming(step, uuid)) {
    Lease& lease = *find(step, id);
    std::vector<std::string> others = lease.wanted_devices;
    std::erase(others, uuid);
    if (std::ssize(others) < lease.device_count) reject_as_hopeless(step, lease, args("gone", gone, "known", known));
    else rename_wanted(step, lease, std::move(others));
  }
}

}  // namespace sublet::core
