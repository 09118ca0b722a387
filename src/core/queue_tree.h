// SPDX-License-Identifier: Apache-2.0
// The one total order of those who wait, and a tree of waiters in it. Plain values: copying a tree copies all of it.
#pragma once

#include "core/lease.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace sublet::core {

// Where a lease stands in the order. Waiting raises every waiter's priority at the same rate, so the
// difference of two waiters never changes, and neither does the key: nothing is sorted again as time passes.
// Quotas are still to come, and have their place here: a tenant's phase (under its guarantee or over it) before the
// tier, its fair share after `since`, then compared in whole minutes. Both change while somebody waits: then all who
// wait under that tenant are taken out and put back with a new key (0028).
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

// A B-tree of waiters. Its blocks hold the data of many waiters side by side, so that a lookup among a hundred thousand
// touches few places of memory. An entry knows the number of waiters below it, the least and the most that one of them
// asks for, and the longest wait.
class QueueTree {
 public:
  void insert(const QueueKey& key, Bytes bytes, Time queued_at);
  void erase(const QueueKey& key);  // of one that was inserted
  std::size_t size() const { return all_.count; }
  std::size_t before(const QueueKey& key) const;   // how many stand before it
  const QueueKey* first_within(Bytes room) const;  // first that asks for `room` at most
  const QueueKey* first_above(Bytes bytes) const;  // first that asks for more than `bytes`
  void first(std::size_t limit, std::vector<QueueKey>& out) const;
  // The first `limit` of those that ask for `room` at most, or are queued since `then` or longer.
  void within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const;
  void queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const;

 private:
  using Index = std::uint32_t;  // of a block
  // A waiter; or, above the lowest blocks, all those of the block below.
  struct Entry {
    QueueKey key;  // of the first of them
    Bytes least, most;
    Time oldest;
    std::uint32_t count = 0;
    Index below = 0;

    void add(const Entry& fresh);
    bool needs(const Entry& gone) const;  // without it, the entry would say something else than one less
  };
  static constexpr std::size_t width = 32;
  struct Block {
    std::size_t size = 0;
    std::array<Entry, width> entries;

    const Entry* begin() const { return entries.data(); }
    const Entry* end() const { return entries.data() + size; }
    void put(std::size_t place, const Entry& entry);
    void cut(std::size_t place);
    std::size_t place_of(const QueueKey& key) const;  // of the first that does not stand before it
    std::size_t above(const QueueKey& key) const;     // of the one below which it is, or would be
  };

  Entry sum(Index at) const;
  Index fresh_block();
  std::optional<Entry> insert(Index at, int height, const Entry& fresh);  // what had to be split off to the right
  Entry erase(Index at, int height, const QueueKey& key);
  void join(Block& parent, std::size_t left);
  template <typename Wanted>
  const QueueKey* first_wanted(const Wanted& wanted) const;
  template <typename Wanted>
  void collect(Index at, int height, std::size_t& limit, std::vector<QueueKey>& out, const Wanted& wanted) const;

  std::vector<Block> blocks_{1};
  std::vector<Index> spare_;
  Entry all_;       // below it is the root
  int height_ = 0;  // of the root above the lowest blocks
};

}  // namespace sublet::core
