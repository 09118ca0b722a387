// SPDX-License-Identifier: Apache-2.0
// Readings of the devices: which are believed, which lease is charged, and which bytes are measured gone by them.
#include "core/step_snapshot.h"
#include "core/current_step.h"
#include "core/step_end.h"
#include "core/step_grant.h"
#include "core/step_method.h"
#include "core/step_named.h"
#include "core/step_pause.h"
#include "core/step_resume.h"
#include "core/step_verify.h"
#include "state/reconfigured.h"

#include "base/mutants.h"
#include "state/format.h"
#include "state/methods.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace sublet::core {
namespace {

// No card has this much; a larger figure is an error of the driver, and would let sums overflow.
constexpr Bytes largest_device{std::int64_t{1} << 50};

bool within(Bytes bytes, Bytes most) { return bytes >= Bytes{} && bytes <= most; }

}  // namespace

static void look_for_others(Step& step, const Snapshot& fact, const std::map<std::string_view, int>& seen);
static void read_device(Step& step, const DeviceReading& reading, Time began, bool twice);
static std::string implausible(const Step& step, const Device& device, const DeviceReading& reading);
static Bytes arrived(const Step& step, const Device& device, const DeviceReading& reading);
static void accept(Step& step, Device& device, const DeviceReading& reading, Time began);
static Bytes kept_by_driver(const Step& step, const Device& device, const DeviceReading& reading);
static void note_hidden(Step& step, const Device& device, const DeviceReading& reading, Bytes unlisted);
static bool shows_the_end(const Step& step, const Lease& lease, Time began);
static void settle_measured(Step& step, Device& device);
static void miss_device(Step& step, Device& device, const std::string& problem);
static void give_up_missing(Step& step);
static bool waits_for_card(Step& step, Lease& lease, const Device& device, bool over);
static void end_with(Step& step, Lease& lease, const Device& device);

Result<LeaseId> on(Step& step, const SnapshotFailed& fact) {
  step.state.devices.snapshot_problem = fact.problem.empty() ? "no snapshot could be had" : fact.problem;
  for (auto& [uuid, device] : step.state.devices.by_uuid) mark_moved(step.state, device);
  return LeaseId{};
}

Result<LeaseId> on(Step& step, const Snapshot& fact) {
  if (fact.began < step.state.devices.snapshot_began) return LeaseId{};  // overtaken by a newer one
  if (fact.began > step.now) return on(step, SnapshotFailed{"a snapshot claims to have begun in the future"});
  step.state.devices.snapshot_began = fact.began;
  step.state.host.memory = fact.host;
  if (fact.devices.empty() && fact.unnamed.empty() && fact.lost.empty()) {
    // One card that fell off the bus looks the same as a driver that lists nothing: unknown, nothing is
    // forgotten.
    for (auto& [uuid, device] : step.state.devices.by_uuid) {
      device.problem = "the driver lists no device at all";
      mark_moved(step.state, device);
    }
    return on(step, SnapshotFailed{"the driver lists no device at all"});
  }
  step.state.devices.snapshot_problem.clear();
  std::map<std::string_view, int> seen;
  for (const DeviceReading& reading : fact.devices) ++seen[reading.uuid];
  for (const DeviceReading& reading : fact.devices) read_device(step, reading, fact.began, seen[reading.uuid] > 1);
  if (!fact.partial) look_for_others(step, fact, seen);
  verify_yielding(step, fact.began);
  note_relapses(step, std::exchange(step.relapsing, {}));
  return LeaseId{};
}

// Devices that the driver does not list, and devices that are new or another part of a card than before.
static void look_for_others(Step& step, const Snapshot& fact, const std::map<std::string_view, int>& seen) {
  for (auto& [uuid, device] : step.state.devices.by_uuid) {
    if (seen.contains(uuid)) continue;
    if (!fact.unnamed.empty()) device.problem = "the driver does not tell which card is which: " + fact.unnamed;
    else if (const DeviceReading* card = unread_card(device, fact.devices)) device.problem = card->problem;
    else miss_device(step, device, fact.lost);
    mark_moved(step.state, device);
  }
  adopt_named_devices(step);
  give_up_missing(step);
  reject_hopeless(step);
  if (step.state.devices.by_uuid.empty()) {
    for (const DeviceReading& reading : fact.devices) step.state.devices.snapshot_problem = reading.problem;
    if (!fact.lost.empty()) step.state.devices.snapshot_problem = fact.lost;
  }
}

