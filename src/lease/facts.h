// SPDX-License-Identifier: Apache-2.0
// The facts that can happen to the core. The engine observes events and turns each of them into one of these values;
// the core never looks for itself. Requests arrive validated for form (sizes, names, rights of the caller); the core
// decides.
#pragma once

#include "base/links.h"
#include "lease/lease.h"
#include "lease/reason.h"
#include "lease/reclaim.h"
#include "lease/tenant.h"

#include <string>
#include <variant>
#include <vector>

namespace sublet::core {

// A new lease. `lease` has the request; the core sets id, state and times. `may_queue` false: the engine submits it
// only if it would start at once (explain::would_start). `held`: a wait or connection of the owner is open. `waiter`:
// pid of its process; 0: unknown.
struct Submit {
  Lease lease;
  bool may_queue = true;
  bool held = false;
  std::optional<PreemptionRequest> preemption_request = {};  // requests memory for it if it has to wait
  std::int32_t waiter = 0;
  LeaseId successor_of = {};  // the memory that fact Keep reserved after the end of that lease is for this one
};

// The owner takes an offered place. `generation` 0 = not given.
struct Claim {
  LeaseId lease;
  std::uint64_t generation = 0;
};

// A process tree becomes the owner (`as_owner`), or the process or cgroup in `booked` is booked to the lease.
struct Attach {
  LeaseId lease;
  std::uint64_t generation = 0;
  Owner owner;
  bool as_owner = true;
  Booked booked;
};

struct Renew {
  LeaseId lease;
  std::uint64_t generation = 0;
  std::optional<Duration> ttl = {};
};

// The owner wants another size on each of the lease's devices. A smaller size takes effect at once. For a larger one
// the lease waits if `may_queue`, and keeps its bytes until then. Its present size withdraws an earlier request.
struct Resize {
  LeaseId lease;
  std::uint64_t generation = 0;
  Bytes vram;
  bool may_queue = true;
};

// The owner or an admin gives the lease back. `force`: although processes still hold VRAM (otherwise InUse). `stop`:
// end the program first; the lease ends with its tree. `revoke`: an admin takes the lease, not the owner.
struct Release {
  LeaseId lease;
  std::uint64_t generation = 0;
  bool force = false;
  bool stop = false;
  bool revoke = false;
  std::optional<std::uint32_t> asked_by = {};  // the user who requested it
};

// Host memory that the machine still has for parked bytes: for the processes of one lease, or for the machine alone.
struct HostMemory {
  Bytes available;                      // MemAvailable
  std::optional<Bytes> headroom;        // bytes left in the cgroup that would be charged; unset: no limit
  bool may_swap = false;                // parked bytes may be written to a swap device
  std::optional<double> pressure = {};  // part of the last 10 s in which all waited for memory; unset: unknown
};

// The user to whom a lease belongs and is charged.
struct Charged {
  std::uint32_t uid = 0;
  std::string user;
  std::string tenant;
};

// A capability changes a living lease. An unset field stays as it is; a limit of 0 is removed.
struct Amend {
  LeaseId lease;
  std::optional<Tier> tier = {};
  std::optional<int> priority = {};
  std::optional<Bytes> ceiling = {};
  std::optional<Bytes> soft_limit = {};
  std::optional<Pausable> pausable = {};
  std::optional<Charged> charged = {};  // the lease belongs to this user from now on
  // Time to save the work of its program before it is ended as a spot lease; 0: the work is saved. Not stored.
  std::optional<Duration> notice = {};
};

// A capability ends an active lease and its program. `kill`: by SIGKILL at once, without a grace. `kind` and `args`:
// the reason.
struct End {
  LeaseId lease;
  EndReason why = EndReason::over_limit;
  ReasonKind kind = ReasonKind::over_ceiling;
  ReasonArgs args = {};
  bool kill = false;
};

// The memory of a lease that has ended stays reserved for the next start of its program, at most until `until`. In the
// past: no longer.
struct Keep {
  LeaseId lease;
  Time until;
};

// A capability takes a device out of service: nothing is granted there, and leases that have it keep it. An empty
// `why`: the device is back in service. The core does not store it.
struct Serve {
  std::string device;    // uuid; the device may be unknown
  std::string why = {};  // "cordoned by root: new fan"
};

// A capability adds a reason to the history of a living lease.
struct Remark {
  LeaseId lease;
  ReasonKind kind = ReasonKind::note;
  ReasonArgs args = {};
};

// A capability declares a lease reclaimable for leases that wait, or withdraws that. Capabilities declare again after
// each load.
struct Reclaimable {
  LeaseId lease;
  PauseCauseKind cause = PauseCauseKind::idle;
  std::optional<Reclaim> terms = {};  // unset: withdrawn
};

// The lease is to be paused: its program lives on, parked in host memory. `host` is host memory now.
struct Pause {
  LeaseId lease;
  std::uint64_t generation = 0;
  PauseCause cause;  // why it is paused
  HostMemory host = {};
};

// A resume is requested: the paused lease waits for its memory, reserves it, and only then its program is restored.
struct Resume {
  LeaseId lease;
  std::uint64_t generation = 0;
};

// Memory is requested for a waiting lease: the cheapest victims are paused, whatever their tier.
struct Preempt {
  LeaseId lease;
  std::uint64_t generation = 0;
  PreemptionRequest by = {};
};

// The program of a lease becomes cooperative in this way; none: no longer.
struct Cooperate {
  LeaseId lease;
  std::uint64_t generation = 0;
  std::optional<Cooperation> how = {};
};

// The driver is about to lock processes for the action Park; `processes` are all so far. Answered by the action Lock.
struct LockIntent {
  std::vector<ProcessRef> processes = {};
};

// All processes are locked for the action Park, and measured since: may they be parked? `host` is host memory now, for
// the cgroups of all of them. Answered by the action Lock, or refused; a refusal keeps the earlier limit.
struct MeasuredWhileLocked {
  HostMemory host = {};
};

// The result of the action Park. A pause that is not done has to be undone. If `undone` is set, nothing is locked or
// parked by the pause, and all processes run on.
struct Parked {
  bool done = false;
  std::string detail = {};          // why it is not done, one sentence
  std::optional<Bytes> bytes = {};  // host memory that it took; unset: not known
  bool undone = false;
  ObstacleCode code = ObstacleCode::none;  // not done: the obstacle
  std::string hint = {};                   // what can be done about it; "": what the table of obstacles says
};

// The result of the action Unpark. `host`: host memory at this moment, for another pause method. Without it no other
// method is tried.
struct Unparked {
  enum class How { runs, not_yet, never } how = How::runs;
  std::string detail = {};  // why it does not run, one sentence
  std::optional<HostMemory> host = {};
  ObstacleCode code = ObstacleCode::none;  // not_yet: why; no_room: its memory was not free, and no restore was tried
  bool nothing_parked = false;             // never: none of it is in host memory, and all is still on its devices
};

// A driver call that had been given up has returned: the lease is tried again at once to find its result.
struct DriverReturned {};

// The executor reports this about the pause or resume of a lease that was ordered.
struct AttemptEvent {
  LeaseId lease;
  std::variant<LockIntent, MeasuredWhileLocked, Parked, Unparked, DriverReturned> what;
};

// Whether any process of a lease lives, of its program or booked to it. Reported for parked leases whose owner is a
// token, each time that it may have changed.
struct LivenessReport {
  LeaseId lease;
  bool lives = true;
};

// The processes of the control group that owns a lease. Reported when they may have changed. `inode`: of the group's
// directory; 0: there is none.
struct GroupReport {
  LeaseId lease;
  bool populated = false;  // a process lives in the group or below it
  std::uint64_t inode = 0;
};

// Whether programs of that user's consumer may be parked although Sublet did not start them.
struct Grant {
  std::uint32_t uid = 0;
  std::string consumer;
  bool given = true;
};

// The number of open waits and connections of the owner rose from or fell to zero. `waiter`: pid of the process that
// opened one; 0: unknown.
struct HeldChanged {
  LeaseId lease;
  bool held = false;
  std::int32_t waiter = 0;
};

// The owner's whole process tree has ended. `by_signal`: its main process was killed by a signal. `forwarded`: its
// keeper had got this signal and forwarded it.
struct ProgramEnded {
  LeaseId lease;
  std::optional<int> exit_status;
  bool by_signal = false;
  bool forwarded = false;
  std::optional<Time> at = {};  // when it ended, if no daemon ran then
};

// The program could not be started (executable missing, keeper failed before exec).
struct ProgramFailed {
  LeaseId lease;
  std::string detail;
  int exit_status = 125;
};

struct ProcessUse {
  ProcessRef process;
  std::optional<Bytes> used;  // unset: the driver does not report it
  LeaseId lease;              // none: an unleased process
  std::string name = {};      // name of the program that all users may see; "": unknown
  // Part of the time since the last reading in which it used the device, 0 to 100; unset: the driver does not tell.
  std::optional<int> busy_percent = {};
  // Mean part of that time in which its kernels ran, 0 to 100; as above.
  std::optional<int> computing_percent = {};
  bool graphics_only = false;  // the driver lists it among graphics programs, and nowhere else
};

// A reading of one device. `problem` non-empty: not usable (erring, implausible); then only uuid counts.
struct DeviceReading {
  std::string uuid;
  std::string name;
  int index = 0;
  std::string pci_bus_id;
  bool simulated = false;
  Bytes link_per_second = {};  // bytes that its link to the host carries each way; 0: not known
  Bytes total;
  Bytes driver_reserved;  // 0 where the driver counts it as used
  Bytes used;             // physically used, without driver_reserved
  std::vector<ProcessUse> processes;
  std::string problem;
  bool lost = false;  // the driver reports the device as lost; `problem` has the details
  // Part of the last sampling period in which anything ran on it, 0 to 100; unset: the driver does not tell.
  std::optional<int> busy_percent = {};
  Links links = {};         // with other cards of the machine
  std::string parent = {};  // of a MIG slice: uuid of its card; else ""
  int slice = -1;           // of a MIG slice: index among the slices of its card, whose index is `index`; else -1
  bool unified = false;     // total and used are those of the machine, whose memory it uses
  Bytes for_system = {};    // of a unified device: bytes that are never leased, set by the engine

