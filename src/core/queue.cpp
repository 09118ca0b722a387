// SPDX-License-Identifier: Apache-2.0
#include "core/queue.h"

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
  tree_of(entry).insert(entry.key, entry.bytes, entry.waits_since);
  all_.insert(entry.key, entry.bytes, entry.waits_since);
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
    const bool fixed = entry.key.fixed;
    entry.key = queue_key(like, aging_);
    entry.key.fixed = fixed;
    plant(entry);
  }
}

void Queue::insert(const Lease& lease) {
  assert(!contains(lease.id) && "a lease waits once");
  const Bytes total = lease.device_count * lease.vram;
  const Entry entry{queue_key(lease, aging_), lease.priority,      lease.queued_at,
                    lease.queued_at,          lease.least(),       total,
                    lease.device_count,       lease.wanted_devices};
  insert(lease.id, entry);
}

void Queue::insert_in_place(const Lease& lease, Bytes need) {
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
  insert(lease.id, Entry{queue_key(like, aging_), lease.priority, like.queued_at, waits_since, need, total,
                         several ? 0 : 1, named});
}

void Queue::insert(LeaseId lease, Entry entry) {
  ++revision_;
  entry.key.fixed = entry.count == 0 || std::ssize(entry.devices) == entry.count;
  plant(entry);
  waiting_ += static_cast<std::uint64_t>(entry.total.count);
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
  all_.erase(entry.key);
  QueueTree& tree = tree_of(entry);
  tree.erase(entry.key);
  // The tree of those that want one device, whichever, is kept with its nodes for those that come; others are not.
  if (tree.size() == 0) {
    if (entry.devices.size() > 1) subsets_.erase({entry.devices, entry.count});
    else if (entry.devices.size() == 1) named_.erase(entry.devices.front());
    else if (entry.count > 1) any_.erase(entry.count);
  }
  waiting_ -= static_cast<std::uint64_t>(entry.total.count);
  entries_.erase(found);
}

std::size_t Queue::place(LeaseId lease) const {
  const auto entry = entries_.find(lease);
  return entry == entries_.end() ? 0 : all_.before(entry->second.key) + 1;
}

std::size_t Queue::place_of(const Lease& lease) const { return all_.before(queue_key(lease, aging_)) + 1; }

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
