// SPDX-License-Identifier: Apache-2.0
// Readings of the devices: which are believed, which lease is charged, and which bytes are measured gone by them.
#include "core/stepper.h"

#include "base/mutants.h"
#include "core/format.h"
#include "core/methods.h"

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

Result<LeaseId> Stepper::on(const SnapshotFailed& fact) {
  state_.snapshot_problem_ = fact.problem.empty() ? "no snapshot could be had" : fact.problem;
  return LeaseId{};
}

Result<LeaseId> Stepper::on(const Snapshot& fact) {
  if (fact.began < state_.snapshot_began_) return LeaseId{};  // overtaken by a newer one
  if (fact.began > now_) return on(SnapshotFailed{"a snapshot claims to have begun in the future"});
  state_.snapshot_began_ = fact.began;
  if (fact.devices.empty() && fact.unnamed.empty() && fact.lost.empty()) {
    // One card that fell off the bus looks the same as a driver that lists nothing: unknown, nothing is
    // forgotten.
    for (auto& [uuid, device] : state_.devices_) {
      device.problem = "the driver lists no device at all";
      state_.moved(device);
    }
    return on(SnapshotFailed{"the driver lists no device at all"});
  }
  state_.snapshot_problem_.clear();
  std::map<std::string_view, int> seen;
  for (const DeviceReading& reading : fact.devices) ++seen[reading.uuid];
  for (const DeviceReading& reading : fact.devices) read_device(reading, fact.began, seen[reading.uuid] > 1);
  for (auto& [uuid, device] : state_.devices_) {
    if (seen.contains(uuid)) continue;
    if (fact.unnamed.empty()) miss_device(device, fact.lost);
    else device.problem = "the driver does not tell which card is which: " + fact.unnamed;
    state_.moved(device);
  }
  adopt_named_devices();
  give_up_missing();
  reject_hopeless();
  if (state_.devices_.empty()) {
    for (const DeviceReading& reading : fact.devices) state_.snapshot_problem_ = reading.problem;
    if (!fact.lost.empty()) state_.snapshot_problem_ = fact.lost;
  }
  verify_yielding(fact.began);
  note_relapses(std::exchange(relapsing_, {}));
  recount_tops(fact.began);
  return LeaseId{};
}

// -------------------------------------------------------------------------------- one device

void Stepper::read_device(const DeviceReading& reading, Time began, bool twice) {
  // A lost one that is not known, or not any more, is no device of this machine until it is back.
  if (reading.lost && !state_.devices_.contains(reading.uuid)) return;
  Device& device = state_.device_entry(reading.uuid);
  if (reading.lost) return miss_device(device, reading.problem);
  device.lost = false;
  device.missing = 0;
  device.missing_since.reset();
  device.problem = twice ? "implausible: the driver lists it twice" : implausible(device, reading);
  if (device.problem.empty()) accept(device, reading, began);
  state_.moved(device);
}

// Why the reading is not believed; "" if it is.
std::string Stepper::implausible(const Device& device, const DeviceReading& reading) const {
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
  if (!reading.processes.empty()) return {};
  // Half is our choice: what no process holds is the driver's own and what parked processes keep, megabytes each. Bytes
  // that nobody is listed for are charged to nobody below that, and make the list unbelievable above.
  const Bytes used = reading.used - arrived(device, reading);
  if (used.count > reading.total.count / 2)
    return format_size(used) + " of " + format_size(reading.total) +
           " are used and no process is listed: the list cannot be complete";
  // Leases whose programs run had bytes a moment ago, the list is empty, and the bytes are still taken: the
  // list lies.
  if (!device.read_at) return {};
  Bytes live;
  for (const LeaseId id : device.leases)
    if (!state_.leases_.at(id).ended()) live += state_.charge(id, reading.uuid).used;
  const Bytes hidden = std::max(device.reading.used - device.leased_used - device.unleased, Bytes{});
  if (live > reading_slack && used - hidden > std::max(reading_slack, Bytes{live.count / 2}))
    return "implausible: no process is listed and " + format_size(used) + " is used, " + format_size(live) +
           " of it by running leases a moment ago";
  return {};
}

// The driver may list a process that it restores only once the process has all of its bytes. New bytes beyond those of
// listed processes belong to resuming leases, as far as these are to have more. Bytes that only left the list do not,
// because they belong to ending processes.
Bytes Stepper::arrived(const Device& device, const DeviceReading& reading) const {
  std::map<LeaseId, Bytes> back;  // what is listed of those who come back
  for (const LeaseId id : device.leases) {
    const Lease& lease = state_.leases_.at(id);
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
    const Lease& lease = state_.leases_.at(id);
    const Bytes all = std::min(lease.vram, state_.to_restore(lease, device.reading.uuid).all);
    to_come += std::max(all - std::max(lease.kept_unseen(), its), Bytes{});
  }
  const Bytes most = std::min(to_come, std::max(reading.used - listed, Bytes{}));
  return std::clamp(device.arrived + std::max(grew, Bytes{} - own), Bytes{}, most);
}

