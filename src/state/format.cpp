// SPDX-License-Identifier: Apache-2.0
#include "state/format.h"

#include "base/size_bounds.h"
#include "lease/stack_lease.h"
#include "state/nominations.h"
#include "state/reconfigured.h"

#include <algorithm>
#include <climits>

namespace sublet::core {
std::string name_of(const Device& device) { return device.read_at ? device.reading.id() : device.reading.uuid; }

std::string name_of(const Lease& lease) {
  std::string inside = lease.tag.empty() ? lease.consumer : lease.tag;
  if (!lease.user.empty()) inside += (inside.empty() ? "" : ", ") + lease.user;
  return to_string(lease.id) + (inside.empty() ? "" : " (" + inside + ")");
}

std::string list_devices(const State& state) {
  std::vector<const Device*> devices;
  for (const auto& [uuid, device] : state.devices.by_uuid) devices.push_back(&device);
  std::stable_sort(devices.begin(), devices.end(),
                   [](const Device* a, const Device* b) { return a->reading.order() < b->reading.order(); });
  std::string text;
  for (const Device* device : devices) {
    if (!text.empty()) text += ", ";
    text += name_of(*device);
    if (!device->read_at) continue;
    const DeviceReading& reading = device->reading;
    text += " (" + reading.name + ", " + format_size(reading.total) + ", " + reading.uuid + ")";
  }
  return text.empty() ? "none" : text;
}

std::string capacity_text(const Device& device, const Rules& rules) {
  return format_size_down(capacity_of(device, rules)) + " of " + format_size(device.reading.total) + " on " +
         name_of(device) + " (the driver keeps " + format_size(device.reading.driver_reserved) + ", " +
         format_size(rules.headroom) + " is headroom" +
         (device.reading.unified ? ", " + format_size(device.reading.for_system) + " is for the system)" : ")");
}

std::string gone_text(const Device& device, Time now) {
  std::string text = name_of(device);
  if (device.read_at) text += " (" + device.reading.uuid + ")";
  text += " has been gone for " + format_duration(device.missing_since ? now - *device.missing_since : Duration{});
  return text + ": " + device.problem;
}

std::string hopeless_text(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (lease.waits_in_place() || state.devices.by_free.size() == state.devices.by_uuid.size()) return {};
  int there = 0;
  int gone = 0;
  const Device* roomiest = nullptr;  // of those that are there
  std::string missing;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!may_use(lease, uuid)) continue;
    if (!device.read_at) return {};  // may turn out to be anything
    const bool fits = capacity_of(device, rules) >= lease.least();
    if (device.lost) {
      if (fits && ++gone <= 3) missing += (missing.empty() ? "" : "; ") + gone_text(device, now);
      continue;
    }
    there += fits;
    if (roomiest == nullptr || capacity_of(device, rules) > capacity_of(*roomiest, rules)) roomiest = &device;
  }
  if (there >= lease.device_count || there + gone < lease.device_count) return {};
  if (gone > 3) missing += "; and " + std::to_string(gone - 3) + " more";
  if (roomiest == nullptr) return missing;
  if (there > 0) return missing + "; only " + std::to_string(there) + " of the others can hold it";
  return missing + "; no other can hold it: the most is " + format_size_down(capacity_of(*roomiest, rules)) + " on " +
         name_of(*roomiest);
}

std::string out_of_service_text(const State& state, const Rules& rules, const Lease& lease) {
  constexpr int named = 3;
  int count = 0;
  std::string text;
  if (state.devices.out_of_service.empty()) return text;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    const std::string* closed = closed_by(state, uuid);
    if (closed == nullptr || !device.read_at) continue;
    const bool waits_there = lease.waits_in_place() && std::ranges::count(lease.devices, uuid) > 0;
    const bool serves = may_use(lease, uuid) && capacity_of(device, rules) >= lease.least();
    if (!(lease.waits_in_place() ? waits_there : serves) || ++count > named) continue;
    const std::string& why = state.devices.out_of_service.find(*closed)->second;
    text += (text.empty() ? "" : "; ") + name_of(device) + " is out of service (" + why + ")";
  }
  return count > named ? text + "; and " + std::to_string(count - named) + " more" : text;
}

