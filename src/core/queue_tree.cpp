// SPDX-License-Identifier: Apache-2.0
#include "core/queue_tree.h"
#include "core/rank.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace sublet::core {
namespace {

constexpr double ns_per_minute = 60e9;
// Times the highest priority and added to a wall clock time in ns, it still fits in 63 bits.
constexpr std::int64_t max_ns_per_point = std::int64_t{1} << 52;

}  // namespace

bool QueueKey::before(const QueueKey& other) const {
  if (tier != other.tier) return outranks(tier, other.tier);
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

// -------------------------------------------------------------------------------- entries and blocks

void QueueTree::Entry::add(const Entry& fresh) {
  if (fresh.key.before(key)) key = fresh.key;
  least = std::min(least, fresh.least);
  most = std::max(most, fresh.most);
  oldest = std::min(oldest, fresh.oldest);
  count += fresh.count;
}

bool QueueTree::Entry::needs(const Entry& gone) const {
  return gone.least <= least || gone.most >= most || gone.oldest <= oldest || gone.key == key;
}

void QueueTree::Block::put(std::size_t place, const Entry& entry) {
  Entry* const at = entries.data() + place;
  std::copy_backward(at, entries.data() + size, entries.data() + size + 1);
  *at = entry;
  ++size;
}

void QueueTree::Block::cut(std::size_t place) {
  Entry* const at = entries.data() + place;
  std::copy(at + 1, entries.data() + size, at);
  --size;
}

std::size_t QueueTree::Block::place_of(const QueueKey& key) const {
  const Entry* found =
      std::partition_point(begin(), end(), [&key](const Entry& entry) { return entry.key.before(key); });
  return static_cast<std::size_t>(found - begin());
}

std::size_t QueueTree::Block::above(const QueueKey& key) const {
  const Entry* later =
      std::partition_point(begin(), end(), [&key](const Entry& entry) { return !key.before(entry.key); });
  return later == begin() ? 0 : static_cast<std::size_t>(later - begin() - 1);
}

QueueTree::Entry QueueTree::sum(Index at) const {
  const Block& block = blocks_[at];
  Entry sum = block.entries.front();
  sum.below = at;
  for (const Entry* entry = block.begin() + 1; entry < block.end(); ++entry) sum.add(*entry);
  return sum;
}

QueueTree::Index QueueTree::fresh_block() {
  if (spare_.empty()) {
    blocks_.emplace_back();
    return static_cast<Index>(blocks_.size() - 1);
  }
  const Index fresh = spare_.back();
  spare_.pop_back();
  blocks_[fresh].size = 0;
  return fresh;
}

// -------------------------------------------------------------------------------- changing

void QueueTree::insert(const QueueKey& key, Bytes bytes, Time queued_at) {
  const Entry fresh{key, bytes, bytes, queued_at, 1, 0};
  const auto split = insert(all_.below, height_, fresh);
  if (split) {
    const Index top = fresh_block();
    blocks_[top].put(0, sum(all_.below));
    blocks_[top].put(1, *split);
    all_.below = top;
    ++height_;
  }
  if (split || all_.count == 0) all_ = sum(all_.below);
  else all_.add(fresh);
}

std::optional<QueueTree::Entry> QueueTree::insert(Index at, int height, const Entry& fresh) {
  Entry added = fresh;
  std::size_t place = 0;
  if (height == 0) {
    place = blocks_[at].place_of(fresh.key);
  } else {
    const std::size_t child = blocks_[at].above(fresh.key);
    const Index below = blocks_[at].entries[child].below;
    const auto split = insert(below, height - 1, fresh);
    Entry& entry = blocks_[at].entries[child];  // only now: the blocks may have moved
    if (!split) {
      entry.add(fresh);
      return std::nullopt;
    }
    entry = sum(below);
    added = *split;
    place = child + 1;
  }
  if (blocks_[at].size < width) {
    blocks_[at].put(place, added);
    return std::nullopt;
  }
  const Index right = fresh_block();
  Block& full = blocks_[at];
  Block& half = blocks_[right];
  std::copy(full.begin() + width / 2, full.end(), half.entries.begin());
  full.size = width / 2;
  half.size = width - width / 2;
  if (place <= full.size) full.put(place, added);
  else half.put(place - full.size, added);
  return sum(right);
}

void QueueTree::erase(const QueueKey& key) {
  const Entry gone = erase(all_.below, height_, key);
  if (--all_.count > 0 && all_.needs(gone)) all_ = sum(all_.below);
  while (height_ > 0 && blocks_[all_.below].size == 1) {
    spare_.push_back(all_.below);
    all_.below = blocks_[all_.below].entries.front().below;
    --height_;
  }
}

QueueTree::Entry QueueTree::erase(Index at, int height, const QueueKey& key) {
  Block& block = blocks_[at];
  if (height == 0) {
    const std::size_t place = block.place_of(key);
    assert(place < block.size && block.entries[place].key == key && "erases only what was inserted");
    const Entry gone = block.entries[place];
    block.cut(place);
    return gone;
  }
  const std::size_t child = block.above(key);
  Entry& entry = block.entries[child];
  const Entry gone = erase(entry.below, height - 1, key);
  const std::size_t left = blocks_[entry.below].size;
  if (left == 0) {
    spare_.push_back(entry.below);
    block.cut(child);
    return gone;
  }
  if (entry.needs(gone)) entry = sum(entry.below);
  else --entry.count;
  // Two neighbours of which one is small are one block where they can be, so that there are few of them.
  if (left < width / 4) {
    join(block, child);
    if (child > 0) join(block, child - 1);
  }
  return gone;
}

void QueueTree::join(Block& parent, std::size_t left) {
  if (left + 1 >= parent.size) return;
  const Index right = parent.entries[left + 1].below;
  Block& into = blocks_[parent.entries[left].below];
  const Block& from = blocks_[right];
  if (into.size + from.size > width) return;
  std::copy(from.begin(), from.end(), into.entries.begin() + static_cast<std::ptrdiff_t>(into.size));
  into.size += from.size;
  parent.entries[left] = sum(parent.entries[left].below);
  parent.cut(left + 1);
  spare_.push_back(right);
}

// -------------------------------------------------------------------------------- asking

std::size_t QueueTree::before(const QueueKey& key) const {
  std::size_t result = 0;
  Index at = all_.below;
  for (int height = height_;; --height) {
    const Block& block = blocks_[at];
    if (height == 0) return result + block.place_of(key);
    const std::size_t child = block.above(key);
    for (std::size_t i = 0; i < child; ++i) result += block.entries[i].count;
    at = block.entries[child].below;
  }
}

// `wanted` tells of an entry whether anybody below it can be wanted, and so of a waiter whether it is.
template <typename Wanted>
const QueueKey* QueueTree::first_wanted(const Wanted& wanted) const {
  if (all_.count == 0 || !wanted(all_)) return nullptr;
  Index at = all_.below;
  for (int height = height_;; --height) {
    const Block& block = blocks_[at];
    const Entry* found = std::find_if(block.begin(), block.end(), wanted);
    assert(found != block.end() && "somebody below is wanted");
    if (height == 0) return &found->key;
    at = found->below;
  }
}

const QueueKey* QueueTree::first_within(Bytes room) const {
  return first_wanted([room](const Entry& entry) { return entry.least <= room; });
}

const QueueKey* QueueTree::first_above(Bytes bytes) const {
  return first_wanted([bytes](const Entry& entry) { return entry.most > bytes; });
}

template <typename Wanted>
void QueueTree::collect(Index at, int height, std::size_t& limit, std::vector<QueueKey>& out,
                        const Wanted& wanted) const {
  for (const Entry& entry : blocks_[at]) {
    if (limit == 0) return;
    if (!wanted(entry)) continue;
    if (height > 0) collect(entry.below, height - 1, limit, out, wanted);
    else out.push_back(entry.key), --limit;
  }
}

void QueueTree::first(std::size_t limit, std::vector<QueueKey>& out) const {
  out.reserve(out.size() + std::min(limit, size()));
  collect(all_.below, height_, limit, out, [](const Entry&) { return true; });
}

void QueueTree::within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(all_.below, height_, limit, out, [room](const Entry& entry) { return entry.least <= room; });
}

void QueueTree::queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(all_.below, height_, limit, out, [then](const Entry& entry) { return entry.oldest <= then; });
}

}  // namespace sublet::core
