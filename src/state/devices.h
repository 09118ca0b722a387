// SPDX-License-Identifier: Apache-2.0
// The devices: their readings, what is charged on them, and indices over all of them. Functions that take a State& are
// for the core alone, and keep the indices true.
#pragma once

#include "base/by_name.h"
#include "lease/facts.h"
#include "lease/rules.h"
#include "state/lasting_use.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::core {

struct State;

// The driver reads the figures of one reading one after the other, so that a program may allocate a little between
// them.
inline constexpr Bytes reading_slack = 64 * MiB;

// A known device, ordered by its free memory, then by the order of devices, then by its uuid.
struct DeviceFree {
  Bytes free;
  int index = 0;             // DeviceReading::order()
  std::string device;        // uuid
  std::uint32_t number = 0;  // the device's number, not compared
  bool operator==(const DeviceFree&) const = default;
  bool operator<(const DeviceFree& other) const {
    if (free != other.free) return free < other.free;
    return index != other.index ? index < other.index : device < other.device;
  }
};

// Orders the leases of a device by their charge, the largest first.
struct ChargedLease {
  Bytes charged;
  LeaseId lease;
  bool operator<(const ChargedLease& other) const {
    return charged != other.charged ? charged > other.charged : lease < other.lease;
  }
};

// The memory of a lease's processes on a device that the lease does not have.
struct StrayUse {
  Bytes used;
  Bytes computing;  // the part of processes that do more than draw
};

struct Device {
  std::uint32_t number = 0;            // unique in a state, never used again
  DeviceReading reading;               // the last plausible reading
  std::optional<Time> read_at;         // when that reading began; unset: never read
  std::string problem;                 // why the newest reading is not usable, "" if it is
  bool lost = false;                   // known or named by a lease, and not listed any more
  int missing = 0;                     // number of snapshots in a row without it
  std::optional<Time> missing_since;   // when the first of those snapshots began
  std::set<LeaseId> leases;            // reserving or settling here
  std::set<ChargedLease> by_charge;    // the same leases, the largest first
  Bytes charged;                       // Σ over leases of max(reserved, used)
  Bytes leased_used;                   // Σ over leases of used
  Bytes settling;                      // the part of `charged` of leases that have ended
  Bytes unleased;                      // Σ of the listed processes without a lease here
  std::map<LeaseId, StrayUse> strays;  // of leases that were not here at the last plausible reading (over_limit.h)
  Bytes unlisted;  // used bytes that are of no listed process, not kept by the driver and not `arrived`
  // The leases here that might be victims, by tier (state/methods.h).
  struct Claimable {
    int leases = 0;
    Bytes charged;
  };
  std::array<Claimable, tier_count> might_yield{};
  int pausing = 0;         // number of leases that are pausing here
  int parked = 0;          // number of leases that are parked here
  Bytes shrinking;         // Σ over leases of bytes given back since the last measurement
  Bytes residues;          // Σ of the residues of parked leases
  Bytes residues_to_come;  // Σ of the residues of pausing leases
  Bytes kept_unseen;       // Σ over leases of bytes that they may hold here unlisted
  Bytes arrived;           // unlisted bytes that came while leases resume here, and are theirs
  // max(unleased, used − leased_used − kept_unseen − arrived): hidden and dying processes hold bytes too. The bytes in
  // kept_unseen and arrived are part of `charged`, so that `charged` + `other` is never less than `used`.
  Bytes other;
  LastingUse lasting;  // the part of `other` that has been there for a minute, as of the last plausible reading

  // Its entries in the indices over all devices.
  struct Indexed {
    bool moved = false;  // the device changed since the last reindex
    std::optional<DeviceFree> room;
    std::optional<Time> age;
    std::optional<Bytes> capacity;
  };
  Indexed indexed;
};

