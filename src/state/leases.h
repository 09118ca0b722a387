// SPDX-License-Identifier: Apache-2.0
// The leases, what is observed of them, and what they are charged on their devices. Functions that take a State& are
// for the core alone, and keep all indices true.
#pragma once

#include "lease/facts.h"
#include "lease/lease.h"
#include "lease/rules.h"
#include "state/attempt.h"
#include "state/preemption_plan.h"
#include "state/queue_tree.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::core {

struct State;
struct Device;

// The charge of a lease on one of its devices beyond its size: measured use, and bytes that still settle after its end.
struct Charge {
  Bytes used{};           // of its processes, by the last plausible snapshot
  bool untold = false;    // a process is listed without its bytes
  int processes = 0;      // number of listed processes
  bool settling = false;  // ended, and not yet measured gone
  bool measured = false;  // settling: `used` was measured after the end, and nothing else counts
  // Bytes that its processes will hold here once they are back, if more than its size. The bytes are charged from the
  // pause order until the next measurement, except while the lease is paused. For a lease that can never be restored:
  // the bytes that were charged on its way back.
  Bytes coming{};
  // The size before it shrank, until its processes are measured again: they may have taken more than the last
  // measurement.
  Bytes shrunk_from{};
  Bytes needed{};  // the part of `coming` that must be free before its resume
  // Bytes of processes that left the list while the device still has them taken. The bytes may belong to others; they
  // are no proof that the processes freed them.
  Bytes hidden{};
};

// The charge of a lease over all of its devices.
struct Use {
  Bytes used;
  bool untold = false;
  bool settling = false;
};

// Knowledge about a lease that needs no store: it is measured or observed again after a restart.
struct LeaseRuntime {
  std::vector<Charge> charges;  // in the order of the lease's devices; empty before it is booked
  AccountId account = 0;        // that it is charged to; see core/tenants.h
  bool held = false;            // a connection or wait of its owner is open
  std::int32_t waiter = 0;      // pid of the process that opened the last one; 0: unknown
  Time grace_until;             // after a restart or a clock gap: no owner counts as gone before this
  // The obstacles to its preemption that were noted last: the leases, and the codes of their obstacles.
  std::vector<std::string> obstacle_leases, obstacle_codes;
  Time obstacles_at;               // when they were last looked for
  Duration notice{};               // time to save its work before it is ended as a spot lease
  Time noticed_at;                 // when this time began; Time{}: it has not
  bool killed = false;             // SIGKILL was ordered
  bool program_ended = false;      // the program of its keeper is known to have ended
  Time gone_at;                    // when it ended or was killed; earlier readings do not show its bytes gone
  std::optional<Attempt> attempt;  // while it is pausing or resuming
  // It outlives the attempts:
  Time restored_at;               // when it was restored; only later snapshots measure what it holds
  Time settled_in;                // when it got its memory, later by the time that the machine slept since
  bool seemed_unfit = false;      // the driver's last attempt failed as for a program that it cannot park
  bool relapsed = false;          // paused, and holds more than its residue
  std::int32_t blocked_by = 0;    // pid of the largest unleased process that was reported to it; -1: its card is gone
  std::optional<bool> inhabited;  // the last LivenessReport since its pause
  Time shrunk_at;                 // when it shrank; only later snapshots measure what it uses
  Time used_until;                // when something of it was last seen on a device
  Time silent_since;              // since when no process has registered how it yields
  // As a possible victim:
  Bytes parked;                        // bytes that the driver parked in its last pause
  int failures = 0;                    // pauses that failed in a row
  std::optional<Obstacle> left_alone;  // why it became ineligible the last time, and until when
  std::optional<Obstacle> obstacle;    // the lasting obstacle to its pauses
  Time tried_at;                       // since when it is ineligible
  // When it got its memory back after a pause, and how much it grew on each device since.
  Time back_at;
  std::vector<std::pair<Time, Bytes>> grown;  // the newest last
  Time due = Time::never();                   // its entry in timers_
  bool touched = false;                       // by the present step
};

struct Leases {
  // Live leases; and ended ones, until their bytes are measured gone and their programs are reported as ended.
  std::unordered_map<LeaseId, Lease> by_id;
  std::unordered_map<LeaseId, LeaseRuntime> runtime;  // the same keys
  std::map<std::pair<std::uint32_t, std::string>, LeaseId> tags;
  std::map<std::uint32_t, std::size_t> live_of;  // leases of each user that have not ended
  std::set<std::pair<Time, LeaseId>> timers;     // each lease that has a deadline, once
  std::vector<LeaseId> half_done;                // loaded while pausing or resuming, with unknown progress
  std::vector<LeaseId> unsignalled;              // loaded while being stopped, so that the order may have been lost
  std::uint64_t last_id = 0;
};

const Lease* find(const State& state, LeaseId id);  // live, or ended and not measured gone; null: neither
const Lease* find_tag(const State& state, std::uint32_t uid, std::string_view tag);  // live only
// The charge of the lease on one of its devices; empty where it is not booked.
const Charge& charge_on(const State& state, LeaseId id, std::string_view device);
Use use_of(const State& state, LeaseId id);
// The charge of a lease that reserves or still settles on the device: max(reserved, used).
Bytes charged_on(const State& state, const Lease& lease, std::string_view device);
// Bytes that a waiter needs on one of its devices. The need is less than its size if it holds some already, and more
// if its processes allocated while paused.
Bytes need_on(const State& state, const Lease& lease, std::string_view device);
// The part of its charge that it got after `since`: by its grant, by its return from a pause, or by growth. A restart
// forgets the last two.
Bytes given_since(const State& state, const Lease& lease, std::string_view device, Time since);
// Bytes that the return of a paused lease takes beyond its size, on the device where that is most.
Bytes beyond_size(const State& state, const Lease& lease);
bool is_held(const State& state, LeaseId id);  // a connection or wait of its owner is open
// True if its charge on a device is above the measurement until the next reading.
bool is_measured_later(const State& state, LeaseId id);

Lease& add_lease(State& state, Lease lease);
void drop_lease(State& state, LeaseId id);
void retire_lease(State& state, const Lease& lease);  // the lease is not live any more
void charge_to(State& state, Lease& lease, const Charged& who);
void book(State& state, Lease& lease);          // lease.devices is set; its bytes count there from now on
void unbook(State& state, const Lease& lease);  // the bytes of its processes count as `other` again
void unbook(State& state, const Lease& lease, Device& device);
// The lease has ended and is charged until measured gone. `measured`: its last measurement was proven to be all that
// it holds.
void settle(State& state, LeaseId id, bool measured);
void resize(State& state, Lease& lease, Bytes vram, Time now);
void set_owner(State& state, Lease& lease, Owner owner);
void set_cooperation(State& state, Lease& lease, std::optional<Cooperation> how, Time now);
void requeue_in_place(State& state,
                      const Lease& lease);  // it waits for more on its devices, and its need may have changed
void measure(State& state, const Lease& lease, Device& device, const Charge& seen, bool after_end);
bool forgive(State& state, Lease& lease, const Rules& rules, Time now);
void stand_still(State& state, const Lease& lease, Duration stood_still);
bool sleep_through(State& state, Lease& lease, Duration asleep);
void schedule(State& state, const Lease& lease, const Rules& rules);
Time deadline_of(const State& state, const Lease& lease, const LeaseRuntime& runtime, const Rules& rules);
void include(State& state, Device& device, const Lease& lease, const Charge& charge, int sign);
Charge* charge_at(State& state, const Lease& lease, std::string_view device);

}  // namespace sublet::core
