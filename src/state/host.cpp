// SPDX-License-Identifier: Apache-2.0
// The park ledger.
#include "state/host.h"

#include "state/reconfigured.h"
#include "state/state.h"

#include <algorithm>

namespace sublet::core {

Bytes ledger_of(const State& state, std::uint32_t uid) {
  const auto found = state.host.of_user.find(uid);
  return found == state.host.of_user.end() ? Bytes{} : found->second;
}

bool is_alone(const State& state, std::uint32_t uid) {
  return state.leases.live_of.size() == state.leases.live_of.count(uid);
}

Bytes ledger_share(const Rules& rules) {
  return Bytes{static_cast<std::int64_t>(static_cast<double>(rules.ledger_limit.count) * rules.ledger_user_share)};
}

Bytes ledger_free(const State& state, const Rules& rules, const HostMemory& host, std::optional<std::uint32_t> uid,
                  const Lease* except) {
  const Bytes own = except != nullptr && except->parking ? except->parking->host_bytes : Bytes{};
  const Bytes unsettled = state.host.unsettled - (own > Bytes{} && !except->parking->measured ? own : Bytes{});
  const Bytes available = host.available - promised_of_machine(state);
  Bytes free = std::min(rules.ledger_limit - state.host.entries + own, available - rules.ledger_reserve - unsettled);
  if (uid && !is_alone(state, *uid)) free = std::min(free, ledger_share(rules) - ledger_of(state, *uid) + own);
  if (host.headroom) free = std::min(free, *host.headroom - unsettled);
  return std::max(free, Bytes{});
}

// Adds (`sign` 1) or takes away (-1) what the lease is entered with.
void enter(State& state, const Lease& lease, int sign) {
  if (!lease.parking) return;
  const Bytes bytes = sign * lease.parking->host_bytes;
  state.host.entries += bytes;
  count_parked(state, lease, sign);
  if (!lease.parking->measured) state.host.unsettled += bytes;
  Bytes& of_user = state.host.of_user[lease.uid];
  of_user += bytes;
  if (of_user == Bytes{}) state.host.of_user.erase(lease.uid);
  state.preemption.stale |= sign < 0 && lease.parking->host_bytes > Bytes{};  // others may fit in there now
  if (sign > 0) state.pauses.away.insert(lease.id);
  else state.pauses.away.erase(lease.id);
  if (sign > 0 && lease.state == LeaseState::pausing) state.pauses.pausing.insert(lease.id);
  else state.pauses.pausing.erase(lease.id);
}

}  // namespace sublet::core
