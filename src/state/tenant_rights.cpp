// SPDX-License-Identifier: Apache-2.0
#include "state/tenant_rights.h"

#include "base/mutants.h"

#include <algorithm>

namespace sublet::core {
namespace {

// The rest of the guarantor's quota for the leases that it covers. Unset: not stated.
struct Left {
  std::optional<Bytes> bytes;
  std::optional<std::int64_t> thousandths;
};

Left quota_left(const TenantAccount& guarantor, const TenantMemory& holds) {
  Left left;
  const TenantAmount &quota = guarantor.entry->quota, &kept = guarantor.kept;
  if (quota.bytes) left.bytes = *quota.bytes - kept.bytes.value_or(Bytes{}) - holds.bytes;
  if (quota.thousandths) left.thousandths = *quota.thousandths - kept.thousandths.value_or(0) - holds.thousandths;
  return left;
}

bool fits(const Left& left, const TenantMemory& need) {
  return (!left.bytes || need.bytes <= *left.bytes) && (!left.thousandths || need.thousandths <= *left.thousandths);
}

// The device where a size takes the largest part of those that can have at least `least`. Null: none is known.
const Device* smallest_for(const State& state, const Lease& lease, Bytes least) {
  const Device* smallest = nullptr;
  for (const std::string& uuid : lease.wanted_devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end() || device->second.reading.total < least) continue;
    if (smallest == nullptr || device->second.reading.total < smallest->reading.total) smallest = &device->second;
  }
  if (!lease.wanted_devices.empty()) return smallest;
  const auto first = state.devices.capacities.lower_bound({least, ""});
  return first == state.devices.capacities.end() ? nullptr : &state.devices.by_uuid.at(first->second);
}

bool is_unpausable(const Lease& lease) { return lease.pausable == Pausable::no && lease.tier != Tier::spot; }

// True if a tenant that the account is not part of has a guarantee.
bool others_have_quotas(const State& state, AccountId id) {
  std::size_t own = 0;
  for (; id != 0; id = account(state, id).parent) {
    const Tenant* entry = account(state, id).entry;
    own += entry != nullptr && entry->quota.stated();
  }
  return state.tenants.by_name.quotas() > own;
}

AccountId guarantor_of(const State& state, LeaseId lease) { return account(state, account_of(state, lease)).guarantor; }

std::optional<TenantBar> bar_by_limit(const State& state, AccountId id, const TenantMemory& need, int leases) {
  using What = TenantBar::What;
  const TenantAccount& its = account(state, id);
  const auto over = [&](What what, std::int64_t used, std::int64_t asked,
                        std::int64_t most) -> std::optional<TenantBar> {
    // A lease that grows into memory that it uses already needs no more, and is no less over the limit.
    if ((asked == 0 && what == What::live) || used + asked <= most || mutant(Mutant::tenants_have_no_limit))
      return std::nullopt;
    const bool unknown = what == What::devices && state.devices.capacities.empty();
    return TenantBar{what, id, used, asked, most, asked > most && !unknown};
  };
  const TenantAmount& limit = its.entry->limit;
  const TenantMemory held = its.held + its.owed;  // what is paused comes back
  std::optional<TenantBar> bar;
  if (limit.bytes) bar = over(What::bytes, held.bytes.count, need.bytes.count, limit.bytes->count);
  if (limit.thousandths) {
    const auto devices = over(What::devices, held.thousandths, need.thousandths, *limit.thousandths);
    if (devices && (!bar || (devices->alone && !bar->alone))) bar = devices;
  }
  if (!bar && its.entry->live_leases) bar = over(What::live, its.live, leases, *its.entry->live_leases);
  return bar;
}

// The bar that is told where several are met: one that the request exceeds alone, then one that refuses.
bool is_worse(const State& state, const TenantBar& a, const TenantBar& b) {
  const auto refuses = [&state](const TenantBar& bar) {
    return account(state, bar.account).entry->on_limit == OnLimit::refuse;
  };
  return a.alone != b.alone ? a.alone : refuses(a) && !refuses(b);
}

}  // namespace

TenantMemory memory_needed(const State& state, const Lease& lease, bool whole) {
  TenantMemory need;
  if (lease.waits_in_place()) {
    for (const std::string& uuid : lease.devices)
      need += as_memory(state.devices.by_uuid.at(uuid), need_on(state, lease, uuid));
    return need;
  }
  const Bytes each = whole ? lease.vram : lease.least();
  need.bytes = lease.device_count * each;
  // It may be granted anything from its least size on. Before the first reading it counts as whole devices.
  const Device* device = smallest_for(state, lease, lease.least());
  const std::int64_t part =
      device == nullptr ? 1000 : as_memory(*device, std::min(each, device->reading.total)).thousandths;
  need.thousandths = lease.device_count * part;
  return need;
}

static bool is_guaranteed_by(const State& state, const Lease& lease, AccountId guarantor, const TenantMemory& beside) {
  if (guarantor == 0) return false;
  const TenantAccount& its = account(state, guarantor);
  return fits(quota_left(its, its.covered + beside), memory_needed(state, lease, is_unpausable(lease)));
}

