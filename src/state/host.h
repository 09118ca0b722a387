// SPDX-License-Identifier: Apache-2.0
// The park ledger: host memory that holds parked bytes.
#pragma once

#include "lease/facts.h"
#include "lease/rules.h"

#include <cstdint>
#include <map>
#include <optional>

namespace sublet::core {

struct State;

struct HostLedger {
  HostMemory memory;  // of the machine at the newest snapshot, less the bytes that were parked since
  Bytes entries;      // Σ over leases that are pausing or parked
  Bytes unsettled;    // the part of it that is promised and not yet taken
  std::map<std::uint32_t, Bytes> of_user;  // by uid; the sum is `entries`
};

Bytes ledger_of(const State& state, std::uint32_t uid);  // the entries of this user's programs
// The most that one user may have, unless no other user has leases.
Bytes ledger_share(const Rules& rules);
bool is_alone(const State& state, std::uint32_t uid);  // no other user has leases
// Bytes that may still be entered for a program of that user; unset: for a user who may take all. `except`: a lease
// whose own entry does not count.
Bytes ledger_free(const State& state, const Rules& rules, const HostMemory& host, std::optional<std::uint32_t> uid = {},
                  const Lease* except = nullptr);

// Adds (`sign` 1) or takes away (-1) the entry of the lease.
void enter(State& state, const Lease& lease, int sign);

}  // namespace sublet::core