void Stepper::accept(Device& device, const DeviceReading& reading, Time began) {
  std::unordered_map<LeaseId, Charge> seen;
  std::map<ProcessRef, Bytes> without_lease;
  Bytes unleased, all;
  for (const ProcessUse& use : reading.processes) {
    all += use.used.value_or(Bytes{});
    if (!device.leases.contains(use.lease)) {
      unleased += use.used.value_or(Bytes{});
      without_lease[use.process] += use.used.value_or(Bytes{});
      continue;
    }
    Charge& of_lease = seen[use.lease];
    of_lease.used += use.used.value_or(Bytes{});
    of_lease.untold |= !use.used;
    ++of_lease.processes;
  }
  device.arrived = arrived(device, reading);
  const Bytes unlisted = std::max(reading.used - all - kept_by_driver(device, reading) - device.arrived, Bytes{});
  if (device.read_at) note_hidden(device, reading, unlisted);
  device.unlisted = unlisted;
  if (reading.link_per_second != device.reading.link_per_second)
    state_.costs_.know_link(reading.uuid, reading.link_per_second);
  device.reading = reading;
  device.read_at = began;
  device.unleased = unleased;
  const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
  for (const LeaseId id : here) {
    Lease& lease = state_.leases_.at(id);
    const auto listed = seen.find(id);
    const Charge now = listed == seen.end() ? Charge{} : listed->second;
    state_.measure(lease, device, now, shows_the_end(lease, began) || mutant(Mutant::any_reading_settles));
    lease.peak_used = std::max(lease.peak_used, now.used);
    if (lease.state == LeaseState::paused && now.used > lease.parking->residue) relapsing_.insert(id);
    if (lease.state == LeaseState::pausing && began < state_.runtime_.at(id).yielded_at.value_or(Time::never()))
      look_at_unlisted(lease);
    if (lease.parking) may_be_blocked_.push_back(id);
    if (listed != seen.end() && !lease.had_process) {
      lease.had_process = true;
      note("booked");
      touch(lease);
    }
  }
  settle_measured(device);
  state_.refresh_other(device);  // what is used there may have changed for no lease
  device.lasting.note(without_lease, device.other - unleased, began);
  for (const LeaseId id : device.leases)
    if (const Lease& lease = state_.leases_.at(id); lease.waits_in_place()) state_.requeue_in_place(lease);
}

