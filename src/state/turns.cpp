// SPDX-License-Identifier: Apache-2.0
#include "state/turns.h"

#include <algorithm>
#include <optional>

namespace sublet::core {

std::int64_t in_slices(Integral had, Integral least, Integral unit) {
  return static_cast<std::int64_t>((2 * (had - least) + unit) / (2 * unit));
}

Integral service_to_pass(Integral own, Integral least, Integral unit, bool tie_does) {
  const Integral slices = in_slices(std::max(own, least), least, unit) + (tie_does ? 0 : 1);
  if (slices > 0) return least + ((2 * slices - 1) * unit + 1) / 2;
  return std::min(own - unit / 2 + 1, least);  // `other` is the least itself until then
}

std::vector<AccountId> Turns::path(LeaseId lease) const {
  std::vector<AccountId> all;
  for (AccountId id = account_of(state_, lease); id != 0; id = account(state_, id).parent) all.push_back(id);
  std::ranges::reverse(all);
  return all;
}

// The bytes that the lease wants in all.
static Integral by_weight(const Lease& lease, const TenantAccount& account) {
  return std::max<Integral>(Integral{lease.vram.count} * lease.device_count * usual_weight / weight_of(account), 1);
}

void Turns::add(const Lease& lease) {
  for (const AccountId id : path(lease.id)) {
    const auto [at, is_new] = services_.try_emplace(id);
    Service& service = at->second;
    const int weight = weight_of(account(state_, id));
    const Integral wants = by_weight(lease, account(state_, id));
    service.wants = is_new ? wants : std::min(service.wants, wants);
    if (!is_new) continue;
    service.place = services_.size();
    below_[account(state_, id).parent].push_back(id);
    for (const std::string& uuid : devices_) {
      const auto shares = state_.preemption.turns.find({uuid, tier_});
      if (shares == state_.preemption.turns.end()) continue;
      service.had += shares->second.of(id, now_);
      service.rate += shares->second.amount(id);
      service.since = std::max(service.since, shares->second.since(id));
    }
    service.had = service.had * usual_weight / weight;
    service.rate = service.rate * usual_weight / weight;
  }
}

void Turns::put_in_order(Time at, Duration slice) {
  for (const auto& [parent, ids] : below_) {
    const Service& first = services_.at(ids.front());
    Integral least = first.at(at - now_), bytes = first.wants;
    for (const AccountId id : ids) {
      least = std::min(least, services_.at(id).at(at - now_));
      bytes = std::min(bytes, services_.at(id).wants);
    }
    for (const AccountId id : ids) {
      Service& service = services_.at(id);
      service.unit = std::max<Integral>(bytes * slice.count(), 1);
      service.slices = in_slices(service.at(at - now_), least, service.unit);
    }
  }
}

void Turns::serve(const Lease& lease, Duration length, Time until) {
  for (auto& [id, service] : services_) service.had += service.rate * length.count();
  for (const AccountId id : path(lease.id)) {
    Service& service = services_.at(id);
    if (service.rate == 0) service.had += by_weight(lease, account(state_, id)) * length.count();
    service.since = until;
  }
  for (auto& [id, service] : services_) service.rate = 0;
}

bool Turns::has_at_most(LeaseId lease, std::int64_t slices) const {
  return std::ranges::all_of(path(lease), [&](AccountId id) { return services_.at(id).slices <= slices; });
}

std::pair<AccountId, AccountId> Turns::part(LeaseId a, LeaseId b) const {
  const std::vector<AccountId> of_a = path(a), of_b = path(b);
  const auto [at_a, at_b] = std::ranges::mismatch(of_a, of_b);
  if (at_a == of_a.end() || at_b == of_b.end()) return {};
  return {*at_a, *at_b};
}

// A tenant that waits comes before one that has memory, and the one that has waited longest first.
bool Turns::wins_ties(const Service& a, const Service& b) {
  if ((a.rate == 0) != (b.rate == 0)) return a.rate == 0;
  if (a.since != b.since) return a.rate == 0 ? a.since < b.since : a.since > b.since;
  return a.place < b.place;
}

std::strong_ordering Turns::compare(LeaseId a, LeaseId b) const {
  const auto [id_a, id_b] = part(a, b);
  if (id_a == 0) return std::strong_ordering::equal;
  const Service &of_a = services_.at(id_a), &of_b = services_.at(id_b);
  if (of_a.slices != of_b.slices) return of_a.slices <=> of_b.slices;
  return wins_ties(of_a, of_b) ? std::strong_ordering::less : std::strong_ordering::greater;
}

Time Turns::passes(LeaseId waiter, LeaseId lease) const {
  const auto [own_id, other_id] = part(waiter, lease);
  if (own_id == 0) return now_;
  const Service &own = services_.at(own_id), &other = services_.at(other_id);
  Integral least = own.had;
  for (const AccountId id : below_.at(account(state_, own_id).parent))
    if (id != other_id) least = std::min(least, services_.at(id).had);
  const Integral ahead = service_to_pass(own.had, least, own.unit, wins_ties(own, other)) - other.had;
  if (ahead <= 0) return now_;
  const Integral closes = other.rate - own.rate;
  if (closes <= 0) return Time::never();
  return after(now_, Duration(static_cast<std::int64_t>(std::min<Integral>(ahead / closes + 1, INT64_MAX / 2))));
}

Integral service_of_newcomer(const std::vector<std::pair<Integral, bool>>& others, Integral turn) {
  std::optional<Integral> least, least_waiting;
  Integral most = 0;
  for (const auto& [had, waits] : others) {
    least = std::min(least.value_or(had), had);
    most = std::max(most, had);
    if (waits) least_waiting = std::min(least_waiting.value_or(had), had);
  }
  if (turn == 0 || !least_waiting) return least.value_or(0);
  return std::min(*least_waiting + turn, most);
}

Duration slice_on(const State& state, const std::pair<std::string, Tier>& where) {
  for (const Rotation& rotation : state.preemption.rotations)
    if (rotation.tier == where.second && std::ranges::find(rotation.devices, where.first) != rotation.devices.end())
      return rotation.slice;
  return {};
}

static Integral service_of_tenant(const State& state, const Shares<AccountId>& shares, AccountId id, Integral turn,
                                  Time now) {
  std::vector<std::pair<Integral, bool>> others;
  for (const AccountId other : shares.keys())
    if (other != id && account(state, other).parent == account(state, id).parent)
      others.emplace_back(shares.of(other, now) / weight_of(account(state, other)), shares.amount(other) == 0);
  return service_of_newcomer(others, turn / weight_of(account(state, id))) * weight_of(account(state, id));
}

// The bytes that the members hold on the device, of each account above them.
static std::map<AccountId, std::int64_t> bytes_by_account(const State& state, const std::string& uuid,
                                                          const std::vector<LeaseId>& members) {
  std::map<AccountId, std::int64_t> holds;
  const auto device = state.devices.by_uuid.find(uuid);
  for (const LeaseId member : members) {
    const Lease* lease = find(state, member);
    if (lease == nullptr) continue;
    const bool has = lease->state == LeaseState::active && device != state.devices.by_uuid.end() &&
                     device->second.leases.contains(member);
    const std::int64_t bytes = has ? charged_on(state, *lease, uuid).count : 0;
    for (AccountId id = account_of(state, member); id != 0; id = account(state, id).parent) holds[id] += bytes;
  }
  return holds;
}

void count_holders(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                   Time now) {
  const auto shares = state.preemption.turns.find(where);
  if (shares == state.preemption.turns.end()) return;
  for (const auto& [id, bytes] : bytes_by_account(state, where.first, members))
    if (shares->second.contains(id)) shares->second.hold(id, bytes, now);
}

void count_turns(State& state, const std::pair<std::string, Tier>& where, const std::vector<LeaseId>& members,
                 Time now) {
  const Duration slice = slice_on(state, where);
  const std::map<AccountId, std::int64_t> holds = bytes_by_account(state, where.first, members);
  std::map<AccountId, std::int64_t> wants;
  for (const LeaseId member : members)
    for (AccountId id = account_of(state, member); id != 0; id = account(state, id).parent)
      wants[id] = std::max(wants[id], find(state, member)->vram.count);
  Shares<AccountId>& shares = state.preemption.turns[where];
  shares.erase_if([&holds](AccountId id) { return !holds.contains(id); });
  for (const auto& [id, bytes] : holds) {
    const Integral turn = Integral{wants[id]} * slice.count();
    if (!shares.contains(id)) shares.start(id, service_of_tenant(state, shares, id, turn, now), now);
    shares.hold(id, bytes, now);
  }
}

}  // namespace sublet::core
