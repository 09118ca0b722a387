// SPDX-License-Identifier: Apache-2.0
// The output of the meter: amounts to be added to the tables. Plain data.
#pragma once

#include "meter/facts.h"

#include <tuple>

namespace sublet::meter {

inline constexpr Ms minute = 60'000, hour = 60 * minute, day = 24 * hour;

// Amounts of a lease on a device in a slot of time. Amounts without a device are in the cell of the device "".
struct Cell {
  std::int64_t leased = 0;       // bytes × ms that the lease reserved, without paused time
  std::int64_t paused = 0;       // bytes × ms of its size while it was paused
  std::int64_t used = 0;         // bytes × ms, measured
  std::int64_t used_ms = 0;      // time for which `used` is known
  std::int64_t busy = 0;         // percent × ms of GPU work
  std::int64_t busy_ms = 0;      // time for which `busy` is known
  std::int64_t judged = 0;       // the part of `leased` for which `busy` is known
  std::int64_t idle = 0;         // the part of `judged` without GPU work
  std::int64_t idle_waited = 0;  // the part of `idle` while other leases waited
  std::int64_t peak = 0;         // most bytes used; not added, the greatest counts
  // without a device:
  std::int64_t waited_ms = 0;      // time in the queue before its first grant
  std::int64_t parked = 0;         // bytes × ms in host memory
  std::int64_t moved = 0;          // bytes that pauses moved to host memory
  std::int64_t pauses_caused = 0;  // pauses of others for this lease
  std::int64_t pauses_suffered = 0;
  void add(const Cell& other);
  bool operator==(const Cell&) const = default;
};

// A device in a slot of time.
struct DeviceCell {
  std::int64_t leased = 0;   // bytes × ms
  std::int64_t used = 0;     // bytes × ms, unleased processes included
  std::int64_t used_ms = 0;  // time for which `used` is known
  std::int64_t busy = 0;     // percent × ms
  std::int64_t busy_ms = 0;
  std::int64_t total = 0;  // bytes of the device; not added
  void add(const DeviceCell& other);
  bool operator==(const DeviceCell&) const = default;
};

// A finished wait: it ended in a grant, or with the lease.
struct Wait {
  Ms at = 0;  // its end
  LeaseId lease;
  Account account;
  std::int64_t wanted = 0;  // bytes on all its devices
  Ms waited = 0;
  bool granted = false;
  bool operator==(const Wait&) const = default;
};

// A lease as the reports know it. A later row of the same lease replaces an earlier one.
struct LeaseRow {
  LeaseId lease;
  Account account;
  Ms created = 0;
  std::optional<Ms> granted{}, ended{};
  std::string end_reason{};
  core::LeaseState state = core::LeaseState::queued;
  std::int64_t wanted = 0;  // bytes on each device that it asked for
  double leased = 0;        // bytes × ms until now; a number of years is no integer
  double paused = 0;        // bytes × ms until now
  std::int64_t held = 0;    // devices × ms until now in which it reserved its size
  std::int64_t peak = 0;    // most bytes used on one device
  bool operator==(const LeaseRow&) const = default;
};

// The work of a lease's processes behind the interposer, as they say.
struct Work {
  std::int64_t launches = 0, copied = 0, allocated = 0;  // of kernels and graphs; bytes; bytes
  std::int64_t errors = 0;
  std::int64_t charged_us = 0;  // computing time that launches were charged
  std::int64_t waited_us = 0;   // for the share of the lease
  void add(const Work& other);
  bool operator==(const Work&) const = default;
};

struct Gap {
  Ms from = 0, to = 0;
  std::string what{};  // "leased": events are missing; "used": no readings
  std::string why{};
  bool operator==(const Gap&) const = default;
};

struct Deltas {
  std::map<std::tuple<Ms, std::uint64_t, std::string>, Cell> cells{};  // by minute, lease and device
  std::map<std::pair<Ms, std::string>, DeviceCell> devices{};          // by minute and device
  std::map<std::pair<Ms, std::uint64_t>, std::int64_t> checkpoints{};  // by minute and lease: bytes saved
  std::map<std::pair<Ms, std::uint64_t>, Work> work{};                 // by minute and lease
  std::map<Ms, Ms> waiting{};                                          // by minute: leases × ms that waited
  std::map<std::tuple<Ms, Account, Account>, double> pairs{};          // by minute, waiter and holder: ms
  std::vector<Wait> waits{};
  std::vector<LeaseRow> leases{};
  std::vector<Gap> gaps{};

  void add(Deltas later);
  std::size_t size() const;  // number of its entries
};

}  // namespace sublet::meter