std::string unknown_text(const State& state, const Device& device, const Rules& rules, Time now) {
  if (is_known(state, device, rules, now)) return {};
  if (device.lost) return gone_text(device, now);
  if (!device.problem.empty()) return name_of(device) + ": " + device.problem;
  if (!device.read_at) return name_of(device) + " was not read yet";
  const Duration age = now - *device.read_at;
  return name_of(device) + " was last read " + format_duration(age) + " ago" +
         (age > rules.max_age ? ", more than the " + format_duration(rules.max_age) + " that a reading is trusted for"
                              : ", and cannot be read now") +
         (state.devices.snapshot_problem.empty() ? "" : " (" + state.devices.snapshot_problem + ")");
}

std::vector<std::string> device_names(const State& state, const std::vector<std::string>& uuids) {
  std::vector<std::string> names;
  names.reserve(uuids.size());
  for (const std::string& uuid : uuids) {
    const auto device = state.devices.by_uuid.find(uuid);
    names.push_back(device == state.devices.by_uuid.end() ? uuid : name_of(device->second));
  }
  return names;
}

std::string names_of_devices(const State& state, const std::vector<std::string>& uuids) {
  return text_of_fragment("devices", args("devices", device_names(state, uuids)));
}

bool is_admins(const PreemptionRequest& preemption_request, const Lease& lease) {
  return preemption_request.any_user && preemption_request.uid != lease.uid;
}

std::string requester_text(const PreemptionRequest& preemption_request, const Lease& lease) {
  return is_admins(preemption_request, lease) ? "an admin" : "its owner";
}

std::string on_devices(const State& state, const Lease& lease) {
  return text_of_fragment("on_devices", args("devices", device_names(state, lease.devices)));
}

ReasonArgs need_args(const State& state, const Lease& lease) {
  ReasonArgs all = args("vram", lease.wanted_vram());
  const std::size_t devices =
      lease.waits_in_place() ? lease.devices.size() : static_cast<std::size_t>(lease.device_count);
  if (lease.resize) all.add("has", lease.vram);
  if (!lease.waits_in_place() && lease.least() < lease.vram) all.add("min", lease.least());
  if (devices > 1) all.add("devices_each", devices);
  if (!lease.waits_in_place() && lease.wanted_devices.size() > 1)
    all.add(devices > 1 ? "among" : "one_of", device_names(state, sort_by_index(state, lease.wanted_devices)));
  return all;
}

std::string need_text(const State& state, const Lease& lease) {
  return text_of_fragment("need", need_args(state, lease));
}

ReasonArgs asked_args(const Lease& lease) {
  ReasonArgs all = args("asked", lease.wanted_vram());
  const std::size_t devices =
      lease.waits_in_place() ? lease.devices.size() : static_cast<std::size_t>(lease.device_count);
  if (lease.resize) all.add("asked_from", lease.vram);
  if (devices > 1) all.add("asked_devices", devices);
  return all;
}

ReasonArgs capacity_args(const Device& device, const Rules& rules) {
  ReasonArgs all = args("most", capacity_of(device, rules), "total", device.reading.total, "device", name_of(device),
                        "driver_keeps", device.reading.driver_reserved, "headroom", rules.headroom);
  if (device.reading.unified) all.add("system", device.reading.for_system);
  return all;
}

bool holds(const std::vector<LeaseId>& leases, LeaseId lease) {
  return std::find(leases.begin(), leases.end(), lease) != leases.end();
}

