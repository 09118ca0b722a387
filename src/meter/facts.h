// SPDX-License-Identifier: Apache-2.0
// The input of the meter: events and readings as values. Times are milliseconds since 1970, as in the events.
#pragma once

#include "base/ids.h"
#include "lease/lease.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sublet::meter {

using Ms = std::int64_t;

// The names that a lease's use is charged to.
struct Account {
  std::string user, tenant, consumer;
  std::string session{};  // "session-7"; "": the lease belongs to no session
  auto operator<=>(const Account&) const = default;
};

// An event of a lease: its values from this time on.
struct LeaseFact {
  LeaseId lease;
  Ms at = 0;
  core::LeaseState state = core::LeaseState::queued;
  core::EndReason end_reason = core::EndReason::none;
  Account account;
  std::int64_t vram = 0;                       // bytes on each device
  std::vector<std::string> devices{};          // uuids
  LeaseId preemptor{};                         // a pause that begins: the waiting lease for which it is paused
  std::optional<std::int64_t> parked_bytes{};  // a pause that is complete: bytes in host memory
  bool held_back = false;                      // queued, and outside of the queue
};

// A lease that lives, as the engine knows it. It stands for events that are missing.
struct Living {
  LeaseFact fact;
  Ms created = 0;
  std::optional<Ms> granted = {};
};

// A lease belongs to this session.
struct SessionFact {
  Ms at = 0;
  LeaseId lease;
  std::string session;
  std::optional<std::int64_t> checkpoint_bytes = {};  // it has just made a checkpoint of this size
};

// The use of one device by a lease, as a snapshot tells it.
struct Use {
  std::int64_t used = 0;                 // bytes of its processes
  std::optional<int> busy_percent = {};  // GPU work of its processes; unset: not known
};

// A snapshot. A device that could not be read is missing, and so is a lease whose use is not known.
struct Reading {
  Ms at = 0;
  std::map<std::pair<std::string, std::uint64_t>, Use> uses{};  // by device and lease
  // Bytes of leases on devices that they have not leased, by device and lease.
  std::map<std::string, std::map<std::uint64_t, std::int64_t>> strays{};
  struct Device {
    std::int64_t total = 0, used = 0;      // bytes
    std::optional<int> busy_percent = {};  // unset: not known
  };
  std::map<std::string, Device> devices{};  // by uuid
  std::set<std::string> unread{};           // names of devices that could not be read now
};

// Reads an event of the log. `type` and `data` are those of /v1/events. Monostate: an event that the meter ignores, or
// that it cannot read.
std::variant<std::monostate, LeaseFact, SessionFact> parse_event(std::string_view type, std::string_view data);

}  // namespace sublet::meter
