// SPDX-License-Identifier: Apache-2.0
// Rules for leases whose programs hold memory on devices that the leases do not have. Pure functions.
#pragma once

#include "base/units.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace sublet::follow {

// The wish of the administrator for a process without a lease (src/enforcer/rules.h).
enum class Treatment { ignore, observe, tell, end };

// Memory of a program on a device that its lease does not have. It counts from the third sighting on.
struct Sightings {
  int count = 0;
  Time last{};
  bool told = false;
  bool operator==(const Sightings&) const = default;
};

inline constexpr int sightings_needed = 3;

// Whether a process may do the work of a lease of this user: a service of root may have started it.
inline bool may_do_work_of(std::uint32_t process_uid, std::uint32_t lease_uid) {
  return process_uid == lease_uid || process_uid == 0;
}

// A process of the lease on such a device.
struct StrayProcess {
  Treatment treatment = Treatment::observe;
  Bytes used;
  bool draws = false;   // it only draws, perhaps on the screen's device
  bool booked = false;  // its owner attached it to the lease: the end of the program would not end it
};

// The mildest treatment of the processes: an approved one spares the program. A program is ended for memory of its own
// that computes, and only for more than `slack`.
inline Treatment treatment_of(std::span<const StrayProcess> processes, Bytes slack) {
  Treatment mildest = Treatment::end;
  Bytes counted;
  for (const StrayProcess& process : processes) {
    if (process.draws || process.booked) continue;
    mildest = std::min(mildest, process.treatment);
    counted += process.used;
  }
  return counted > slack ? mildest : std::min(mildest, Treatment::tell);
}

enum class Act { none, tell, end };

// Counts a reading that shows such memory. Readings that follow each other closely count once.
inline void see(Sightings& sightings, Duration interval, Time now) {
  if (sightings.count > 0 && now - sightings.last < interval / 2) return;
  ++sightings.count;
  sightings.last = now;
}

// `may_end`: the daemon has run without a gap for long enough, and every device can be read.
inline Act judge(const Sightings& sightings, Treatment treatment, bool may_end) {
  if (treatment == Treatment::ignore || sightings.count < sightings_needed) return Act::none;
  if (!sightings.told) return Act::tell;
  return treatment == Treatment::end && may_end ? Act::end : Act::none;
}

}  // namespace sublet::follow
