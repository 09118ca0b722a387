// SPDX-License-Identifier: Apache-2.0
#include "state/turns.h"

#include <algorithm>
#include <optional>

namespace sublet::core {

std::vector<AccountId> Turns::path(LeaseId lease) const {
  std::vector<AccountId> all;
  for (AccountId id = account_of(state_, lease); id != 0; id = account(state_, id).parent) all.push_back(id);
  std::ranges::reverse(all);
  return all;
}

void Turns::add(LeaseId lease) {
  for (const AccountId id : path(lease)) {
    const auto [at, is_new] = services_.try_emplace(id);
    if (!is_new) continue;
    Service& service = at->second;
    service.place = services_.size();
    for (const std::string& uuid : devices_) {
      const auto shares = state_.preemption.turns.find({uuid, tier_});
      if (shares == state_.preemption.turns.end()) continue;
      service.had += shares->second.of(id, now_);
      service.rate += shares->second.amount(id);
    }
    const int weight = weight_of(account(state_, id));
    service.had = service.had * usual_weight / weight;
    service.rate = service.rate * usual_weight / weight;
  }
}

std::pair<const Turns::Service*, const Turns::Service*> Turns::part(LeaseId a, LeaseId b) const {
  const std::vector<AccountId> of_a = path(a), of_b = path(b);
  const auto [at_a, at_b] = std::ranges::mismatch(of_a, of_b);
  if (at_a == of_a.end() || at_b == of_b.end()) return {};
  return {&services_.at(*at_a), &services_.at(*at_b)};
}

std::strong_ordering Turns::compare(LeaseId a, LeaseId b, Time at) const {
  const auto [of_a, of_b] = part(a, b);
  if (of_a == nullptr) return std::strong_ordering::equal;
  const Integral had_a = of_a->at(at - now_), had_b = of_b->at(at - now_);
  if (had_a != had_b) return had_a < had_b ? std::strong_ordering::less : std::strong_ordering::greater;
  return of_a->place <=> of_b->place;
}

Time Turns::passes(LeaseId waiter, LeaseId lease) const {
  const auto [own, other] = part(waiter, lease);
  if (own == nullptr || own->had < other->had) return now_;
  const Integral ahead = own->had - other->had, closes = other->rate - own->rate;
  if (ahead == 0 && own->place < other->place) return now_;
  if (closes <= 0) return Time::never();
  return after(now_, Duration(static_cast<std::int64_t>(std::min<Integral>(ahead / closes + 1, INT64_MAX / 2))));
}

// A tenant that comes has had as much as the tenant beside it that has had least for its weight.
static Integral least_beside(const State& state, const Shares<AccountId>& shares, AccountId id, Time now) {
  std::optional<Integral> least;
  for (const AccountId other : shares.keys()) {
    if (other == id || account(state, other).parent != account(state, id).parent) continue;
    const Integral had = shares.of(other, now) / weight_of(account(state, other));
    least = std::min(least.value_or(had), had);
  }
  return least.value_or(0) * weight_of(account(state, id));
}

void count_turns(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                 Time now) {
  const auto device = state.devices.by_uuid.find(where.first);
  std::map<AccountId, std::int64_t> holds;
  for (const LeaseId member : members) {
    const Lease& lease = *find(state, member);
    const bool has = lease.state == LeaseState::active && device->second.leases.contains(member);
    const std::int64_t bytes = has ? charged_on(state, lease, where.first).count : 0;
    for (AccountId id = account_of(state, member); id != 0; id = account(state, id).parent) holds[id] += bytes;
  }
  Shares<AccountId>& shares = state.preemption.turns[where];
  shares.erase_if([&holds](AccountId id) { return !holds.contains(id); });
  for (const auto& [id, bytes] : holds) {
    if (!shares.contains(id)) shares.start(id, least_beside(state, shares, id, now), now);
    shares.hold(id, bytes, now);
  }
}

}  // namespace sublet::core
