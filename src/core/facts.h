// SPDX-License-Identifier: Apache-2.0
// The facts that can happen to the core. The engine observes events and turns each of them into one of these values;
// the core never looks for itself. Requests arrive validated for form (sizes, names, rights of the caller); the core
// decides.
#pragma once

#include "core/lease.h"

#include <string>
#include <variant>
#include <vector>

namespace sublet::core {

// A new lease. `lease` carries what was asked (id, state and times are the core's to fill in). `may_queue`
// false: refuse with Memory instead of queueing. `held`: a wait or connection of the owner is open.
struct Submit {
  Lease lease;
  bool may_queue = true;
  bool held = false;
  std::optional<PreemptionRequest> preemption_request = {};  // if it has to wait, room is made for it
};

// The owner takes an offered place. `generation` 0 = not given.
struct Claim {
  LeaseId lease;
  std::uint64_t generation = 0;
};

// A process tree becomes the owner (`as_owner`), or what `booked` names is merely booked to the lease.
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

// The owner wants another size on each of the lease's devices. Less is given back at once; more is waited for if
// `may_queue`, and the lease keeps what it has until then. Its present size: it wants no more.
struct Resize {
  LeaseId lease;
  std::uint64_t generation = 0;
  Bytes vram;
  bool may_queue = true;
};

// The owner, or an admin, gives the lease back. `force`: although processes still hold VRAM (else InUse).
// `stop`: end the program first; the lease ends when its tree has ended. `revoke`: an admin took it, not the
// owner.
struct Release {
  LeaseId lease;
  std::uint64_t generation = 0;
  bool force = false;
  bool stop = false;
  bool revoke = false;
  std::optional<std::uint32_t> asked_by = {};  // the user on whose word it is
};

// Host memory that the machine still has for parked bytes.
struct HostMemory {
  Bytes available;                      // MemAvailable
  std::optional<Bytes> headroom;        // of the cgroup that would be charged; unset: it has no limit
  bool may_swap = false;                // what is parked there may be written to a swap device
  std::optional<double> pressure = {};  // part of the last 10 s for which it kept everybody waiting; unset: not told
  bool keeper_away = false;             // who could keep it from the swap device is not there at the moment
};

// The lease is to give its VRAM up for a while; its program lives on, parked in host memory. `host` is what the machine
// can take now.
struct Pause {
  LeaseId lease;
  std::uint64_t generation = 0;
  PauseCause cause;  // who asked for it
  HostMemory host = {};
  bool again = false;  // nobody's wish: it was seen to hold VRAM while it was paused (PauseAgain)
};

// A paused lease is wanted back: it waits for its room, reserves it, and only then its program is restored.
struct Resume {
  LeaseId lease;
  std::uint64_t generation = 0;
};

// Room is to be made now for one that waits: by pausing whom it costs least, whether of a lower tier or not.
struct Preempt {
  LeaseId lease;
  std::uint64_t generation = 0;
  PreemptionRequest by = {};
};

// The answer to the action WeighHost.
struct HostWeighed {
  LeaseId lease;
  HostMemory host = {};
};

// The program of a lease yields by itself from now on, in this way; none: no longer.
struct Cooperate {
  LeaseId lease;
  std::uint64_t generation = 0;
  std::optional<Cooperation> how = {};
};

// The driver is about to lock processes of a lease for the action Park: all of them so far. Answered by the action
// Lock.
struct LockIntent {
  LeaseId lease;
  std::vector<ProcessRef> processes = {};
};

// All processes of a lease are locked for the action Park, and measured anew since: may they be parked as they are?
// `host` is what the machine can take now, for the groups that all of them are in. Refused: no more than it said.
struct MeasuredWhileLocked {
  LeaseId lease;
  HostMemory host = {};
};

// The result of the action Park. A pause that is not done has to be undone. If `undone` is set, nothing is locked or
// parked by the pause, and all processes run on.
struct Parked {
  LeaseId lease;
  bool done = false;
  std::string detail = {};          // why not: one sentence
  std::optional<Bytes> bytes = {};  // of host memory that it took; unset: not known
  bool undone = false;
  std::optional<Unfit> unfit = {};          // then `detail` says why …
  bool may_be_by_chance = false;            // … and it counts when it is said twice in a row
  bool stuck = false;                       // a call of the driver was given up, and has not returned
  std::optional<Hindrance> hindrance = {};  // it was that, and says nothing of how its consumer yields
  std::string hint = {};                    // what can be done about it; "": nothing is known
};

// The result of the action Unpark. `host`: host memory at this moment, for another pause method. Without it no other
// method is tried.
struct Unparked {
  LeaseId lease;
  enum class How { runs, not_yet, never } how = How::runs;
  std::string detail = {};  // why it does not run: one sentence
  std::optional<HostMemory> host = {};
  bool no_room = false;         // not_yet: what it needs on its devices is not free there, so none was tried
  std::string code = {};        // not_yet: a word for why, so that the same is not told again each time
  bool nothing_parked = false;  // never: none of it is in host memory, it is on its devices still
};

// A call of the driver's has returned that had been given up: what came of it is found out by trying again, at once.
struct DriverReturned {
  LeaseId lease;
};

// Whether any process of a lease lives: of its program, or booked to it. Told of leases that are parked and whose owner
// is a token, each time that it may have changed.
struct LivenessReport {
  LeaseId lease;
  bool lives = true;
};

// Whether programs of that user's consumer may be parked although Sublet did not start them.
struct Grant {
  std::uint32_t uid = 0;
  std::string consumer;
  bool given = true;
};

// The number of open waits and connections of the owner rose from or fell to zero.
struct HeldChanged {
  LeaseId lease;
  bool held = false;
};

// The owner's whole process tree has ended. `by_signal`: its main process was killed by a signal.
struct ProgramEnded {
  LeaseId lease;
  std::optional<int> exit_status;
  bool by_signal = false;
};

// The program could not be started (executable missing, keeper failed before exec).
struct ProgramFailed {
  LeaseId lease;
  std::string detail;
  int exit_status = 125;
};

struct ProcessUse {
  ProcessRef process;
  std::optional<Bytes> used;  // unset: the driver does not tell
  LeaseId lease;              // none: without a lease
  std::string name = {};      // of the program, as everybody may see it; "" if not known
};

// One device at one moment. `problem` non-empty: not usable (erring, implausible); then only uuid counts.
struct DeviceReading {
  std::string uuid;
  std::string name;
  int index = 0;
  std::string pci_bus_id;
  bool simulated = false;
  Bytes link_per_second = {};  // what its link to the host carries each way; 0: not known
  Bytes total;
  Bytes driver_reserved;  // 0 where the driver counts it as used
  Bytes used;             // physically, driver_reserved not included
  std::vector<ProcessUse> processes;
  std::string problem;
  bool lost = false;  // the driver's own word, `problem` has the rest of it: as good as missing
};

// A reading of all devices that was begun at `began` and finished at `now`. A device that is missing is lost, unless
// the driver would not tell which device one of them is (`unnamed`: its error). Those that it would not name because
// they are lost (`lost`: its error) are among the missing.
struct Snapshot {
  Time began;
  std::vector<DeviceReading> devices;
  std::string unnamed = {};
  std::string lost = {};
};

// No snapshot could be had; the last one only gets older.
struct SnapshotFailed {
  std::string problem;
};

// The daemon did not run for a while (it was stopped, or its machine was): nobody could renew, claim or hold anything
// meanwhile, so that time counts against nobody. `asleep`: of it, how long the machine slept, programs and all.
struct ClockGap {
  Duration asleep{};
  Duration stood_still{};  // the daemon alone did not run for so long
};

// Nothing but time has passed.
struct Tick {};

using Fact = std::variant<Submit, Claim, Attach, Renew, Resize, Pause, Resume, Preempt, HostWeighed, Cooperate, Grant,
                          Release, HeldChanged, ProgramEnded, ProgramFailed, LockIntent, MeasuredWhileLocked, Parked,
                          Unparked, DriverReturned, LivenessReport, Snapshot, SnapshotFailed, ClockGap, Tick>;

}  // namespace sublet::core