// -------------------------------------------------------------------------------- one device

static void read_device(Step& step, const DeviceReading& reading, Time began, bool twice) {
  // A lost one that is not known, or not any more, is no device of this machine until it is back.
  if (reading.lost && !step.state.devices.by_uuid.contains(reading.uuid)) return;
  Device& device = device_entry(step.state, reading.uuid);
  if (reading.lost) return miss_device(step, device, reading.problem);
  device.lost = false;
  device.missing = 0;
  device.missing_since.reset();
  device.problem = twice ? "implausible: the driver lists it twice" : implausible(step, device, reading);
  if (device.problem.empty()) device.problem = reading_conflict(step.state, reading, step.rules, step.now);
  if (device.problem.empty()) accept(step, device, reading, began);
  mark_moved(step.state, device);
}

// Why the reading is not believed; "" if it is.
static std::string implausible(const Step& step, const Device& device, const DeviceReading& reading) {
  if (!reading.problem.empty()) return reading.problem;
  if (reading.total <= Bytes{} || reading.total > largest_device)
    return "implausible: a total of " + std::to_string(reading.total.count) + " bytes";
  if (!within(reading.driver_reserved, reading.total) || !within(reading.used, reading.total - reading.driver_reserved))
    return "implausible: " + std::to_string(reading.used.count) + " bytes used and " +
           std::to_string(reading.driver_reserved.count) + " kept by the driver, of " + format_size(reading.total);
  Bytes listed;
  for (const ProcessUse& use : reading.processes) {
    const Bytes used = use.used.value_or(Bytes{});
    if (!within(used, reading.total))
      return "implausible: pid " + std::to_string(use.process.pid) + " is said to use " + std::to_string(used.count) +
             " bytes";
    listed += used;
    if (listed > reading.total)
      return "implausible: the listed processes use more than the " + format_size(reading.total) + " there are";
  }
  // On a unified device the whole machine uses the memory, and no list tells by whom.
  if (!reading.processes.empty() || reading.unified) return {};
  // Half is our choice: what no process holds is the driver's own and what parked processes keep, megabytes each. Bytes
  // that nobody is listed for are charged to nobody below that, and make the list unbelievable above.
  const Bytes used = reading.used - arrived(step, device, reading);
  if (used.count > reading.total.count / 2)
    return format_size(used) + " of " + format_size(reading.total) +
           " are used and no process is listed: the list cannot be complete";
  // Leases whose programs run had bytes a moment ago, the list is empty, and the bytes are still taken: the
  // list lies.
  if (!device.read_at) return {};
  Bytes live;
  for (const LeaseId id : device.leases)
    if (!step.state.leases.by_id.at(id).ended()) live += charge_on(step.state, id, reading.uuid).used;
  const Bytes hidden = std::max(device.reading.used - device.leased_used - device.unleased, Bytes{});
  if (live > reading_slack && used - hidden > std::max(reading_slack, Bytes{live.count / 2}))
    return "implausible: no process is listed and " + format_size(used) + " is used, " + format_size(live) +
           " of it by running leases a moment ago";
  return {};
}