  // The order of devices: by the index of the card, and its slices after it.
  int order() const { return index * 64 + slice + 1; }
  std::string id() const { return "gpu" + number(); }  // "gpu0", of a slice "gpu0:1"
  std::string number() const { return std::to_string(index) + (slice < 0 ? "" : ":" + std::to_string(slice)); }
  // The most that programs could have there together.
  Bytes for_programs() const { return total - driver_reserved - for_system; }
};

// A reading of all devices, begun at `began` and finished at `now`. A missing device is lost, unless the driver did not
// name one of its devices (`unnamed`: its error). Devices that it did not name because they are lost (`lost`: its
// error) count as missing. `host` is host memory now, of the machine alone: the executor examines the cgroups and the
// swap of a program before it carries out an order.
struct Snapshot {
  Time began;
  std::vector<DeviceReading> devices;
  std::string unnamed = {};
  std::string lost = {};
  HostMemory host = {};
  bool partial = false;  // of a projection: the other devices are as they were, and no device is new
};

// No snapshot could be taken, or one is late. Nothing is known of any device until the next one.
struct SnapshotFailed {
  std::string problem;
};

// The daemon did not run for a while, so that no owner could renew, claim or hold anything. The time counts against no
// owner. `asleep`: the part in which the machine slept, programs and all.
struct ClockGap {
  Duration asleep{};
  Duration stood_still{};  // the part in which the daemon alone did not run
};

// The whole tree of tenants, and the use that was stored of them (only right after a start). The tree is valid: see
// src/tenant_tree/tree.h. Existing leases keep what they have.
struct SetTenants {
  std::vector<Tenant> tenants;
  std::vector<TenantUse> used = {};
};

// Nothing but time has passed.
struct Tick {};

using Fact =
    std::variant<Submit, Claim, Attach, Renew, Resize, Amend, End, Keep, Serve, Remark, Reclaimable, Pause, Resume,
                 Preempt, Cooperate, Grant, Release, HeldChanged, ProgramEnded, ProgramFailed, AttemptEvent,
                 LivenessReport, GroupReport, Snapshot, SnapshotFailed, ClockGap, SetTenants, Tick>;

}  // namespace sublet::core
