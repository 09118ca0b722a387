// SPDX-License-Identifier: Apache-2.0
// The configuration that decisions depend on; the key of each is in packaging/sublet.toml.
#pragma once

#include "base/units.h"
#include "lease/lease.h"
#include "placement/placement.h"

#include <optional>
#include <string>

namespace sublet::core {

// The daemon crashed several times: it keeps everything as it is, and begins nothing (docs/decisions/0025).
struct SafeMode {
  Time until;       // by the wall clock
  std::string why;  // one sentence
};

struct Rules {
  Duration claim_window = std::chrono::seconds(10);    // queue.claim_window
  double aging_per_minute = 1.0;                       // queue.aging_per_minute: points of priority a minute
  Duration reserve_after = std::chrono::minutes(5);    // queue.reserve_after: then memory is reserved; 0: never
  Duration linger = std::chrono::seconds(5);           // lease.linger
  Duration reconnect = std::chrono::seconds(30);       // lease.reconnect
  Duration grace = std::chrono::seconds(30);           // lease.grace
  Bytes headroom = 256 * MiB;                          // device.headroom
  Duration max_age = std::chrono::seconds(15);         // gpu.max_age
  Bytes ledger_limit = 32 * GiB;                       // ledger.limit: parked bytes in host memory
  Bytes ledger_reserve = 2 * GiB;                      // ledger.reserve: host memory that parking leaves free
  std::optional<Bytes> host_memory;                    // host memory of the machine; unset: unknown
  double ledger_user_share = 0.75;                     // ledger.user_share: of the limit, that one user may take
  double ledger_max_pressure = 0.1;                    // ledger.max_pressure: of HostMemory, above it nobody is paused
  bool allow_swap = false;                             // ledger.allow_swap: park although it may be swapped out
  Duration verify_timeout = std::chrono::seconds(30);  // pause.verify_timeout
  bool automatic = true;                               // pause.automatic: tiers preempt, equal tiers share
  double slice_overhead = 0.10;                        // pause.slice_overhead: part of the time, for switches
  std::optional<Duration> min_residency;               // pause.min_residency; unset: max(10 s, 10 × a switch)
  Duration cooldown = std::chrono::seconds(10);        // pause.cooldown: of one whose pause failed; doubled each time
  Duration spot_unused_after =
      std::chrono::minutes(2);                        // pause.spot_unused_after: until a spot program must use a card
  Duration yield_timeout = std::chrono::seconds(30);  // pause.yield_timeout: of a program that never yielded before
  Duration orphan_after = std::chrono::hours(24);     // pause.orphan_after: a parked lease without a process ends
  Duration forget_after = std::chrono::minutes(10);   // gpu.forget_after: a device that is gone for so long stays gone
  Duration tenant_window = std::chrono::hours(2);     // tenants.window: past use counts for so long
  Duration tenant_slot = std::chrono::hours(1);       // tenants.slot: use leaves the window by these slots
  std::optional<Duration> tenant_half_life;           // tenants.half_life: use fades instead; unset: it does not
  double tenant_byte_weight = 1;                      // tenants.byte_weight: of byte-seconds
  Bytes tenant_device_weight;                         // tenants.device_weight: a device-second counts as so many more
  placement::Policy placement = placement::Policy::fragmentation;  // placement.policy
  std::optional<SafeMode> safe_mode;                               // while the daemon is in it
};

// A program over its ceiling takes memory that others count on, so it gets less time to end than others.
inline constexpr Duration over_limit_grace = std::chrono::seconds(2);
// The time between SIGTERM and SIGKILL when the program of this lease is ended.
inline Duration stop_grace(const Lease& lease, const Rules& rules) {
  return lease.end_reason == EndReason::over_limit ? std::min(over_limit_grace, rules.grace) : rules.grace;
}

}  // namespace sublet::core