// The driver may list a process that it restores only once the process has all of its bytes. New bytes beyond those of
// listed processes belong to resuming leases, as far as these are to have more. Bytes that only left the list do not,
// because they belong to ending processes.
static Bytes arrived(const Step& step, const Device& device, const DeviceReading& reading) {
  std::map<LeaseId, Bytes> back;  // what is listed of those who come back
  for (const LeaseId id : device.leases) {
    const Lease& lease = step.state.leases.by_id.at(id);
    if (lease.state == LeaseState::resuming && lease.parking->method == PauseMethod::driver) back[id];
  }
  if (back.empty() || !device.read_at) return {};
  std::map<ProcessRef, Bytes> before;
  for (const ProcessUse& use : device.reading.processes) before[use.process] += use.used.value_or(Bytes{});
  Bytes grew = reading.used - device.reading.used, own, listed;
  for (const ProcessUse& use : reading.processes) {
    listed += use.used.value_or(Bytes{});
    const Bytes more = std::max(use.used.value_or(Bytes{}) - before[use.process], Bytes{});
    grew -= more;
    const auto its = back.find(use.lease);
    if (its == back.end()) continue;
    its->second += use.used.value_or(Bytes{});
    own += more;
  }
  Bytes to_come;
  for (const auto& [id, its] : back) {
    const Lease& lease = step.state.leases.by_id.at(id);
    const Bytes all = std::min(lease.vram, to_restore(step.state, lease, device.reading.uuid).all);
    to_come += std::max(all - std::max(lease.kept_unseen(), its), Bytes{});
  }
  const Bytes most = std::min(to_come, std::max(reading.used - listed, Bytes{}));
  return std::clamp(device.arrived + std::max(grew, Bytes{} - own), Bytes{}, most);
}

static void accept(Step& step, Device& device, const DeviceReading& reading, Time began) {
  std::unordered_map<LeaseId, Charge> seen;
  std::map<ProcessRef, Bytes> without_lease;
  Bytes unleased, all;
  device.strays.clear();
  for (const ProcessUse& use : reading.processes) {
    const Bytes used = use.used.value_or(Bytes{});
    all += used;
    if (!device.leases.contains(use.lease)) {
      unleased += used;
      without_lease[use.process] += used;
      if (!use.lease) continue;
      StrayUse& stray = device.strays[use.lease];
      stray.used += used;
      if (!use.graphics_only) stray.computing += used;
      continue;
    }
    Charge& of_lease = seen[use.lease];
    of_lease.used += use.used.value_or(Bytes{});
    of_lease.untold |= !use.used;
    ++of_lease.processes;
  }
  device.arrived = arrived(step, device, reading);
  const Bytes unlisted =
      reading.unified ? Bytes{}
                      : std::max(reading.used - all - kept_by_driver(step, device, reading) - device.arrived, Bytes{});
  if (device.read_at) note_hidden(step, device, reading, unlisted);
  device.unlisted = unlisted;
  if (reading.link_per_second != device.reading.link_per_second)
    step.state.learned.costs.know_link(reading.uuid, reading.link_per_second);
  const bool resized = reading.total != device.reading.total;
  if (resized) charge_device(step.state, device, -1);
  device.reading = reading;
  if (reading.unified) step.state.devices.unified.insert(reading.uuid);
  else step.state.devices.unified.erase(reading.uuid);
  if (resized) charge_device(step.state, device, 1);
  device.read_at = began;
  device.unleased = unleased;
  const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
  for (const LeaseId id : here) {
    Lease& lease = step.state.leases.by_id.at(id);
    const auto listed = seen.find(id);
    const Charge now = listed == seen.end() ? Charge{} : listed->second;
    measure(step.state, lease, device, now, shows_the_end(step, lease, began) || mutant(Mutant::any_reading_settles));
    lease.peak_used = std::max(lease.peak_used, now.used);
    if (lease.state == LeaseState::paused && now.used > lease.parking->residue) step.relapsing.insert(id);
    if (lease.state == LeaseState::pausing && began < yield_time_of(step.state, id).value_or(Time::never()))
      look_at_unlisted(step, lease);
    if (lease.parking) step.may_be_blocked.push_back(id);
    if (listed != seen.end() && !lease.had_process) {
      lease.had_process = true;
      note(step, "booked");
      touch(step, lease);
    }
  }
  settle_measured(step, device);
  refresh_other(step.state, device);  // what is used there may have changed for no lease
  device.lasting.note(without_lease, device.other - unleased, began);
  for (const LeaseId id : device.leases)
    if (const Lease& lease = step.state.leases.by_id.at(id); lease.waits_in_place())
      requeue_in_place(step.state, lease);
}

