// SPDX-License-Identifier: Apache-2.0
// The one total order of waiters, and a tree of waiters in it. Plain values: copying a tree copies all of it.
#pragma once

#include "lease/lease.h"

#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>

#include <cstdint>
#include <vector>

namespace sublet::core {

using AccountId = std::uint32_t;  // of a tenant, or of a user below it: see core/tenants.h

// The part of a waiter's place that its tenant decides.
struct TenantPlace {
  AccountId account = 0;
  bool limited = false;     // it gets no memory now, because a limit of its tenant is met
  bool guaranteed = false;  // it is within the guarantee of its tenant
  std::uint64_t share = 0;  // steps of past use from the top of the tree down, a byte each; lower first
  bool operator==(const TenantPlace&) const = default;
};

// The place of a lease in the order. Waiting raises all priorities at the same rate, so that keys never change with
// time alone: nothing is sorted again as time passes. The place by tenant changes with grants and ends; the waiters of
// that tenant then get new keys (0062).
struct QueueKey {
  bool limited = false;        // last
  bool guaranteed = false;     // first of the others
  Tier tier = Tier::standard;  // higher first
  std::uint64_t share = 0;     // lower first
  bool fixed = false;          // it waits for certain devices, all of those that it names or has; not compared
  int points = 0;              // higher first; the priority where nothing ages, else 0
  std::int64_t since = 0;      // lower first: queued_at in ns, moved back by the time that its priority is worth
  LeaseId lease;               // lower first

  bool operator==(const QueueKey&) const = default;
  bool before(const QueueKey& other) const;
};

// The key with `aging_per_minute` points of priority a minute. An aging slower than a point in 52 days counts as that
// (it keeps the arithmetic in 64 bits). Zero or less: priority alone, then first come, first served.
QueueKey queue_key(const Lease& lease, double aging_per_minute, const TenantPlace& by_tenant = {});

// The waiters in their order: a red-black tree of the standard library's extension. A node knows the number of waiters
// below it, the least and the most that one of them asks for, and the longest wait. Lookups are O(log n).
class QueueTree {
 public:
  void insert(const QueueKey& key, Bytes bytes, Time queued_at) { tree_.insert({key, {bytes, queued_at}}); }
  void erase(const QueueKey& key);  // only for a key that was inserted
  std::size_t size() const { return tree_.size(); }
  std::size_t before(const QueueKey& key) const;   // how many stand before it
  const QueueKey* first_within(Bytes room) const;  // the first that asks for `room` at most
  const QueueKey* first_above(Bytes bytes) const;  // the first that asks for more than `bytes`
  void first(std::size_t limit, std::vector<QueueKey>& out) const;
  // The first `limit` waiters that ask for `room` at most, or that have been queued since `then` or longer.
  void within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const;
  void queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const;

 private:
  struct Waiter {
    Bytes bytes;
    Time queued_at;
  };
  // A waiter, or a node with all waiters below it.
  struct Sum {
    Bytes least, most;
    Time oldest;
    std::size_t count = 0;

    void add(const Sum& other);
  };
  template <typename ConstNode, typename Node, typename, typename>
  struct Sums {
    using metadata_type = Sum;
    void operator()(Node node, ConstNode none) const {
      Sum sum = sum_of((**node).second);
      for (const ConstNode below : {ConstNode(node.get_l_child()), ConstNode(node.get_r_child())})
        if (below != none) sum.add(below.get_metadata());
      const_cast<Sum&>(node.get_metadata()) = sum;  // the library gives no other access
    }
  };
  struct Before {
    bool operator()(const QueueKey& a, const QueueKey& b) const { return a.before(b); }
  };
  using Tree = __gnu_pbds::tree<QueueKey, Waiter, Before, __gnu_pbds::rb_tree_tag, Sums>;
  using Node = Tree::node_const_iterator;

  static Sum sum_of(const Waiter& waiter) { return {waiter.bytes, waiter.bytes, waiter.queued_at, 1}; }
  template <typename Wanted>
  const QueueKey* first_wanted(const Wanted& wanted) const;
  template <typename Wanted>
  void collect(Node node, std::size_t& limit, std::vector<QueueKey>& out, const Wanted& wanted) const;

  Tree tree_;
};

}  // namespace sublet::core
