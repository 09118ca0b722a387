// SPDX-License-Identifier: Apache-2.0
// Tells which idempotency keys may have a stored answer, in 8 bytes a key. The loop thread asks it before the database.
// So a call with a new key, the usual case, waits for nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace sublet::store {

// A multiset of 64-bit hashes. Each insert is undone by one erase of the same key, so that colliding keys never hide
// each other. `contains` may be true for a missing key, but is never false for an inserted key. Any thread.
class KeySet {
 public:
  KeySet();  // hashes with a random secret, so that users cannot choose keys that collide
  void insert(std::uint32_t uid, std::string_view key);
  void erase(std::uint32_t uid, std::string_view key);  // the key must have been inserted
  bool contains(std::uint32_t uid, std::string_view key) const;
  std::size_t size() const;
  void clear();

 private:
  // Open addressing with linear probing; 0 is an empty slot. Many small tables keep each growth short.
  struct Shard {
    std::vector<std::uint64_t> slots;
    std::size_t used = 0;
    void insert(std::uint64_t hash);
    void place(std::uint64_t hash);
    void erase(std::uint64_t hash);
    bool contains(std::uint64_t hash) const;
  };

  std::uint64_t hash(std::uint32_t uid, std::string_view key) const;  // never 0
  static std::size_t shard_of(std::uint64_t hash) { return hash >> 56; }

  mutable std::mutex mutex_;
  std::array<std::uint64_t, 2> secret_;
  std::array<Shard, 256> shards_;
};

}  // namespace sublet::store
