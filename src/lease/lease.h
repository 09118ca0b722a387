// SPDX-License-Identifier: Apache-2.0
// A lease as a value: what was asked, where it stands, who owns it. Plain data, copied freely between
// threads.
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "lease/obstacle.h"
#include "lease/pause_cause.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::core {

// Closed lists; their text forms are those of the API. Values are stored as text, so that their order may change.
enum class LeaseState { queued, offered, active, pausing, paused, resuming, poisoned, ended };
enum class EndReason {
  none,
  released,
  expired,
  revoked,
  owner_gone,
  over_limit,
  failed,
  cancelled,
  rejected,
  unclaimed,
  lost
};
enum class Tier : std::uint8_t { spot, batch, standard, interactive, critical };  // ascending: a higher one goes first
inline constexpr std::size_t tier_count = 5;
enum class Pausable { automatic, cooperative, interposer, driver, no };
enum class OwnerKind { connection, process, token, group };
enum class PauseMethod { cooperative, interposer, driver };
// How a cooperative program gets its orders: it asks for them, is called by HTTP, or gets a signal.
enum class CooperationWay { poll, webhook, signal };

std::string_view to_string(LeaseState state);
std::string_view to_string(EndReason reason);
std::string_view to_string(Tier tier);
std::string_view to_string(Pausable pausable);
std::string_view to_string(OwnerKind kind);
std::string_view to_string(PauseMethod method);
std::string_view to_string(CooperationWay way);
std::optional<LeaseState> parse_lease_state(std::string_view text);
std::optional<EndReason> parse_end_reason(std::string_view text);
std::optional<Tier> parse_tier(std::string_view text);
std::optional<Pausable> parse_pausable(std::string_view text);
std::optional<OwnerKind> parse_owner_kind(std::string_view text);
std::optional<PauseMethod> parse_pause_method(std::string_view text);
std::optional<CooperationWay> parse_cooperation_way(std::string_view text);

// Priorities an ordinary tenant may use are -100 … 100, an admin's -1000 … 1000.
inline constexpr int tenant_priority_limit = 100;
inline constexpr int admin_priority_limit = 1000;

// A process or a cgroup directory that was booked to a lease by name. A booked process need not descend from the owner.
struct Booked {
  ProcessRef process;
  std::string cgroup;
  bool operator==(const Booked&) const = default;
};
inline constexpr std::size_t booked_limit = 64;  // bookings of one lease; more processes belong into a cgroup

struct Owner {
  OwnerKind kind = OwnerKind::connection;
  ProcessRef process;       // kind process: the main process of the tree
  ProcessRef keeper;        // its keeper, if it has one: reports the exit status and delivers signals
  std::string exit_record;  // file in which the keeper leaves the exit status; "" without a keeper
  // The inode of the pidfd of `process`, by which a later run of the daemon recognizes the process. With 0 there is no
  // proof: the kernel gives all pidfds one inode (before 6.9), or the process was gone too soon.
  // Kind group: the inode of the directory `cgroup`, set when its first process is seen.
  std::uint64_t inode = 0;
  std::string cgroup = {};  // kind group: the absolute directory of the control group
  bool operator==(const Owner&) const = default;
};

// The size that an active lease waits for; until then it keeps what it has.
struct Upgrade {
  Bytes vram;      // on each of its devices, more than it has
  Time queued_at;  // ages from here
  bool operator==(const Upgrade&) const = default;
};

// The way in which a cooperative program yields, as the program said.
struct Cooperation {
  CooperationWay way = CooperationWay::poll;
  Bytes residue;          // most bytes that it keeps on each of its devices, contexts included
  ProcessRef process;     // poll, signal: the process that is told; the registration ends with it
  std::string address;    // webhook: the URL that is called
  int pause_signal = 0;   // signal: sent for a pause
  int resume_signal = 0;  // signal: sent for a resume
  bool operator==(const Cooperation&) const = default;
};

// A request for memory beyond what tier and time slices give the waiter. The lease keeps that memory against the leases
// that the request reached, until it is paused itself or asks for more.
struct PreemptionRequest {
  std::uint32_t uid = 0;
  bool any_user = false;              // programs of all users may be victims, not only this user's own
  std::optional<Time> given_at = {};  // when it got that memory; unset: it still waits
  bool operator==(const PreemptionRequest&) const = default;
};

// Bytes that the driver keeps of each parked process on each card where that process held memory. No list shows them
// meanwhile. Measured with driver 580.
inline constexpr Bytes driver_keeps = 4 * MiB;

