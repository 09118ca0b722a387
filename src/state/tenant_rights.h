// SPDX-License-Identifier: Apache-2.0
// Guarantees and limits of tenants: which waiter is within the guarantee, which lease holds borrowed memory, and which
// limit is met. For this folder and src/explain; reads only.
#pragma once

#include "state/state.h"

#include <map>
#include <optional>

namespace sublet::core {

// Why a waiter gets no memory now, whatever is free.
struct TenantBar {
  enum class What {
    bytes,
    devices,     // thousandths
    live,        // number of leases
    unpausable,  // it could not be paused for a tenant with a guarantee, and is beyond its own
  } what = What::bytes;
  AccountId account = 0;  // whose limit; unpausable: of the guarantor, 0 if there is none
  std::int64_t used = 0, asked = 0, most = 0;
  bool alone = false;  // the request would exceed it alone
};

// The memory that a waiter still needs: the least that is granted, or all that it wants.
TenantMemory memory_needed(const State& state, const Lease& lease, bool whole);
// True if the waiter is within the guarantee of its tenant, once other waiters of the same quota have got `beside`.
bool is_guaranteed(const State& state, const Lease& lease, const TenantMemory& beside = {});
// True if the waiter is, beside the leases before it for which a plan frees memory of the same quota.
bool is_within_quota(const State& state, const Lease& lease);
// The limit that keeps the waiter from memory; nothing: none. `own`: the account of a lease that is only asked for;
// `spare`: memory of that account that it takes over.
std::optional<TenantBar> bar_by_tenant(const State& state, const Lease& lease);
std::optional<TenantBar> bar_by_tenant(const State& state, const Lease& lease, AccountId own,
                                       const TenantMemory& spare = {});
// The place of a waiter by its tenant.
TenantPlace place_by_tenant(const State& state, const Lease& lease);

// How much of the memory of leases may be taken for waiters outside of their guarantee: only while it is borrowed.
class Borrowed {
 public:
  explicit Borrowed(const State& state) : state_(state) {}
  // True if the lease holds borrowed memory, beside the leases that were taken so far.
  bool has(const Lease& lease);
  // The lease gives back what it is charged.
  void take(const Lease& lease);

 private:
  const State& state_;
  std::map<AccountId, TenantMemory> taken_;  // by guarantor
};

// True if the lease is within the guarantee of its tenant: it is no victim of waiters outside of theirs.
bool is_protected(const State& state, const Lease& lease);
// The bytes that the tenant of the lease holds beyond its quota, as far as they are its leases'.
Bytes borrowed_by(const State& state, const Lease& lease);
// The bytes of host memory that the tenant may still have parked; unset: no limit.
std::optional<Bytes> park_left(const State& state, const Rules& rules, const Lease& lease);

}  // namespace sublet::core
