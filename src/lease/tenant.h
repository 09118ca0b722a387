// SPDX-License-Identifier: Apache-2.0
// Tenants as values: what each is guaranteed, what it may have at most, and its weight. Plain data.
#pragma once

#include "base/units.h"
#include "lease/lease.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet::core {

__extension__ using Integral = __int128;  // amount × ns: bytes that are held for days take more than 64 bits

inline constexpr int usual_weight = 1000;  // of a tenant without an entry, in thousandths
inline constexpr std::size_t tenant_levels = 4;  // most levels of the tree: organisation, project, group, user

// Memory as bytes over all devices, and as devices. A lease counts by the part of each device's memory that it is
// charged for: a lease of 6 GiB on a device of 24 GiB counts 6 GiB, and a quarter of a device. Unset: not stated.
struct TenantAmount {
  std::optional<Bytes> bytes;
  std::optional<int> thousandths;  // of a device: 2000 is two devices
  bool stated() const { return bytes || thousandths; }
  bool operator==(const TenantAmount&) const = default;
};

// The answer to a request over a limit.
enum class OnLimit { refuse, queue };

// An entry of the tree. A tenant without an entry is directly below the machine, has the usual weight and no limits.
struct Tenant {
  std::string name;    // unique in the tree
  std::string parent;  // "": directly below the machine
  TenantAmount quota;  // guaranteed; what it does not use may be borrowed
  TenantAmount limit;  // at most
  std::optional<int> live_leases, queued_leases;  // at most
  std::optional<Duration> longest_lease;          // most time to live, and the one of leases that ask for none
  OnLimit on_limit = OnLimit::queue;              // for `limit` and `live_leases`
  int weight = usual_weight;                      // in thousandths, 1 or more
  std::vector<Tier> tiers;                        // allowed; empty: all
  std::optional<int> highest_priority;
  std::optional<int> park_share;  // of the park ledger's limit, in thousandths
  bool operator==(const Tenant&) const = default;
};

// The use of a tenant that counts, stored so that a restart goes on with it.
struct TenantUse {
  std::string tenant;
  Time at;  // up to which it counts
  std::vector<std::pair<std::int64_t, Integral>> bytes, devices;  // byte-ns and thousandths-ns, by slot
  bool operator==(const TenantUse&) const = default;
};

}  // namespace sublet::core