// The bytes of a paused or pausing lease on one of its devices, which have to come back there.
struct HeldWhenPaused {
  Bytes all;  // bytes of its processes at the pause order or lock; all that it may hold, if not known
  std::vector<std::pair<ProcessRef, Bytes>> of = {};  // bytes of each process that was listed then
  Bytes kept = {};                                    // bytes still on the device when the pause was verified
  Bytes beside = {};  // resuming: bytes allocated while paused, which reduce its memory for the restore
  bool operator==(const HeldWhenPaused&) const = default;
};

// The pause of a lease, from the order until the program runs again: states pausing, paused, resuming and poisoned.
struct Parking {
  PauseMethod method = PauseMethod::driver;
  Time since;                     // time of the pause order; its wait to resume ages from here
  PauseCause cause;               // why it is paused, or can never run again
  Bytes host_bytes;               // host memory that the ledger counts for it, from before the order
  bool measured = false;          // `host_bytes` is what was really parked
  Bytes residue;                  // bytes that it may keep on each device, and reserves there while paused
  bool resume_requested = false;  // its resume is requested: it waits for its memory, or has it
  bool then_stop = false;         // its program is ended once it runs again
  bool told = false;              // its program got a pause order, and needs a resume order
  // Processes that the driver was allowed to lock, stored before the call: no other process needs the driver to resume.
  // Unset: an earlier version did not note them, so that any process may be locked.
  std::optional<std::vector<ProcessRef>> locked_processes = std::vector<ProcessRef>{};
  std::vector<HeldWhenPaused> held_when_paused = {};  // on each of the lease's devices, in their order
  std::optional<Time> orphaned_since = {};            // token leases: since when none of its processes is seen to live
  bool operator==(const Parking&) const = default;
};

// A user and a program name. History is kept for both together, so that no user gets the history of another user.
struct Consumer {
  std::uint32_t uid = 0;
  std::string name;
  auto operator<=>(const Consumer&) const = default;
};

// The size of a lease before it was resized.
struct Sized {
  Bytes mean;       // average size on each device since its grant, without the time in which it was parked
  Time until;       // when it got its present size
  Duration parked;  // time parked before that, since its grant
  bool operator==(const Sized&) const = default;
};

struct Lease {
  LeaseId id;
  std::uint64_t generation = 0;  // grows with each grant, claim, attach and end; late actions name an older one
  LeaseState state = LeaseState::queued;
  EndReason end_reason = EndReason::none;

  // the request
  std::uint32_t uid = 0;
  std::string user;
  std::string tenant;
  std::string consumer;
  // The consumer's name is a default and does not tell the program: its history predicts nothing.
  bool nameless = false;
  std::string tag;
  std::string command;  // what `run` starts; "" for others. Shown to the owner and admins only
  Tier tier = Tier::standard;
  int priority = 0;
  Pausable pausable = Pausable::automatic;
  Bytes vram;            // on each of its devices: the requested size until the grant, then the granted size
  Bytes min_vram;        // least size that is taken now instead of `vram` later; 0: all or nothing
  Bytes ceiling;         // most bytes that its processes may use on each device; 0: no ceiling
  Bytes soft_limit;      // bytes on each device from which its owner is warned; 0: none
  int share = 0;         // percent of the computing time of each device; 0: no bound. No decision depends on it
  int device_count = 1;  // number of devices, all at once
  std::vector<std::string> wanted_devices;  // uuids of the devices asked for, sorted, each once; empty: any
  std::optional<Duration> ttl;              // runs from the grant, and starts again at each renewal
  Owner owner;
  std::string token;  // secret, shown once to the owner