Nearest nearest_device(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const auto known = [&](const std::string& uuid) -> const Device* {
    const auto device = state.devices.by_uuid.find(uuid);
    return device != state.devices.by_uuid.end() && may_grant_on(state, device->second, rules, now) ? &device->second
                                                                                                    : nullptr;
  };
  Nearest nearest;
  if (lease.waits_in_place()) {
    for (const std::string& uuid : lease.devices) {
      const Device* device = known(uuid);
      if (device == nullptr) return {};
      const Bytes free = free_on(state, *device, rules, now);
      if (nearest.device == nullptr ||
          free - need_on(state, lease, uuid) < nearest.free - need_on(state, lease, nearest.device->reading.uuid))
        nearest = {device, free};
    }
    return nearest;
  }
  // A device with too little capacity for the lease is never the nearest, however much of it is free.
  const auto serves = [&](const std::string& uuid) -> const Device* {
    const Device* device = may_use(lease, uuid) ? known(uuid) : nullptr;
    return device != nullptr && capacity_of(*device, rules) >= lease.least() ? device : nullptr;
  };
  int wanted = lease.device_count;
  for (auto room = state.devices.by_free.rbegin(); room != state.devices.by_free.rend(); ++room) {
    if (serves(room->device) == nullptr || --wanted > 0) continue;
    // Among devices with the same free memory, the first in the order of devices.
    auto first = state.devices.by_free.lower_bound(DeviceFree{room->free, INT_MIN, {}, 0});
    while (serves(first->device) == nullptr) ++first;
    return {serves(first->device), room->free};
  }
  return nearest;
}

std::vector<Holder> holders_of(const State& state, const Device& device, const Lease& asking, std::size_t limit) {
  std::vector<Holder> holders;
  for (const ChargedLease& entry : device.by_charge) {
    if (holders.size() == limit || entry.charged <= Bytes{}) break;
    const Lease& lease = *find(state, entry.lease);
    if (lease.id == asking.id) continue;
    holders.push_back(
        {lease.id, name_of(lease) + (lease.ended() ? ", ended and not yet measured gone" : ""), entry.charged});
  }
  if (device.other > Bytes{}) {
    std::vector<Holder> outside;
    for (const ProcessUse& use : device.reading.processes) {
      const Lease* lease = find(state, use.lease);
      const bool leased = lease != nullptr && device.leases.contains(use.lease);
      if (leased || use.used.value_or(Bytes{}) <= Bytes{}) continue;
      const std::string name = use.name.empty() ? "" : use.name + ", ";
      const bool stray = lease != nullptr && !lease->ended();
      const std::string whose =
          stray ? "of " + name_of(*lease) + ", which has not leased " + name_of(device) : "without a lease";
      outside.push_back({{}, "pid " + std::to_string(use.process.pid) + " (" + name + whose + ")", *use.used});
    }
    if (device.other > device.unleased)
      outside.push_back({{}, "bytes of no listed process", device.other - device.unleased});
    holders.insert(holders.end(), outside.begin(), outside.end());
  }
  std::stable_sort(holders.begin(), holders.end(), [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
  if (holders.size() > limit) holders.resize(limit);
  return holders;
}

namespace {

// Why nothing is known to be free for the lease.
std::string unknown_free_text(const State& state, const Rules& rules, const Lease& lease, Time now) {
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!may_use(lease, uuid)) continue;
    if (std::string unknown = unknown_text(state, device, rules, now); !unknown.empty()) return unknown;
  }
  return state.devices.snapshot_problem.empty() ? "no device was read yet" : state.devices.snapshot_problem;
}

std::vector<ReasonPart> parts_of(std::vector<Holder> holders) {
  std::vector<ReasonPart> parts;
  parts.reserve(holders.size());
  for (Holder& holder : holders) parts.push_back({std::move(holder.what), holder.bytes});
  return parts;
}

}  // namespace

ReasonArgs shortage_args(const State& state, const Rules& rules, const Lease& lease, Time now) {
  ReasonArgs all = need_args(state, lease);
  if (const Bytes beyond = beyond_size(state, lease); beyond > Bytes{}) all.add("beyond", beyond);
  if (std::string hopeless = hopeless_text(state, rules, lease, now); !hopeless.empty()) {
    all.add("no_device", std::move(hopeless));
    return all;
  }
  const Nearest nearest = nearest_device(state, rules, lease, now);
  std::string closed = out_of_service_text(state, rules, lease);
  if (nearest.device == nullptr) {
    if (closed.empty()) all.add("unknown", unknown_free_text(state, rules, lease, now));
    all.add("closed", std::move(closed));
    return all;
  }
  if (nearest.free < Bytes{}) all.add(args("full_device", name_of(*nearest.device), "over", Bytes{} - nearest.free));
  else all.add(args("free", nearest.free, "device", name_of(*nearest.device)));
  // Both figures are rounded down, and may then look the same.
  const Bytes need = need_on(state, lease, nearest.device->reading.uuid);
  if (nearest.free >= Bytes{} && nearest.free < need && format_size_down(need) == format_size_down(nearest.free))
    all.add("lacks", need - nearest.free);
  all.add("problem", nearest.device->problem);
  all.add("holders", parts_of(holders_of(state, *nearest.device, lease, 3)));
  if (nearest.free >= need) all.add(reserved_args(state, rules, lease, now));
  all.add("closed", std::move(closed));
  return all;
}

