// SPDX-License-Identifier: Apache-2.0
#include "state/tenants.h"

#include "state/state.h"

#include <algorithm>

namespace sublet::core {

TenantTree::TenantTree(const std::vector<Tenant>& tenants) {
  auto all = std::make_shared<All>();
  for (const Tenant& tenant : tenants) all->entries.emplace(tenant.name, tenant);
  for (const Tenant& tenant : tenants) {
    if (!tenant.quota.stated()) continue;
    ++all->quotas;
    // Each measure is kept out of the next quota above that states it.
    const auto next_above = [&](const auto& states) {
      auto above = all->entries.find(tenant.parent);
      while (above != all->entries.end() && !states(above->second.quota))
        above = all->entries.find(above->second.parent);
      return above == all->entries.end() ? nullptr : &all->kept[above->first];
    };
    if (tenant.quota.bytes)
      if (TenantAmount* kept = next_above([](const TenantAmount& quota) { return quota.bytes.has_value(); }))
        kept->bytes = kept->bytes.value_or(Bytes{}) + *tenant.quota.bytes;
    if (tenant.quota.thousandths)
      if (TenantAmount* kept = next_above([](const TenantAmount& quota) { return quota.thousandths.has_value(); }))
        kept->thousandths = kept->thousandths.value_or(0) + *tenant.quota.thousandths;
  }
  all_ = std::move(all);
}

TenantAmount TenantTree::kept(std::string_view name) const {
  const auto found = all_->kept.find(name);
  return found == all_->kept.end() ? TenantAmount{} : found->second;
}

Window window_of(const Rules& rules) {
  if (rules.tenant_half_life) return {.half_life = *rules.tenant_half_life};
  const std::int64_t slot = std::max<std::int64_t>(rules.tenant_slot.count(), 1);
  return {Duration(slot), std::max<std::int64_t>((rules.tenant_window.count() + slot - 1) / slot, 1)};
}

TenantMemory as_memory(const Device& device, Bytes bytes) {
  const std::int64_t total = device.reading.total.count;
  return {bytes, total > 0 ? static_cast<std::int64_t>(Integral{bytes.count} * 1000 / total) : 0};
}

// ------------------------------------------------------------------------------------ accounts

AccountId account_of(const State& state, LeaseId lease) {
  const auto found = state.leases.runtime.find(lease);
  return found == state.leases.runtime.end() ? 0 : found->second.account;
}

const TenantAccount& account(const State& state, AccountId id) { return state.tenants.accounts[id]; }

static AccountId make_account(Tenants& all, const std::string& name, AccountId parent, const Tenant* entry) {
  const auto id = static_cast<AccountId>(all.accounts.size());
  TenantAccount& account = all.accounts.emplace_back();
  account.name = name;
  account.parent = parent;
  account.entry = entry;
  account.next_sibling = all.accounts[parent].first_child;
  all.accounts[parent].first_child = id;
  account.guarantor = entry != nullptr && entry->quota.stated() ? id : all.accounts[parent].guarantor;
  if (account.guarantor == id) account.kept = all.by_name.kept(name);
  all.ids.emplace(name, id);
  return id;
}

static AccountId open_tenant(Tenants& all, const std::string& name) {
  if (const auto known = all.ids.find(name); known != all.ids.end()) return known->second;
  const auto entry = all.by_name.find(name);
  if (entry == all.by_name.end()) return make_account(all, name, 0, nullptr);
  const AccountId parent = entry->second.parent.empty() ? 0 : open_tenant(all, entry->second.parent);
  return make_account(all, name, parent, &entry->second);
}

AccountId open_account(State& state, std::string_view tenant, std::string_view user, std::uint32_t uid) {
  Tenants& all = state.tenants;
  const std::string name(tenant.empty() ? user : tenant);
  const std::string whose = name + " " + std::to_string(uid);
  if (const auto known = all.ids.find(whose); known != all.ids.end()) return known->second;
  const AccountId above = name.empty() ? 0 : open_tenant(all, name);
  return make_account(all, whose, above, nullptr);
}

static void mark_moved(Tenants& all, AccountId id) {
  if (!std::exchange(all.accounts[id].moved, true)) all.moved.push_back(id);
}

// ---------------------------------------------------------------------------------------- sums

void charge_tenant(State& state, const Lease& lease, const Device& device, Bytes bytes, int sign) {
  Tenants& all = state.tenants;
  const TenantMemory change = sign * as_memory(device, bytes);
  const Bytes away = lease.state == LeaseState::paused ? std::max(lease.vram - bytes, Bytes{}) : Bytes{};
  const TenantMemory owed = sign * as_memory(device, away);
  const bool counts = lease.reserves() && lease.devices.front() == device.reading.uuid;
  const AccountId own = account_of(state, lease.id);
  for (AccountId id = own; id != 0; id = all.accounts[id].parent) {
    all.accounts[id].held += change;
    all.accounts[id].owed += owed;
    if (counts) all.accounts[id].live += sign;
    mark_moved(all, id);
  }
  TenantAccount& guarantor = all.accounts[all.accounts[own].guarantor];
  guarantor.covered += change;
  if (lease.state == LeaseState::pausing)
    guarantor.leaving += sign * as_memory(device, bytes - std::min(bytes, lease.parking->residue));
}

void charge_device(State& state, const Device& device, int sign) {
  for (const auto& [bytes, id] : device.by_charge) charge_tenant(state, *find(state, id), device, bytes, sign);
}

void count_present(State& state, LeaseId lease, int sign) {
  for (AccountId id = account_of(state, lease); id != 0; id = state.tenants.accounts[id].parent)
    state.tenants.accounts[id].present += sign;
}

void count_parked(State& state, const Lease& lease, int sign) {
  for (AccountId id = account_of(state, lease.id); id != 0; id = state.tenants.accounts[id].parent)
    state.tenants.accounts[id].parked += sign * lease.parking->host_bytes;
}

static void restore_use(Tenants& all, const TenantUse& use) {
  const std::size_t space = use.tenant.rfind(' ');
  AccountId id = 0;
  if (const auto known = all.ids.find(use.tenant); known != all.ids.end()) id = known->second;
  else if (space == std::string::npos) id = open_tenant(all, use.tenant);
  else id = make_account(all, use.tenant, space == 0 ? 0 : open_tenant(all, use.tenant.substr(0, space)), nullptr);
  all.accounts[id].bytes_used = Held::restored(use.at, use.bytes);
  all.accounts[id].devices_used = Held::restored(use.at, use.devices);
  mark_moved(all, id);
}

static bool account_is_empty(const Tenants& all, const std::string& name) {
  const auto known = all.ids.find(name);
  return known == all.ids.end() || all.accounts[known->second].bytes_used.empty();
}

void set_tenants(State& state, const std::vector<Tenant>& tenants, const std::vector<TenantUse>& used) {
  Tenants& all = state.tenants;
  const std::vector<TenantAccount> before = std::exchange(all.accounts, std::vector<TenantAccount>(1));
  all.by_name = TenantTree(tenants);
  all.ids.clear();
  all.moved.clear();
  all.due.clear();
  state.preemption.turns.clear();  // the accounts have other numbers
  for (const TenantUse& use : used) restore_use(all, use);
  for (const TenantAccount& old : before) {
    if (old.name.empty() || old.bytes_used.empty() || !account_is_empty(all, old.name)) continue;
    restore_use(all, {old.name, {}, {}, {}});
    TenantAccount& account = all.accounts[all.ids.at(old.name)];
    account.bytes_used = old.bytes_used;
    account.devices_used = old.devices_used;
    account.step = old.step;
  }
  std::vector<LeaseId> ids;
  for (const auto& [id, lease] : state.leases.by_id) ids.push_back(id);
  std::ranges::sort(ids);
  for (const LeaseId id : ids) {
    const Lease& lease = state.leases.by_id.at(id);
    state.leases.runtime.at(id).account = open_account(state, lease.tenant, lease.user, lease.uid);
    if (!lease.ended()) count_present(state, id, 1);
    if (lease.parking) count_parked(state, lease, 1);
    for (const std::string& uuid : lease.devices)
      if (const auto device = state.devices.by_uuid.find(uuid);
          device != state.devices.by_uuid.end() && device->second.leases.contains(id))
        charge_tenant(state, lease, device->second, charged_on(state, lease, uuid), 1);
  }
  for (AccountId id = 1; id < all.accounts.size(); ++id) mark_moved(all, id);
  all.replaced = true;
}

// ------------------------------------------------------------------------------------- answers

TenantStanding tenant_standing(const State& state, std::string_view name) {
  const auto id = state.tenants.ids.find(std::string(name));
  if (id == state.tenants.ids.end()) return {};
  const TenantAccount& its = account(state, id->second);
  TenantStanding standing{its.held.bytes, static_cast<int>(its.held.thousandths), {}, its.live, its.present - its.live,
                          its.parked};
  const Bytes quota = its.entry == nullptr ? Bytes{} : its.entry->quota.bytes.value_or(Bytes{});
  const bool own = its.guarantor == id->second && its.entry->quota.bytes;
  if (own) standing.borrowed = std::max(its.covered.bytes - (quota - its.kept.bytes.value_or(Bytes{})), Bytes{});
  else if (its.guarantor == 0 && state.tenants.by_name.quotas() > 0) standing.borrowed = its.held.bytes;
  return standing;
}

static TenantUse use_of(const TenantAccount& account, const Rules& rules, Time now) {
  const Window window = window_of(rules);
  return {account.name, now, account.bytes_used.by_slot(now, window), account.devices_used.by_slot(now, window)};
}

TenantUse tenant_use(const State& state, const Rules& rules, std::string_view name, Time now) {
  const auto id = state.tenants.ids.find(std::string(name));
  if (id == state.tenants.ids.end()) return {std::string(name), now, {}, {}};
  return use_of(account(state, id->second), rules, now);
}

std::vector<TenantUse> tenant_uses(const State& state, const Rules& rules, Time now) {
  std::vector<TenantUse> all;
  for (const TenantAccount& account : state.tenants.accounts)
    if (TenantUse use = use_of(account, rules, now); !use.bytes.empty()) all.push_back(std::move(use));
  std::ranges::sort(all, {}, &TenantUse::tenant);
  return all;
}

double weighted_use(const TenantAccount& account, const Rules& rules, Time now) {
  const Window window = window_of(rules);
  const auto bytes = static_cast<double>(account.bytes_used.of(now, window));
  if (rules.tenant_device_weight <= Bytes{}) return bytes * rules.tenant_byte_weight;
  const auto devices = static_cast<double>(account.devices_used.of(now, window)) / 1000;
  return bytes * rules.tenant_byte_weight + devices * static_cast<double>(rules.tenant_device_weight.count);
}

}  // namespace sublet::core
