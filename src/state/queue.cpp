// SPDX-License-Identifier: Apache-2.0
#include "state/queue.h"

#include <cassert>
#include <cmath>

namespace sublet::core {

QueueTree& Queue::tree_of(const Entry& entry) {
  if (entry.count == 0) return sets_;
  if (entry.devices.empty()) return any_[entry.count];
  if (entry.devices.size() == 1) return named_[entry.devices.front()];
  return subsets_[{entry.devices, entry.count}];
}

void Queue::plant(const Entry& entry) {
  if (!entry.key.limited) tree_of(entry).insert(entry.key, entry.bytes, entry.waits_since);
  all_.insert(entry.key, entry.bytes, entry.waits_since);
}

void Queue::uproot(const Entry& entry) {
  all_.erase(entry.key);
  if (entry.key.limited) return;
  QueueTree& tree = tree_of(entry);
  tree.erase(entry.key);
  // The tree of those that want one device, whichever, is kept with its nodes for those that come; others are not.
  if (tree.size() == 0) {
    if (entry.devices.size() > 1) subsets_.erase({entry.devices, entry.count});
    else if (entry.devices.size() == 1) named_.erase(entry.devices.front());
    else if (entry.count > 1) any_.erase(entry.count);
  }
}

void Queue::set_aging(double per_minute) {
  if (per_minute == aging_ || std::isnan(per_minute)) return;
  aging_ = per_minute;
  ++revision_;
  named_.clear();
  any_.clear();
  subsets_.clear();
  sets_ = {};
  all_ = {};
  for (auto& [id, entry] : entries_) {
    Lease like;
    like.id = id;
    like.tier = entry.key.tier;
    like.priority = entry.priority;
    like.queued_at = entry.queued_at;
    const QueueKey old = entry.key;
    entry.key = queue_key(like, aging_, {entry.account, old.limited, old.guaranteed, old.share});
    entry.key.fixed = old.fixed;
    plant(entry);
  }
}

void Queue::insert(const Lease& lease, const TenantPlace& by_tenant) {
  assert(!contains(lease.id) && "a lease waits once");
  const Bytes total = lease.device_count * lease.vram;
  insert(lease.id, {.key = queue_key(lease, aging_, by_tenant),
                    .account = by_tenant.account,
                    .priority = lease.priority,
                    .queued_at = lease.queued_at,
                    .waits_since = lease.queued_at,
                    .bytes = lease.least(),
                    .total = total,
                    .count = lease.device_count,
                    .devices = lease.wanted_devices});
}

void Queue::insert_in_place(const Lease& lease, Bytes need, const TenantPlace& by_tenant) {
  assert(!contains(lease.id) && lease.waits_in_place() && "a lease waits once");
  Lease like;
  like.id = lease.id;
  like.tier = lease.tier;
  like.priority = lease.priority;
  like.queued_at = lease.ordered_since();
  const Time waits_since = lease.is_preempted() ? Time{} : lease.waits_since();
  const bool several = lease.devices.size() > 1;
  const std::vector<std::string> named = several ? std::vector<std::string>() : lease.devices;
  // A paused lease requests its size, although it keeps its residue meanwhile; a growing lease requests the rest.
  const Bytes requested = lease.parking ? std::max(lease.vram, need) : need;
  const Bytes total = static_cast<std::int64_t>(lease.devices.size()) * requested;
  insert(lease.id, {.key = queue_key(like, aging_, by_tenant),
                    .account = by_tenant.account,
                    .priority = lease.priority,
                    .queued_at = like.queued_at,
                    .waits_since = waits_since,
                    .bytes = need,
                    .total = total,
                    .count = several ? 0 : 1,
                    .devices = named});
}

void Queue::insert(LeaseId lease, Entry entry) {
  ++revision_;
  entry.key.fixed = entry.count == 0 || std::ssize(entry.devices) == entry.count;
  plant(entry);
  waiting_ += static_cast<std::uint64_t>(entry.total.count);
  of_account_[entry.account].insert(lease);
  entries_.emplace(lease, std::move(entry));
}

const QueueKey* Queue::key(LeaseId lease) const {
  const auto entry = entries_.find(lease);
  return entry == entries_.end() ? nullptr : &entry->second.key;
}

void Queue::erase(LeaseId lease) {
  const auto found = entries_.find(lease);
  assert(found != entries_.end() && "only who waits can leave");
  const Entry& entry = found->second;
  ++revision_;
  uproot(entry);
  const auto others = of_account_.find(entry.account);
  others->second.erase(lease);
  if (others->second.empty()) of_account_.erase(others);
  waiting_ -= static_cast<std::uint64_t>(entry.total.count);
  entries_.erase(found);
}

void Queue::move(LeaseId lease, const TenantPlace& by_tenant) {
  Entry& entry = entries_.at(lease);
  QueueKey key = entry.key;
  key.limited = by_tenant.limited;
  key.guaranteed = by_tenant.guaranteed;
  key.share = by_tenant.share;
  if (entry.account != by_tenant.account) {
    std::set<LeaseId>& before = of_account_.at(entry.account);
    before.erase(lease);
    if (before.empty()) of_account_.erase(entry.account);
    of_account_[by_tenant.account].insert(lease);
    entry.account = by_tenant.account;
  }
  if (key == entry.key) return;
  ++revision_;
  uproot(entry);
  entry.key = key;
  plant(entry);
}

const std::set<LeaseId>* Queue::of_account(AccountId account) const {
  const auto waiters = of_account_.find(account);
  return waiters == of_account_.end() ? nullptr : &waiters->second;
}

std::size_t Queue::place(LeaseId lease) const {
  const auto entry = entries_.find(lease);
  return entry == entries_.end() ? 0 : all_.before(entry->second.key) + 1;
}

std::size_t Queue::place_of(const Lease& lease, const TenantPlace& by_tenant) const {
  return all_.before(queue_key(lease, aging_, by_tenant)) + 1;
}

std::vector<LeaseId> Queue::in_order(std::size_t limit) const {
  std::vector<QueueKey> keys;
  all_.first(limit, keys);
  std::vector<LeaseId> result;
  result.reserve(keys.size());
  for (const QueueKey& key : keys) result.push_back(key.lease);
  return result;
}

const QueueTree* Queue::named(const std::string& device) const {
  const auto tree = named_.find(device);
  return tree == named_.end() ? nullptr : &tree->second;
}

}  // namespace sublet::core
