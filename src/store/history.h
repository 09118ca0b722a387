// SPDX-License-Identifier: Apache-2.0
// What an ended lease teaches about its consumer; the same in every Store.
#pragma once

#include "store/store.h"

#include <algorithm>
#include <optional>

namespace sublet::store {

// How long it ran, if it came to its own good end: only such runs say how long the next one will take.
inline std::optional<Duration> run_of(const core::Lease& lease) {
  if (!lease.ended() || lease.end_reason != core::EndReason::released || lease.stop_requested) return std::nullopt;
  if (lease.exit_status.value_or(0) != 0 || !lease.granted_at || !lease.ended_at) return std::nullopt;
  return std::max(*lease.ended_at - lease.runs_since(*lease.ended_at), Duration::zero());
}

// Whether there is anything to be learned from it; what teaches nothing is no use of its consumer either.
inline bool teaches(Bytes peak, std::optional<Duration> run) { return run || peak > Bytes{}; }

// Of one that teaches; those of a consumer in the order of their ends.
inline void learn(ConsumerRuns& history, Bytes peak, std::optional<Duration> run, Time ended_at) {
  constexpr std::size_t runs_kept = 16;
  history.peak_used = std::max(history.peak_used, peak);
  history.last_used = ended_at;
  if (!run) return;
  if (history.runs.size() == runs_kept) history.runs.erase(history.runs.begin());
  history.runs.push_back(*run);
}

}  // namespace sublet::store