// The bytes that the driver keeps of the processes that it parked, which no list shows meanwhile. Without them, many
// parked processes would look like hidden bytes.
static Bytes kept_by_driver(const Step& step, const Device& device, const DeviceReading& reading) {
  std::vector<const Lease*> away;
  for (const LeaseId id : device.leases)
    if (const Lease& lease = step.state.leases.by_id.at(id); lease.parking) away.push_back(&lease);
  if (away.empty()) return {};
  std::unordered_set<ProcessRef> listed;
  for (const ProcessUse& use : reading.processes) listed.insert(use.process);
  const auto is_parked = [&listed](ProcessRef process) { return !listed.contains(process); };
  std::int64_t parked = 0;
  for (const Lease* lease : away) {
    const auto& locked_processes = lease->parking->locked_processes;
    const auto& held_when_paused = lease->parking->held_when_paused;
    const auto locked = [&locked_processes](ProcessRef process) {
      return !locked_processes || std::ranges::find(*locked_processes, process) != locked_processes->end();
    };
    for (std::size_t i = 0; i < held_when_paused.size(); ++i) {
      if (lease->devices[i] != device.reading.uuid) continue;
      // Where nobody was measured before, any that was locked may have held something.
      if (held_when_paused[i].of.empty() && locked_processes)
        parked += std::ranges::count_if(*locked_processes, is_parked);
      for (const auto& [process, bytes] : held_when_paused[i].of) parked += locked(process) && is_parked(process);
    }
  }
  return parked * driver_keeps;
}

// Notes bytes that leave the list without leaving the device. They may be of processes that are just ending, or that
// the driver does not list for a while.
static void note_hidden(Step& step, const Device& device, const DeviceReading& reading, Bytes unlisted) {
  const Bytes grew = unlisted - device.unlisted;
  if (grew < Bytes{}) {
    for (const LeaseId id : device.leases) {
      Charge& charge = *charge_at(step.state, step.state.leases.by_id.at(id), device.reading.uuid);
      if (charge.hidden > Bytes{}) step.state.leases.runtime.at(id).used_until = step.now;
      charge.hidden = std::max(charge.hidden + grew, Bytes{});
    }
  }
  if (grew <= reading_slack) return;
  std::map<ProcessRef, Bytes> now;
  for (const ProcessUse& use : reading.processes) now[use.process] += use.used.value_or(Bytes{});
  std::map<LeaseId, Bytes> fell;
  for (const ProcessUse& use : device.reading.processes)
    if (device.leases.contains(use.lease))
      fell[use.lease] += std::max(use.used.value_or(Bytes{}) - now[use.process], Bytes{});
  for (const auto& [id, bytes] : fell) {
    if (bytes <= reading_slack) continue;
    charge_at(step.state, step.state.leases.by_id.at(id), device.reading.uuid)->hidden += std::min(bytes, grew);
  }
}

// Whether a reading that was begun then shows what is left of the lease, and nothing of it can become more.
static bool shows_the_end(const Step& step, const Lease& lease, Time began) {
  if (!lease.ended_at) return true;
  if (lease.kept_until) return false;  // its bytes stay charged for the next start of its program
  return !may_allocate(step, lease) &&
         began >= std::max(*lease.ended_at, step.state.leases.runtime.at(lease.id).gone_at);
}

static void settle_measured(Step& step, Device& device) {
  const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
  for (const LeaseId id : here) {
    const Charge& charge = charge_on(step.state, id, device.reading.uuid);
    if (!charge.settling || !charge.measured || charge.used > Bytes{} || charge.untold) continue;
    const Lease& lease = step.state.leases.by_id.at(id);
    unbook(step.state, lease, device);
    explain(step, lease, ReasonKind::settled, args("device", name_of(device), "after", step.now - *lease.ended_at));
    step.ended.push_back(id);
  }
}

// -------------------------------------------------------------------------------- missing ones