bool is_guaranteed(const State& state, const Lease& lease, const TenantMemory& beside) {
  return state.tenants.by_name.quotas() > 0 && is_guaranteed_by(state, lease, guarantor_of(state, lease.id), beside);
}

bool is_within_quota(const State& state, const Lease& lease) {
  const QueueKey* key = state.queue.key(lease.id);
  if (key == nullptr || !key->guaranteed) return false;
  TenantMemory beside;
  for (const PreemptionPlan& plan : state.preemption.plans) {
    if (plan.cause != Cause::quota) continue;
    for (const LeaseId id : plan.beneficiaries) {
      const QueueKey* other = state.queue.key(id);
      if (other != nullptr && other->before(*key) && guarantor_of(state, id) == guarantor_of(state, lease.id))
        beside += memory_needed(state, *find(state, id), false);
    }
  }
  return is_guaranteed(state, lease, beside);
}

std::optional<TenantBar> bar_by_tenant(const State& state, const Lease& lease) {
  return bar_by_tenant(state, lease, account_of(state, lease.id));
}

std::optional<TenantBar> bar_by_tenant(const State& state, const Lease& lease, AccountId own,
                                       const TenantMemory& spare) {
  if (state.tenants.by_name.empty() || lease.parking) return std::nullopt;  // a paused lease has its place already
  std::optional<TenantMemory> need;
  std::optional<TenantBar> bar;
  for (AccountId id = own; id != 0; id = account(state, id).parent) {
    const Tenant* entry = account(state, id).entry;
    if (entry == nullptr || (!entry->limit.stated() && !entry->live_leases)) continue;
    if (!need) need = memory_needed(state, lease, true) + -1 * spare;
    const auto its = bar_by_limit(state, id, *need, lease.waits_in_place() ? 0 : 1);
    if (its && (!bar || is_worse(state, *its, *bar))) bar = its;
  }
  const AccountId guarantor = account(state, own).guarantor;
  if (bar || !is_unpausable(lease) || !others_have_quotas(state, own) || is_guaranteed_by(state, lease, guarantor, {}))
    return bar;
  TenantBar beyond{TenantBar::What::unpausable, guarantor, 0, memory_needed(state, lease, true).bytes.count, 0, true};
  if (guarantor == 0) return beyond;
  const TenantAccount& its = account(state, guarantor);
  beyond.used = its.covered.bytes.count;
  beyond.most = quota_left(its, {}).bytes.value_or(Bytes{}).count;
  beyond.alone = !fits(quota_left(its, {}), memory_needed(state, lease, true));
  return beyond;
}

TenantPlace place_by_tenant(const State& state, const Lease& lease) {
  TenantPlace place{account_of(state, lease.id)};
  std::uint64_t share = 0;
  for (AccountId id = place.account; id != 0; id = account(state, id).parent)
    share = (share >> 8U) | (std::uint64_t{account(state, id).step} << 56U);
  place.share = share;
  if (state.tenants.by_name.empty()) return place;
  place.guaranteed = is_guaranteed(state, lease);
  place.limited = bar_by_tenant(state, lease).has_value();
  return place;
}

bool Borrowed::has(const Lease& lease) {
  const AccountId guarantor = guarantor_of(state_, lease.id);
  if (guarantor == 0) return true;
  const TenantAccount& its = account(state_, guarantor);
  const TenantMemory stays = its.covered + -1 * its.leaving + -1 * taken_[guarantor];
  const Left left = quota_left(its, stays);
  return (left.bytes && *left.bytes < Bytes{}) || (left.thousandths && *left.thousandths < 0);
}

void Borrowed::take(const Lease& lease) {
  TenantMemory& taken = taken_[guarantor_of(state_, lease.id)];
  for (const std::string& uuid : lease.devices)
    taken += as_memory(state_.devices.by_uuid.at(uuid), charged_on(state_, lease, uuid));
}

bool is_protected(const State& state, const Lease& lease) {
  if (state.tenants.by_name.quotas() == 0 || mutant(Mutant::guarantees_do_not_protect)) return false;
  return !Borrowed(state).has(lease);
}

Bytes borrowed_by(const State& state, const Lease& lease) {
  const AccountId guarantor = guarantor_of(state, lease.id);
  const AccountId tenant = account(state, account_of(state, lease.id)).parent;
  if (guarantor == 0) return account(state, tenant == 0 ? account_of(state, lease.id) : tenant).held.bytes;
  const Left left = quota_left(account(state, guarantor), account(state, guarantor).covered);
  return std::max(Bytes{} - left.bytes.value_or(Bytes{}), Bytes{});
}

std::optional<Bytes> park_left(const State& state, const Rules& rules, const Lease& lease) {
  std::optional<Bytes> left;
  for (AccountId id = account_of(state, lease.id); id != 0; id = account(state, id).parent) {
    const TenantAccount& its = account(state, id);
    if (its.entry == nullptr || !its.entry->park_share) continue;
    const Bytes share{static_cast<std::int64_t>(Integral{rules.ledger_limit.count} * *its.entry->park_share / 1000)};
    left = std::min(left.value_or(share), share - its.parked);
  }
  return left;
}

}  // namespace sublet::core
