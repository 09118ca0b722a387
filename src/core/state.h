// SPDX-License-Identifier: Apache-2.0
// All that the core knows: one value that owns its indices. Only step() and load() change it; everybody else reads.
// Not thread-safe: it belongs to the engine's loop thread.
#pragma once

#include "core/facts.h"
#include "core/lease.h"
#include "core/queue.h"
#include "core/rules.h"

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::core {

// What a lease charges on its device beyond what it asked: measured use, and what is still settling after its end.
struct Charge {
  Bytes used;               // of its processes, in the last plausible snapshot
  bool settling = false;    // ended, and not yet measured gone
};

struct Device {
  DeviceReading reading;                 // the last plausible one
  std::optional<Time> read_at;           // when that one was begun; unset: never
  std::string problem;                   // why the newest reading is not usable, "" if it is
  bool lost = false;                     // was there, is no longer listed
  std::set<LeaseId> leases;              // reserving or settling here
  Bytes charged;                         // Σ over leases of max(reserved, used)
  Bytes leased_used;                     // Σ over leases of used
  Bytes other;                           // see design: max(Σ listed under no lease, used − leased_used)
};

// How a consumer behaved before; the basis of estimates. Durations of its last runs, newest last, at most 16.
struct ConsumerHistory {
  std::vector<Duration> runs;
  Bytes peak_used;
};

class State {
 public:
  // --- reading ---
  const Lease* find(LeaseId id) const;                           // live, or ended and still settling
  const Lease* find_tag(std::uint32_t uid, std::string_view tag) const;
  const std::map<std::string, Device>& devices() const { return devices_; }   // by uuid
  const std::unordered_map<LeaseId, Lease>& leases() const { return leases_; }
  const Queue& queue() const { return queue_; }
  const ConsumerHistory* history(const std::string& consumer) const;
  const Charge& charge(LeaseId id) const;

  // Known: the newest reading is usable and not older than rules.max_age.
  bool known(const Device& device, const Rules& rules, Time now) const;
  // What may still be promised; 0 while not known. May be negative: more is taken than there is.
  Bytes effective_free(const Device& device, const Rules& rules, Time now) const;
  // Bytes a lease that reserves, or still settles, is charged on its device: max(reserved, used).
  Bytes charged(const Lease& lease) const;

  // --- restart: what the store held. Ended leases that must still settle are given too. ---
  // Owners get rules.reconnect from `now`; every lease's bytes count as reserved at once.
  static State load(std::vector<Lease> leases, std::map<std::string, ConsumerHistory> history, std::uint64_t last_id,
                    const Rules& rules, Time now);
};

}  // namespace sublet::core