struct Devices {
  ByName<Device> by_uuid;
  // Known devices in service, the one with the least free memory first, as of the last step. A device whose reading is
  // too old since is still listed; is_known() tells.
  std::set<DeviceFree> by_free;
  std::set<std::pair<Time, std::string>> ages;         // the same, by the age of their reading
  std::set<std::pair<Bytes, std::string>> capacities;  // devices that were ever read; headroom not taken off
  std::uint32_t last_number = 0;                       // of a device
  std::map<std::string, std::string, std::less<>> out_of_service;  // uuids of devices that grant nothing, and why
  std::vector<std::string> moved;                                  // uuids of devices that are not reindexed yet
  std::vector<std::string> opened;  // uuids of devices with more free memory than when all waiters were last looked at
  std::optional<std::pair<Bytes, Duration>> indexed_under;     // headroom and max_age that the indices rest on
  std::array<std::set<std::string>, tier_count> with_victims;  // uuids of devices with possible victims, by their tier
  // Uuids of devices with a paused lease beside leases with memory of its tier or a lower one, as of the last step.
  std::set<std::string> with_paused_above;
  std::set<std::string> unified;  // uuids of devices with the memory of the machine
  Time snapshot_began;            // of the newest snapshot
  std::string snapshot_problem;  // why the last attempt at a snapshot failed; "" if it succeeded
};

// The device of this uuid, or of this name or index ("gpu0", "0"); null if there is none.
const Device* find_device(const State& state, std::string_view name);
// The uuids of devices that are given so, sorted and each once. A name of no device stays as it is.
std::vector<std::string> uuids_of(const State& state, const std::vector<std::string>& names);
// The same devices in the order of their indices.
std::vector<std::string> sort_by_index(const State& state, std::vector<std::string> uuids);

// True if the newest reading is usable, not older than rules.max_age, and not followed by a failure to read.
bool is_known(const State& state, const Device& device, const Rules& rules, Time now);
bool is_in_service(const State& state, std::string_view uuid);
// True if memory of the device may be promised: it is known and in service.
bool may_grant_on(const State& state, const Device& device, const Rules& rules, Time now);
// True if the device has been missing for so long, and so often, that the driver did not just miss it for a moment.
bool is_given_up(const Device& device, const Rules& rules, Time now);
// The first device of the lease that is given up; null: none.
const Device* given_up_device(const State& state, const Lease& lease, const Rules& rules, Time now);
// Bytes that may still be promised; 0 while not known or out of service. Negative if more is taken than there is.
Bytes free_on(const State& state, const Device& device, const Rules& rules, Time now);
// The free memory by the last reading, known or not.
Bytes unclaimed_on(const Device& device, const Rules& rules);
// The most that one lease could ever get on the device: total − driver's reserve − headroom, and less what a unified
// device leaves to the system.
Bytes capacity_of(const Device& device, const Rules& rules);
// The device with the `count`th largest capacity of those that were ever read; null: there are not so many.
const Device* capacity_for(const State& state, int count);
// The same among these devices only.
const Device* capacity_for(const State& state, int count, const std::vector<std::string>& uuids);
// Devices that were named but never read.
std::size_t count_unread(const State& state);
// The part of these residues that the headroom takes: no lease loses these bytes.
Bytes in_headroom(const State& state, Bytes residues);
// The part of a lease's residue that was in the headroom, and no loss to waiters: a loss once the lease is back.
Bytes leaves_headroom(const State& state, const Lease& lease, std::string_view device);
// The most that the lease could have there while the leases parked beside it stay parked.
Bytes most_beside_others(const State& state, const Lease& lease, const Device& device);
// True if a lease of this tier or a lower one may be a victim for anybody (might_yield()).
bool may_have_victims(const State& state, Tier tier);
// The devices with a lease of just this tier that may be a victim; uuids.
const std::set<std::string>& devices_with_victims(const State& state, Tier tier);

// True if leases there could be paused for a paused lease, or are leaving.
bool has_paused_above(const State& state, const Device& device);

Device& device_entry(State& state, const std::string& uuid);
void forget_device(State& state, const std::string& uuid);  // only for a device without bookings
void refresh_other(State& state, Device& device);
// The indices over all devices are updated on the next query, because a snapshot changes a device many times.
void mark_moved(State& state, Device& device);
void reindex(State& state, const Rules& rules, Time now);
void reindex(State& state, Device& device, const Rules& rules, Time now);

}  // namespace sublet::core
