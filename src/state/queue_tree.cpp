// SPDX-License-Identifier: Apache-2.0
#include "state/queue_tree.h"
#include "state/rank.h"

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
  if (limited != other.limited) return other.limited;
  if (guaranteed != other.guaranteed) return guaranteed;
  if (tier != other.tier) return outranks(tier, other.tier);
  if (share != other.share) return share < other.share;
  if (points != other.points) return points > other.points;
  if (since != other.since) return since < other.since;
  return lease < other.lease;
}

QueueKey queue_key(const Lease& lease, double aging_per_minute, const TenantPlace& by_tenant) {
  QueueKey key{.limited = by_tenant.limited,
               .guaranteed = by_tenant.guaranteed,
               .tier = lease.tier,
               .share = by_tenant.share,
               .points = lease.priority,
               .since = lease.queued_at.ns,
               .lease = lease.id};
  if (!(aging_per_minute > 0)) return key;
  const double exact = std::max(std::round(ns_per_minute / aging_per_minute), 1.0);
  const std::int64_t ns_per_point =
      exact < static_cast<double>(max_ns_per_point) ? static_cast<std::int64_t>(exact) : max_ns_per_point;
  const int priority = std::clamp(lease.priority, -admin_priority_limit, admin_priority_limit);
  key.points = 0;
  key.since -= priority * ns_per_point;
  return key;
}

void QueueTree::Sum::add(const Sum& other) {
  least = std::min(least, other.least);
  most = std::max(most, other.most);
  oldest = std::min(oldest, other.oldest);
  count += other.count;
}

void QueueTree::erase(const QueueKey& key) {
  [[maybe_unused]] const bool was_there = tree_.erase(key);
  assert(was_there && "erases only what was inserted");
}

std::size_t QueueTree::before(const QueueKey& key) const {
  std::size_t result = 0;
  for (Node node = tree_.node_begin(); node != tree_.node_end();) {
    const Node left = node.get_l_child();
    if (!(**node).first.before(key)) {
      node = left;
      continue;
    }
    result += 1 + (left == tree_.node_end() ? 0 : left.get_metadata().count);
    node = node.get_r_child();
  }
  return result;
}

// `wanted` tells of a node whether a waiter below it can be wanted, and of a waiter whether it is.
template <typename Wanted>
const QueueKey* QueueTree::first_wanted(const Wanted& wanted) const {
  const Node none = tree_.node_end();
  Node node = tree_.node_begin();
  if (node == none || !wanted(node.get_metadata())) return nullptr;
  for (;;) {
    if (const Node left = node.get_l_child(); left != none && wanted(left.get_metadata())) node = left;
    else if (wanted(sum_of((**node).second))) return &(**node).first;
    else node = node.get_r_child();
  }
}

const QueueKey* QueueTree::first_within(Bytes room) const {
  return first_wanted([room](const Sum& sum) { return sum.least <= room; });
}

const QueueKey* QueueTree::first_above(Bytes bytes) const {
  return first_wanted([bytes](const Sum& sum) { return sum.most > bytes; });
}

template <typename Wanted>
void QueueTree::collect(Node node, std::size_t& limit, std::vector<QueueKey>& out, const Wanted& wanted) const {
  if (limit == 0 || node == tree_.node_end() || !wanted(node.get_metadata())) return;
  collect(node.get_l_child(), limit, out, wanted);
  if (limit > 0 && wanted(sum_of((**node).second))) out.push_back((**node).first), --limit;
  collect(node.get_r_child(), limit, out, wanted);
}

void QueueTree::first(std::size_t limit, std::vector<QueueKey>& out) const {
  out.reserve(out.size() + std::min(limit, size()));
  collect(tree_.node_begin(), limit, out, [](const Sum&) { return true; });
}

void QueueTree::within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(tree_.node_begin(), limit, out, [room](const Sum& sum) { return sum.least <= room; });
}

void QueueTree::queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const {
  collect(tree_.node_begin(), limit, out, [then](const Sum& sum) { return sum.oldest <= then; });
}

}  // namespace sublet::core
