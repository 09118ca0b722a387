// SPDX-License-Identifier: Apache-2.0
#include "state/end_estimate.h"

namespace sublet::core {
namespace {

std::optional<Duration> median_run(const State& state, const Lease& lease) {
  const ConsumerHistory* history = lease.nameless ? nullptr : history_of(state, lease.whose());
  return history == nullptr ? std::nullopt : history->median;
}

std::string median_text(const State& state, const Lease& lease) {
  const std::size_t count = history_of(state, lease.whose())->runs.size();
  return (count == 1 ? "the one earlier run" : "the median of " + std::to_string(count) + " earlier runs") + " of '" +
         lease.consumer + "'";
}

// The end of its time limit. `start` moves by the time for which it is expected to stay parked.
Time end_of_time(const Lease& lease, Time start, Time now) {
  if (!lease.expires_at) return start + *lease.ttl;
  if (!lease.parking) return *lease.expires_at;
  return after(now, start - lease.runs_since(now) + *lease.time_left(now));
}

}  // namespace

Expected expected_end(const State& state, const Rules& rules, const Lease& lease, Time start, Time now) {
  if (lease.ended()) return {Basis::settling, {}};
  if (lease.stop_requested && lease.stop_at) {
    const Time killed = *lease.stop_at + stop_grace(lease, rules);
    return {killed > now ? Basis::stopping : Basis::stop_overdue, killed};
  }
  // A token's owner renews as long as it likes; for the others the time limit is one.
  if (lease.owner.kind != OwnerKind::token && lease.ttl) {
    const Time limit = end_of_time(lease, start, now);
    return {limit > now ? Basis::limit : Basis::limit_overdue, limit};
  }
  const std::optional<Duration> run = median_run(state, lease);
  if (!run) return {};
  // A run that already takes longer than earlier runs has no expected end.
  return {start + *run > now ? Basis::history : Basis::history_overdue, start + *run};
}

std::string expected_text(const State& state, const Lease& lease, Basis basis, Time start, Time now) {
  switch (basis) {
    case Basis::settling: return "has ended, and its bytes are not measured gone yet";
    case Basis::stopping: return "is being stopped, at the latest by force";
    case Basis::stop_overdue: return "is being stopped and still lives";
    case Basis::limit: return "ends at its time limit";
    case Basis::limit_overdue: return "is past its time limit";
    case Basis::history: return "by " + median_text(state, lease);
    case Basis::history_overdue:
      return "has run for " + format_duration(now - start) + ", longer than " + median_text(state, lease) + " (" +
             format_duration(*median_run(state, lease)) + ")";
    case Basis::nothing: break;
  }
  const std::string limit = lease.ttl ? "its owner may renew it beyond its time limit" : "no time limit";
  return "has no known end: " + limit +
         (lease.nameless ? ", and its name says nothing of what runs"
                         : ", and no earlier run of '" + lease.consumer + "' to go by");
}

}  // namespace sublet::core