// The bytes that the driver keeps of the processes that it parked, which no list shows meanwhile. Without them, many
// parked processes would look like hidden bytes.
Bytes Stepper::kept_by_driver(const Device& device, const DeviceReading& reading) const {
  std::vector<const Lease*> away;
  for (const LeaseId id : device.leases)
    if (const Lease& lease = state_.leases_.at(id); lease.parking) away.push_back(&lease);
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
void Stepper::note_hidden(const Device& device, const DeviceReading& reading, Bytes unlisted) {
  const Bytes grew = unlisted - device.unlisted;
  if (grew < Bytes{}) {
    for (const LeaseId id : device.leases) {
      Charge& charge = *state_.charge_at(state_.leases_.at(id), device.reading.uuid);
      if (charge.hidden > Bytes{}) state_.runtime_.at(id).used_until = now_;
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
    state_.charge_at(state_.leases_.at(id), device.reading.uuid)->hidden += std::min(bytes, grew);
  }
}

// Whether a reading that was begun then shows what is left of the lease, and nothing of it can become more.
bool Stepper::shows_the_end(const Lease& lease, Time began) const {
  if (!lease.ended_at) return true;
  if (lease.kept_until) return false;  // its bytes stay charged for the next start of its program
  return !may_allocate(lease) && began >= std::max(*lease.ended_at, state_.runtime_.at(lease.id).gone_at);
}

void Stepper::settle_measured(Device& device) {
  const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
  for (const LeaseId id : here) {
    const Charge& charge = state_.charge(id, device.reading.uuid);
    if (!charge.settling || !charge.measured || charge.used > Bytes{} || charge.untold) continue;
    const Lease& lease = state_.leases_.at(id);
    state_.unbook(lease, device);
    explain(lease, ReasonKind::settled, args("device", name_of(device), "after", now_ - *lease.ended_at));
    ended_.push_back(id);
  }
}

// -------------------------------------------------------------------------------- missing ones

void Stepper::miss_device(Device& device, const std::string& problem) {
  device.lost = true;
  device.problem = problem.empty() ? "the driver no longer lists it" : problem;
  state_.moved(device);
  ++device.missing;
  if (!device.missing_since) device.missing_since = now_;
}

// A device may be asked for by its name before any was read. The first reading says which one that is.
void Stepper::adopt_named_devices() {
  for (auto at = state_.devices_.begin(); at != state_.devices_.end();) {
    const Device* named = nullptr;
    if (!at->second.read_at && at->second.lost && at->second.leases.empty())
      for (const auto& [uuid, device] : state_.devices_)
        if (device.read_at && (name_of(device) == at->first || name_of(device) == "gpu" + at->first)) named = &device;
    if (named == nullptr) {
      ++at;
      continue;
    }
    while (const QueueTree* waiting = state_.queue_.named(at->first)) {
      Lease& lease = *find(waiting->first_above(Bytes{-1})->lease);
      state_.queue_.erase(lease.id);
      lease.wanted_device = named->reading.uuid;
      state_.queue_.insert(lease);
      state_.opened_.push_back(lease.wanted_device);
      note("named");
      touch(lease);
    }
    at = state_.devices_.erase(at);
    state_.preemptors_ = {};  // they stand where they stood, and want a device of another name
  }
}

// If a device that was given up comes back, what its programs still hold is seen as used by others: nothing
// that is not charged any more could be promised twice.
void Stepper::give_up_missing() {
  std::vector<std::string> forgotten;
  const bool any_left = std::any_of(state_.devices_.begin(), state_.devices_.end(),
                                    [](const auto& entry) { return entry.second.read_at && !entry.second.lost; });
  for (auto& [uuid, device] : state_.devices_) {
    if (!State::given_up(device, rules_, now_)) continue;
    // A missing device may have been removed for repair. While all devices are missing, the machine is being worked on.
    const bool over = any_left && now_ - *device.missing_since >= rules_.forget_after;
    const std::vector<LeaseId> here(device.leases.begin(), device.leases.end());
    for (const LeaseId id : here) {
      Lease& lease = *find(id);
      if (lease.parking && waits_for_card(lease, device, over)) continue;
      if (!lease.ended()) end_with(lease, device);
      if (device.leases.contains(id)) state_.unbook(lease, device);
      ended_.push_back(id);
    }
    // The device is known by name only, and no lease had memory there: there is no such device.
    if (device.leases.empty() && (!device.read_at || over)) forgotten.push_back(uuid);
  }
  for (const std::string& uuid : forgotten) forget(uuid);
}

// Parked bytes are in host memory and are not lost with the card: the lease waits for the card until it is forgotten.
// Then a cooperative program is resumed, as far as the memory on its other cards is free, and its lease ends like a
// running one. The same holds if the lease is to end and nobody here can end its program. Only the lost card can bring
// back what the driver has parked.
bool Stepper::waits_for_card(Lease& lease, const Device& device, bool over) {
  may_be_blocked_.push_back(lease.id);
  const bool ends = lease.parking->then_stop && !lease.stop_requested;
  if (ends && program_may_live(lease)) {
    stop_program(lease);
    state_.schedule(lease, rules_);
    touch(lease);
  }
  const bool told = may_be_told_to_go_on(lease);
  if (!over && !(told && ends && !program_may_live(lease))) return true;
  if (!told) return false;
  const bool beside = std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const Device& other = state_.devices_.at(uuid);
    const bool lost = State::given_up(other, rules_, now_);
    if (lost && over) return true;
    // One that is waited for may be there again before the program has seen that it is not.
    const Bytes free = lost ? State::unclaimed(other, rules_) : state_.effective_free(other, rules_, now_);
    return free + state_.charged(lease, uuid) >= lease.vram;
  });
  if (lease.state == LeaseState::paused && beside)
    bring_back(lease, over ? ReasonKind::resuming_without_device : ReasonKind::resuming_to_end,
               args("device", name_of(device)));
  return true;
}

// Only for leases whose card is gone. A program that did not answer a resume order is not told again.
bool Stepper::may_be_told_to_go_on(const Lease& lease) const {
  return lease.parking && lease.parking->method == PauseMethod::cooperative && lease.state != LeaseState::poisoned &&
         state_.runtime_.at(lease.id).unanswered == 0;
}

void Stepper::end_with(Lease& lease, const Device& device) {
  ReasonArgs why = args("device", name_of(device), "snapshots", device.missing, "missing", now_ - *device.missing_since,
                        "parked", lease.parking.has_value());
  if (lease.parking && program_may_live(lease)) {
    stop_program(lease);
    why.add("signal_grace", rules_.grace);
  } else if (lease.parking) {
    why.add("foreign", lease.had_process);
  }
  end(lease, EndReason::failed, ReasonKind::device_gone, std::move(why));
}

// Forgets the device, as if it had never been there. Leases that asked for it by name are told, and leases that only it
// could serve count as hopeless.
void Stepper::forget(const std::string& uuid) {
  const Device& device = state_.devices_.at(uuid);
  const std::string gone = device.read_at ? gone_text(device, now_) : "there is no device '" + uuid + "'";
  state_.forget(uuid);
  state_.room_stale_ = true;  // nothing is made there any more, and nobody's turn comes
  const std::string known = list_devices(state_);
  while (const QueueTree* waiting = state_.queue_.named(uuid)) {
    reject_as_hopeless(*find(waiting->first_above(Bytes{-1})->lease), args("gone", gone, "known", known));
  }
}

}  // namespace sublet::core
