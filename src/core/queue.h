// SPDX-License-Identifier: Apache-2.0
// Who waits, in the one total order of the queue. A plain value: copying it copies the whole queue.
#pragma once

#include "core/by_name.h"
#include "core/lease.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::core {

// Where a lease stands in the order. Waiting raises every waiter's priority at the same rate, so the
// difference of two waiters never changes, and neither does the key: nothing is sorted again as time passes.
struct QueueKey {
  Tier tier = Tier::standard;  // higher first
  bool fixed = false;          // it waits for certain devices: those that it named or has; no part of the order
  int points = 0;              // higher first; the priority where nothing ages, else 0
  std::int64_t since = 0;      // lower first: queued_at in ns, moved back by the time that its priority is worth
  LeaseId lease;               // lower first

  bool operator==(const QueueKey&) const = default;
  bool before(const QueueKey& other) const;
};

// The key under `aging_per_minute` points of priority a minute. An ageing slower than a point in 52 days
// counts as that (it keeps the arithmetic in 64 bits); zero or less: priority alone, then first come, first
// served.
QueueKey queue_key(const Lease& lease, double aging_per_minute);

// A tree of waiters in order, balanced by a hash of the lease's number (deterministic, and nobody chooses
// numbers). Each node knows how many waiters are below it and the least and the most that one of them asks
// for.
class QueueTree {
 public:
  void insert(const QueueKey& key, Bytes bytes, Time queued_at);
  void erase(const QueueKey& key);
  std::size_t size() const { return count(root_); }
  std::size_t before(const QueueKey& key) const;   // how many stand before it
  const QueueKey* first_within(Bytes room) const;  // first that asks for `room` at most
  const QueueKey* first_above(Bytes bytes) const;  // first that asks for more than `bytes`
  void first(std::size_t limit, std::vector<QueueKey>& out) const;
  // The first `limit` of those that ask for `room` at most, or are queued since `then` or longer.
  void within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const;
  void queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const;

 private:
  using Index = std::uint32_t;  // 0: none
  struct Node {
    QueueKey key;
    std::uint64_t balance = 0;
    Bytes bytes, least, most;
    Time queued_at, oldest;
    std::uint32_t count = 0;
    Index left = 0, right = 0;
  };

  std::size_t count(Index at) const { return at == 0 ? 0 : nodes_[at].count; }
  void update(Index at);
  template <typename Below, typename Self>
  void collect(Index at, std::size_t limit, std::vector<QueueKey>& out, const Below& below, const Self& self) const;
  void split(Index at, const QueueKey& key, Index& below, Index& rest);
  Index merge(Index left, Index right);
  Index insert(Index at, Index fresh);
  Index erase(Index at, const QueueKey& key);

  std::vector<Node> nodes_{1};  // nodes_[0] is nobody
  std::vector<Index> spare_;
  Index root_ = 0;
};

// All waiters: a tree for each device that was asked for by name, one for each number of devices that is asked for
// without names, and one of all of them.
class Queue {
 public:
  // What a point of priority is worth; orders everybody again if it changed. Called before anything else.
  void set_aging(double per_minute);

  void insert(const Lease& lease);
  // A lease that waits for more where it is: `need` bytes more on that of its devices where it is most.
  void insert_in_place(const Lease& lease, Bytes need);
  void erase(LeaseId lease);

  // Grows with every change of who waits.
  std::uint64_t revision() const { return revision_; }
  bool empty() const { return entries_.empty(); }
  std::size_t size() const { return entries_.size(); }
  bool contains(LeaseId lease) const { return entries_.contains(lease); }
  Bytes waiting_bytes() const { return {static_cast<std::int64_t>(waiting_)}; }

  std::size_t place(LeaseId lease) const;                             // 1 = next; 0 = does not wait
  std::vector<LeaseId> in_order(std::size_t limit = SIZE_MAX) const;  // the first `limit`
  // Waiters are found by how many devices they want (any, each with so many bytes), or by the one they want.
  const std::map<int, QueueTree>& any() const { return any_; }
  const QueueTree* named(const std::string& device) const;  // null: nobody wants it by name
  const QueueTree& sets() const { return sets_; }           // leases on several devices that wait for more on each
  const QueueTree& all() const { return all_; }
  const QueueKey* key(LeaseId lease) const;  // null: does not wait

 private:
  struct Entry {
    QueueKey key;
    int priority = 0;
    Time queued_at;
    Bytes bytes;
    Bytes total;
    int count = 1;       // 0: it wants more on each of the several devices that it has
    std::string device;  // "" for any
  };

  void insert(LeaseId lease, Entry entry);
  void plant(const Entry& entry);

  double aging_ = 1.0;
  std::unordered_map<std::string, QueueTree, NameHash> named_;  // none is ever empty
  std::map<int, QueueTree> any_;  // by the number of devices; only that of one device is ever empty
  QueueTree sets_;
  QueueTree all_;
  std::unordered_map<LeaseId, Entry> entries_;
  std::uint64_t revision_ = 0;
  std::uint64_t waiting_ = 0;  // unsigned: the sum of absurd requests wraps instead of being undefined
};

}  // namespace sublet::core
