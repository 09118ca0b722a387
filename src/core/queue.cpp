// SPDX-License-Identifier: Apache-2.0
#include "core/queue.h"

#include "base/planted.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sublet::core {
namespace {

constexpr double ns_per_minute = 60e9;
// Times the highest priority and added to a wall clock time in ns, it still fits in 63 bits.
constexpr std::int64_t max_ns_per_point = std::int64_t{1} << 52;

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

bool QueueKey::before(const QueueKey& other) const {
  if (tier != other.tier && !planted(Bug::tiers_are_equal)) return tier > other.tier;
  if (points != other.points) return points > other.points;
  if (since != other.since) return since < other.since;
  return lease < other.lease;
}

QueueKey queue_key(const Lease& lease, double aging_per_minute) {
  if (!(aging_per_minute > 0)) return {lease.tier, false, lease.priority, lease.queued_at.ns, lease.id};
  const double exact = std::max(std::round(ns_per_minute / aging_per_minute), 1.0);
  const std::int64_t ns_per_point =
      exact < static_cast<double>(max_ns_per_point) ? static_cast<std::int64_t>(exact) : max_ns_per_point;
  const int priority = std::clamp(lease.priority, -admin_priority_limit, admin_priority_limit);
  return {lease.tier, false, 0, lease.queued_at.ns - priority * ns_per_point, lease.id};
}

// -------------------------------------------------------------------------------- one tree

void QueueTree::update(Index at) {
  Node& node = nodes_[at];
  node.count = 1 + static_cast<std::uint32_t>(count(node.left) + count(node.right));
  node.least = node.most = node.bytes;
  node.oldest = node.queued_at;
  for (const Index child : {node.left, node.right}) {
    if (child == 0) continue;
    node.least = std::min(node.least, nodes_[child].least);
    node.most = std::max(node.most, nodes_[child].most);
    node.oldest = std::min(node.oldest, nodes_[child].oldest);
  }
}

void QueueTree::split(Index at, const QueueKey& key, Index& below, Index& rest) {
  if (at == 0) {
    below = rest = 0;
  } else if (nodes_[at].key.before(key)) {
    Index middle = 0;
    split(nodes_[at].right, key, middle, rest);
    nodes_[at].right = middle;
    below = at;
    update(at);
  } else {
    Index middle = 0;
    split(nodes_[at].left, key, below, middle);
    nodes_[at].left = middle;
    rest = at;
    update(at);
  }
}

QueueTree::Index QueueTree::merge(Index left, Index right) {
  if (left == 0 || right == 0) return left == 0 ? right : left;
  if (nodes_[left].balance > nodes_[right].balance) {
    nodes_[left].right = merge(nodes_[left].right, right);
    update(left);
    return left;
  }
  nodes_[right].left = merge(left, nodes_[right].left);
  update(right);
  return right;
}

QueueTree::Index QueueTree::insert(Index at, Index fresh) {
  if (at == 0) return fresh;
  if (nodes_[fresh].balance > nodes_[at].balance) {
    Index below = 0, rest = 0;
    split(at, nodes_[fresh].key, below, rest);
    nodes_[fresh].left = below;
    nodes_[fresh].right = rest;
    update(fresh);
    return fresh;
  }
  if (nodes_[fresh].key.before(nodes_[at].key)) {
    nodes_[at].left = insert(nodes_[at].left, fresh);
  } else {
    nodes_[at].right = insert(nodes_[at].right, fresh);
  }
  update(at);
  return at;
}

QueueTree::Index QueueTree::erase(Index at, const QueueKey& key) {
  assert(at != 0 && "erases only what was inserted");
  if (nodes_[at].key == key) {
    spare_.push_back(at);
    return merge(nodes_[at].left, nodes_[at].right);
  }
  if (key.before(nodes_[at].key)) {
    nodes_[at].left = erase(nodes_[at].left, key);
  } else {
    nodes_[at].right = erase(nodes_[at].right, key);
  }
  update(at);
  return at;
}

void QueueTree::insert(const QueueKey& key, Bytes bytes, Time queued_at) {
  Index fresh = 0;
  if (spare_.empty()) {
    fresh = static_cast<Index>(nodes_.size());
    nodes_.emplace_back();
  } else {
    fresh = spare_.back();
    spare_.pop_back();
  }
  nodes_[fresh] = {key, mix(key.lease.number), bytes, bytes, bytes, queued_at, queued_at, 1, 0, 0};
  root_ = insert(root_, fresh);
}

void QueueTree::erase(const QueueKey& key) { root_ = erase(root_, key); }

std::size_t QueueTree::before(const QueueKey& key) const {
  std::size_t result = 0;
  for (Index at = root_; at != 0;) {
    const Node& node = nodes_[at];
    if (node.key.before(key)) {
      result += 1 + count(node.left);
      at = node.right;
    } else {
      at = node.left;
    }
  }
  return result;
}

const QueueKey* QueueTree::first_within(Bytes room) const {
  Index at = root_;
  if (at == 0 || nodes_[at].least > room) return nullptr;
  for (;;) {
    const Node& node = nodes_[at];
    if (node.left != 0 && nodes_[node.left].least <= room) {
      at = node.left;
    } else if (node.bytes <= room) {
      return &node.key;
    } else {
      at = node.right;  // it must be there: somebody below asks for little enough
    }
  }
}

const QueueKey* QueueTree::first_above(Bytes bytes) const {
  Index at = root_;
  if (at == 0 || nodes_[at].most <= bytes) return nullptr;
  for (;;) {
    const Node& node = nodes_[at];
    if (node.left != 0 && nodes_[node.left].most > bytes) {
      at = node.left;
    } else if (node.bytes > bytes) {
      return &node.key;
    } else {
      at = node.right;
    }
  }
}

void QueueTree::first(std::size_t limit, std::vector<QueueKey>& out) const {
  std::vector<Index> path;
  Index at = root_;
  while (limit > 0 && (at != 0 || !path.empty())) {
    for (; at != 0; at = nodes_[at].left) path.push_back(at);
    at = path.back();
    path.pop_back();
    out.push_back(nodes_[at].key);
    --limit;
    at = nodes_[at].right;
  }
}

// In order; `below` tells whether anybody in a node's tree can be wanted, `self` whether its own waiter is.
template <typename Below, typename Self>
void QueueTree::collect(Index at, std::size_t limit, std::vector<QueueKey>& out, const Below& below,
                        const Self& self) const {
  if (at == 0 || out.size() >= limit || !below(nodes_[at])) return;
  collect(nodes_[at].left, limit, out, below, self);
  if (out.size() < limit && self(nodes_[at])) out.push_back(nodes_[at].key);
  collect(nodes_[at].right, limit, out, below, self);
}

void QueueTree::within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(
      root_, out.size() + limit, out, [room](const Node& node) { return node.least <= room; },
      [room](const Node& node) { return node.bytes <= room; });
}