static void miss_device(Step& step, Device& device, const std::string& problem) {
  device.lost = true;
  device.problem = problem.empty() ? std::string(not_listed) : problem;
  mark_moved(step.state, device);
  ++device.missing;
  if (!device.missing_since) device.missing_since = step.now;
}

// If a device that was given up comes back, what its programs still hold is seen as used by others: nothing
// that is not charged any more could be promised twice.
static void give_up_missing(Step& step) {
  std::vector<std::string> forgotten;
  const bool any_left = std::any_of(step.state.devices.by_uuid.begin(), step.state.devices.by_uuid.end(),
                                    [](const auto& entry) { return entry.second.read_at && !entry.second.lost; });
  for (auto& [uuid, device] : step.state.devices.by_uuid) {
    if (!is_given_up(device, step.rules, step.now)) continue;
    // A missing device may have been removed for repair. While all devices are missing, the machine is being worked on.
    const bool over = any_left && step.now - *device.missing_since >= step.rules.forget_after;
    const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
    for (const LeaseId id : here) {
      Lease& lease = *find(step, id);
      if (lease.parking && waits_for_card(step, lease, device, over)) continue;
      if (!lease.ended()) end_with(step, lease, device);
      if (device.leases.contains(id)) unbook(step.state, lease, device);
      step.ended.push_back(id);
    }
    // The device is known by name only, and no lease had memory there: there is no such device.
    if (device.leases.empty() && (!device.read_at || over)) forgotten.push_back(uuid);
  }
  for (const std::string& uuid : forgotten) forget(step, uuid);
}

// Parked bytes are in host memory and are not lost with the card: the lease waits for the card until it is forgotten.
// Then a cooperative program is resumed, as far as the memory on its other cards is free, and its lease ends like a
// running one. The same holds if the lease is to end and nobody here can end its program. Only the lost card can bring
// back what the driver has parked.
static bool waits_for_card(Step& step, Lease& lease, const Device& device, bool over) {
  step.may_be_blocked.push_back(lease.id);
  const bool ends = lease.parking->then_stop && !lease.stop_requested;
  if (ends && program_may_live(step, lease)) {
    stop_program(step, lease);
    schedule(step.state, lease, step.rules);
    touch(step, lease);
  }
  const bool told = may_be_told_to_go_on(step, lease);
  if (!over && !(told && ends && !program_may_live(step, lease))) return true;
  if (!told) return false;
  const bool beside = std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const Device& other = step.state.devices.by_uuid.at(uuid);
    const bool lost = is_given_up(other, step.rules, step.now);
    if (lost && over) return true;
    // One that is waited for may be there again before the program has seen that it is not.
    const Bytes free = lost ? unclaimed_on(other, step.rules) : free_on(step.state, other, step.rules, step.now);
    return free + charged_on(step.state, lease, uuid) >= lease.vram;
  });
  if (lease.state == LeaseState::paused && beside)
    bring_back(step, lease, over ? ReasonKind::resuming_without_device : ReasonKind::resuming_to_end,
               args("device", name_of(device)));
  return true;
}

// Only for leases whose card is gone. A program that did not answer a resume order is not told again.
bool may_be_told_to_go_on(const Step& step, const Lease& lease) {
  return lease.parking && lease.parking->method == PauseMethod::cooperative && lease.state != LeaseState::poisoned &&
         (attempt_of(step.state, lease.id) == nullptr || attempt_of(step.state, lease.id)->unanswered == 0);
}

static void end_with(Step& step, Lease& lease, const Device& device) {
  ReasonArgs why = args("device", name_of(device), "snapshots", device.missing, "missing",
                        step.now - *device.missing_since, "parked", lease.parking.has_value());
  if (lease.parking && program_may_live(step, lease)) {
    stop_program(step, lease);
    why.add("signal_grace", step.rules.grace);
  } else if (lease.parking) {
    why.add("foreign", lease.had_process);
  }
  end(step, lease, EndReason::failed, ReasonKind::device_gone, std::move(why));
}

}  // namespace sublet::core