Numbers shortage_numbers(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const Bytes asked = lease.resize ? lease.resize->vram : lease.least();
  const Nearest nearest = nearest_device(state, rules, lease, now);
  if (nearest.device == nullptr) return {{"asked_bytes", asked.count}};
  const Bytes lacking = need_on(state, lease, nearest.device->reading.uuid) - nearest.free;
  return {{"asked_bytes", asked.count},
          {"free_bytes", std::max(nearest.free, Bytes{}).count},
          {"short_bytes", std::max(lacking, Bytes{}).count}};
}

Numbers size_numbers(Bytes asked, Bytes most) { return {{"asked_bytes", asked.count}, {"most_bytes", most.count}}; }

std::string shortage_text(const State& state, const Rules& rules, const Lease& lease, Time now) {
  return text_of_fragment("shortage", shortage_args(state, rules, lease, now));
}

std::string end_command(const State& state, const Lease& lease) {
  if (const auto stack = stack_of(lease); !stack.empty())
    return "`sublet stack release " + std::string(stack) + " --down`";
  const bool ours = lease.owner.kind != OwnerKind::process || lease.owner.keeper;
  if (ours || (!lease.parking && use_of(state, lease.id).used <= Bytes{}))
    return "`sublet stop " + to_string(lease.id) + "`";
  return (lease.parking ? "`kill -KILL " : "`kill ") + std::to_string(lease.owner.process.pid) + "`";
}

std::string back_hint(const State& state, const Lease& lease) {
  if (lease.state == LeaseState::poisoned) return end_command(state, lease) + " ends it: it can never run again";
  return lease.parked() ? "`sublet resume " + to_string(lease.id) + "` queues the lease for its resume" : "";
}

std::string safe_mode_text(const SafeMode& safe) {
  return "the daemon is in safe mode until " + format_rfc3339(safe.until) + ": " + safe.why;
}

std::string safe_mode_hint(const SafeMode& safe) {
  return "try again after " + format_rfc3339(safe.until) +
         ", or restart the daemon (`systemctl restart subletd`), which ends safe mode at once; report the bug with the "
         "daemon's log";
}

ReasonArgs reserved_args(const State& state, const Rules& rules, const Lease& lease, Time now) {
  const Nominations held(state, rules, now);
  const Nominations::Entry* before = nomination_before(state, rules, lease, held, now);
  return before == nullptr ? ReasonArgs() : nomination_args(state, held, *before, now);
}

std::string unverified_text(const State& state, const Rules& rules, const Lease& lease, Time now) {
  constexpr Duration moment = std::chrono::seconds(1);  // a busy card is read several times in it
  const auto since = yield_time_of(state, lease.id);
  if (!since || now - *since < moment) return {};
  for (const std::string& uuid : lease.devices) {
    const Device& device = state.devices.by_uuid.at(uuid);
    if (std::string unknown = unknown_text(state, device, rules, now); !unknown.empty()) return unknown;
    if (now - *device.read_at > moment)
      return name_of(device) + " was last read " + format_duration(now - *device.read_at) + " ago" +
             (state.devices.snapshot_problem.empty() ? "" : " (" + state.devices.snapshot_problem + ")");
    if (charge_on(state, lease.id, uuid).untold)
      return name_of(device) + " lists a process of it without the bytes that it holds";
  }
  const Bytes unlisted = unlisted_since_asked(state, lease);
  if (unlisted <= reading_slack) return {};
  return format_size(unlisted) + " more than before it was asked are used" + on_devices(state, lease) +
         " by no listed process";
}

}  // namespace sublet::core