void QueueTree::queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(
      root_, out.size() + limit, out, [then](const Node& node) { return node.oldest <= then; },
      [then](const Node& node) { return node.queued_at <= then; });
}

// -------------------------------------------------------------------------------- all of them

void Queue::plant(const Entry& entry) {
  QueueTree& tree = !entry.device.empty() ? named_[entry.device] : entry.count == 0 ? sets_ : any_[entry.count];
  tree.insert(entry.key, entry.bytes, entry.queued_at);
  all_.insert(entry.key, entry.bytes, entry.queued_at);
}

void Queue::set_aging(double per_minute) {
  if (per_minute == aging_ || std::isnan(per_minute)) return;
  aging_ = per_minute;
  ++revision_;
  named_.clear();
  any_.clear();
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
  const Entry entry{queue_key(lease, aging_), lease.priority,     lease.queued_at, lease.least(), total,
                    lease.device_count,       lease.wanted_device};
  insert(lease.id, entry);
}

void Queue::insert_in_place(const Lease& lease, Bytes need) {
  assert(!contains(lease.id) && lease.waits_in_place() && "a lease waits once");
  Lease like;
  like.id = lease.id;
  like.tier = lease.tier;
  like.priority = lease.priority;
  like.queued_at = lease.waits_since();
  const bool several = lease.devices.size() > 1;
  const Bytes total = static_cast<std::int64_t>(lease.devices.size()) * need;
  insert(lease.id, Entry{queue_key(like, aging_), lease.priority, like.queued_at, need, total, several ? 0 : 1,
                         several ? "" : lease.devices.front()});
}

void Queue::insert(LeaseId lease, Entry entry) {
  ++revision_;
  entry.key.fixed = entry.count == 0 || !entry.device.empty();
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
  // The tree of those that want one device, whichever, is kept with its nodes for those that come; others are not.
  if (entry.device.empty() && entry.count == 0) {
    sets_.erase(entry.key);
  } else if (entry.device.empty()) {
    const auto tree = any_.find(entry.count);
    tree->second.erase(entry.key);
    if (tree->second.size() == 0 && entry.count != 1) any_.erase(tree);
  } else {
    const auto tree = named_.find(entry.device);
    tree->second.erase(entry.key);
    if (tree->second.size() == 0) named_.erase(tree);
  }
  waiting_ -= static_cast<std::uint64_t>(entry.total.count);
  entries_.erase(found);
}

std::size_t Queue::place(LeaseId lease) const {
  const auto entry = entries_.find(lease);
  return entry == entries_.end() ? 0 : all_.before(entry->second.key) + 1;
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