  // the progress
  Bytes asked_vram;                  // `vram` before the grant
  std::vector<std::string> devices;  // uuids of the granted devices, in the order of their indices; empty while queued
  std::optional<Upgrade> resize;     // set while it waits for a larger size
  std::optional<Sized> sized;        // set if it had another size before
  std::optional<Parking> parking;    // set while it is pausing, paused, resuming or poisoned
  std::optional<Cooperation> cooperation;  // set while its program is cooperative
  std::optional<Obstacle> unfit;           // set if the driver is not tried on this program again
  std::optional<PreemptionRequest>
      preemption_request;    // set while memory is requested for it, or while it keeps such memory
  bool had_process = false;  // true once a process was booked to it: its end waits for a measurement
  int lapsed_offers = 0;
  std::optional<int> exit_status;  // as a shell gives it: 0-255, 128+N by signal
  bool stop_requested = false;     // true while its program is being ended: SIGTERM, grace, SIGKILL
  Time created_at;
  Time queued_at;                     // ages from here
  std::optional<Time> held_back_at;   // queued: since when its owner holds it back, outside of the queue
  std::optional<Time> granted_at;     // first grant
  std::optional<Time> resumed_at;     // when its program ran again after the last pause
  Duration parked_for{};              // total time parked since the grant, up to `parked_at`
  std::optional<Time> parked_at;      // since when it is paused or poisoned
  std::optional<Time> offer_ends_at;  // end of its claim window; only in state offered
  std::optional<Time> expires_at;     // end of its time to live, by its clock
  std::optional<Time> unheld_since;   // owner connection: since when no connection or wait is open
  std::optional<Time> stop_at;        // when the program was first asked to end
  std::optional<Time> ended_at;
  std::optional<Time> kept_until;  // ended: its memory stays reserved until then for the next start of its program
  Bytes peak_used;                 // most bytes that its processes were seen to use on one device
  std::vector<Booked> booked;      // each once, in the order of booking

  bool operator==(const Lease&) const = default;
  Consumer whose() const { return {uid, consumer}; }
  bool ended() const { return state == LeaseState::ended; }
  // A lease reserves from `offered` to `resuming`.
  bool reserves() const { return state != LeaseState::queued && state != LeaseState::ended; }
  bool parked() const { return state == LeaseState::paused || state == LeaseState::poisoned; }
  // Total time parked since its grant: the lease reserved only its residue.
  Duration parked_until(Time now) const {
    return parked_for + (parked_at ? std::max(now - *parked_at, Duration{}) : Duration{});
  }
  // The time by which its limits run. It stands still from the pause order until the program runs again.
  Time clock(Time now) const { return parking ? parking->since : now; }
  std::optional<Duration> time_left(Time now) const {
    return expires_at ? std::optional(std::max(*expires_at - clock(now), Duration{})) : std::nullopt;
  }
  void count_parked(Time now);  // call after a change of its state
  void count_size(Time now);    // call before an active lease gets another size
  // The start of its run, moved by the time parked: it has run for `now` less this. `now` before its grant.
  Time runs_since(Time now) const { return granted_at ? *granted_at + parked_until(now) : now; }
  // Bytes that the lease may hold on each of its devices without a listed process, because some of it may be parked.
  // The driver's bytes for parked processes belong to no listed process.
  Bytes kept_unseen() const {
    if (!parking || state != LeaseState::pausing) return parking ? parking->residue : Bytes{};
    const std::size_t locked = parking->locked_processes ? parking->locked_processes->size() : 0;
    return std::min(static_cast<std::int64_t>(locked) * driver_keeps, parking->residue);
  }
  // The bytes that the lease reserves on each of its devices, if it reserves.
  Bytes reserved_each() const { return parked() ? parking->residue : vram; }
  // The bytes that it reserves on all its devices together.
  Bytes reserved() const { return reserves() ? static_cast<std::int64_t>(devices.size()) * reserved_each() : Bytes{}; }
  // True if it is in the queue for its first grant.
  bool queues() const { return state == LeaseState::queued && !held_back_at; }
  // True if it waits for more on its devices: to grow, or to resume.
  bool waits_in_place() const {
    return resize.has_value() || (state == LeaseState::paused && parking->resume_requested);
  }
  // The devices that it waits for, all of them; empty: it waits for `device_count` of several devices.
  std::vector<std::string> certain_devices() const;
  // The size that it waits for.
  Bytes wanted_vram() const { return resize ? resize->vram : vram; }
  // The time that orders it among waiters of its tier. A lease that was preempted keeps the place of its first request,
  // before leases that came later: what its preemptor gives back goes to it first.
  Time ordered_since() const { return is_preempted() ? queued_at : waits_since(); }
  // True if it is paused for a higher tier.
  bool is_preempted() const;
  // Since when it waits for what it waits for now.
  Time waits_since() const { return resize ? resize->queued_at : parking ? parking->since : queued_at; }
  // The bytes that must be free on each of its devices before it is granted.
  Bytes least() const { return min_vram > Bytes{} && min_vram < vram ? min_vram : vram; }
};

// True if the lease may get memory on this device: one that it named, any if it named none, or its own if it has some.
bool may_use(const Lease& lease, std::string_view device);

}  // namespace sublet::core
