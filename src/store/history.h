// SPDX-License-Identifier: Apache-2.0
// The facts that an ended lease adds to its consumer's history. All Stores share this code.
#pragma once

#include "store/store.h"

#include <algorithm>
#include <optional>

namespace sublet::store {

// Returns the run time of a lease that was released normally. Only such leases predict the next run time. Else nothing.
inline std::optional<Duration> run_of(const core::Lease& lease) {
  if (!lease.ended() || lease.end_reason != core::EndReason::released || lease.stop_requested) return std::nullopt;
  if (lease.exit_status.value_or(0) != 0 || !lease.granted_at || !lease.ended_at) return std::nullopt;
  return std::max(*lease.ended_at - lease.runs_since(*lease.ended_at), Duration::zero());
}

// Whether the lease adds to its consumer's history. If not, it does not count as a use of the consumer either.
inline bool teaches(Bytes peak, std::optional<Duration> run) { return run || peak > Bytes{}; }

// Adds a lease for which teaches() is true. Call in the order in which the consumer's leases ended.
inline void learn(ConsumerRuns& history, Bytes peak, std::optional<Duration> run, Time ended_at) {
  constexpr std::size_t runs_kept = 16;
  history.peak_used = std::max(history.peak_used, peak);
  history.last_used = ended_at;
  if (!run) return;
  if (history.runs.size() == runs_kept) history.runs.erase(history.runs.begin());
  history.runs.push_back(*run);
}

}  // namespace sublet::store
