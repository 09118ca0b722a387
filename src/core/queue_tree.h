// SPDX-License-Identifier: Apache-2.0
// The one total order of waiters, and a tree of waiters in it. Plain values: copying a tree copies all of it.
#pragma once

#include "lease/lease.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace sublet::core {

// The place of a lease in the order. Waiting raises all priorities at the same rate, so that keys never change: nothing
// is sorted again as time passes. Quotas will have their place here: the tenant's phase before the tier, and its fair
// share after `since`, in whole minutes. If these change, all waiters of the tenant are taken out and put back with a
// new key (0028).
struct QueueKey {
  Tier tier = Tier::standard;  // higher first
  bool fixed = false;          // it waits for certain devices, all of those that it names or has; not compared
  int points = 0;              // higher first; the priority where nothing ages, else 0
  std::int64_t since = 0;      // lower first: queued_at in ns, moved back by the time that its priority is worth
  LeaseId lease;               // lower first

  bool operator==(const QueueKey&) const = default;
  bool before(const QueueKey& other) const;
};

// The key with `aging_per_minute` points of priority a minute. An aging slower than a point in 52 days counts as that
// (it keeps the arithmetic in 64 bits). Zero or less: priority alone, then first come, first served.
QueueKey queue_key(const Lease& lease, double aging_per_minute);

// A B-tree of waiters. Its blocks hold the data of many waiters side by side, so that a lookup among a hundred thousand
// touches few places of memory. An entry knows the number of waiters below it, the least and the most that one of them
// asks for, and the longest wait.
class QueueTree {
 public:
  void insert(const QueueKey& key, Bytes bytes, Time queued_at);
  void erase(const QueueKey& key);  // only for a key that was inserted
  std::size_t size() const { return all_.count; }
  std::size_t before(const QueueKey& key) const;   // how many stand before it
  const QueueKey* first_within(Bytes room) const;  // the first that asks for `room` at most
  const QueueKey* first_above(Bytes bytes) const;  // the first that asks for more than `bytes`
  void first(std::size_t limit, std::vector<QueueKey>& out) const;
  // The first `limit` waiters that ask for `room` at most, or that have been queued since `then` or longer.
  void within(Bytes room, std::size_t limit, std::vector<QueueKey>& out) const;
  void queued_by(Time then, std::size_t limit, std::vector<QueueKey>& out) const;

 private:
  using Index = std::uint32_t;  // of a block
  // A waiter; or, above the lowest blocks, the sum of all waiters of the block below.
  struct Entry {
    QueueKey key;  // of the first of them
    Bytes least, most;
    Time oldest;
    std::uint32_t count = 0;
    Index below = 0;

    void add(const Entry& fresh);
    bool needs(const Entry& gone) const;  // true if removing `gone` changes more than the count
  };
  static constexpr std::size_t width = 32;
  struct Block {
    std::size_t size = 0;
    std::array<Entry, width> entries;

    const Entry* begin() const { return entries.data(); }
    const Entry* end() const { return entries.data() + size; }
    void put(std::size_t place, const Entry& entry);
    void cut(std::size_t place);
    std::size_t place_of(const QueueKey& key) const;  // place of the first entry that does not stand before the key
    std::size_t above(const QueueKey& key) const;     // place of the entry below which the key is, or would be
  };

  Entry sum(Index at) const;
  Index fresh_block();
  std::optional<Entry> insert(Index at, int height, const Entry& fresh);  // the part that was split off to the right
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
