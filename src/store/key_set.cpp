// SPDX-License-Identifier: Apache-2.0
#include "store/key_set.h"

#include "store/secret.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace sublet::store {
namespace {

// SipHash-1-3: fast, and collisions cannot be found without the secret.
class SipHash {
 public:
  explicit SipHash(const std::array<std::uint64_t, 2>& secret)
      : v0_(secret[0] ^ 0x736f6d6570736575ULL),
        v1_(secret[1] ^ 0x646f72616e646f6dULL),
        v2_(secret[0] ^ 0x6c7967656e657261ULL),
        v3_(secret[1] ^ 0x7465646279746573ULL) {}

  void word(std::uint64_t value) {
    v3_ ^= value;
    round();
    v0_ ^= value;
  }

  std::uint64_t finish() {
    v2_ ^= 0xff;
    for (int i = 0; i < 3; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void round() {
    v0_ += v1_, v1_ = std::rotl(v1_, 13) ^ v0_, v0_ = std::rotl(v0_, 32);
    v2_ += v3_, v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ += v3_, v3_ = std::rotl(v3_, 21) ^ v0_;
    v2_ += v1_, v1_ = std::rotl(v1_, 17) ^ v2_, v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t v0_, v1_, v2_, v3_;
};

}  // namespace

KeySet::KeySet() {
  for (std::uint64_t& word : secret_) word = random_number();
}

std::uint64_t KeySet::hash(std::uint32_t uid, std::string_view key) const {
  SipHash hash(secret_);
  hash.word((static_cast<std::uint64_t>(uid) << 32) | static_cast<std::uint32_t>(key.size()));
  while (!key.empty()) {
    std::uint64_t word = 0;
    const std::size_t length = std::min(key.size(), sizeof(word));
    std::memcpy(&word, key.data(), length);
    hash.word(word);
    key.remove_prefix(length);
  }
  return std::max<std::uint64_t>(hash.finish(), 1);
}

void KeySet::insert(std::uint32_t uid, std::string_view key) {
  const std::uint64_t value = hash(uid, key);
  const std::lock_guard lock(mutex_);
  shards_[shard_of(value)].insert(value);
}

void KeySet::erase(std::uint32_t uid, std::string_view key) {
  const std::uint64_t value = hash(uid, key);
  const std::lock_guard lock(mutex_);
  shards_[shard_of(value)].erase(value);
}

bool KeySet::contains(std::uint32_t uid, std::string_view key) const {
  const std::uint64_t value = hash(uid, key);
  const std::lock_guard lock(mutex_);
  return shards_[shard_of(value)].contains(value);
}

std::size_t KeySet::size() const {
  const std::lock_guard lock(mutex_);
  std::size_t total = 0;
  for (const Shard& shard : shards_) total += shard.used;
  return total;
}

void KeySet::clear() {
  const std::lock_guard lock(mutex_);
  for (Shard& shard : shards_) shard = {};
}

void KeySet::Shard::insert(std::uint64_t hash) {
  if ((used + 1) * 3 > slots.size() * 2) {
    std::vector<std::uint64_t> old(std::max<std::size_t>(16, slots.size() * 2), 0);
    old.swap(slots);
    for (const std::uint64_t value : old) {
      if (value != 0) place(value);
    }
  }
  place(hash);
  ++used;
}

void KeySet::Shard::place(std::uint64_t hash) {
  const std::size_t mask = slots.size() - 1;
  std::size_t i = hash & mask;
  while (slots[i] != 0) i = (i + 1) & mask;
  slots[i] = hash;
}

bool KeySet::Shard::contains(std::uint64_t hash) const {
  if (slots.empty()) return false;
  const std::size_t mask = slots.size() - 1;
  for (std::size_t i = hash & mask; slots[i] != 0; i = (i + 1) & mask) {
    if (slots[i] == hash) return true;
  }
  return false;
}

void KeySet::Shard::erase(std::uint64_t hash) {
  if (slots.empty()) return;
  const std::size_t mask = slots.size() - 1;
  std::size_t hole = hash & mask;
  while (slots[hole] != hash) {
    if (slots[hole] == 0) return;
    hole = (hole + 1) & mask;
  }
  --used;
  // Closes the gap: a later value of the run moves into the gap, unless its own place is behind the gap.
  for (std::size_t i = (hole + 1) & mask; slots[i] != 0; i = (i + 1) & mask) {
    const std::size_t home = slots[i] & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    slots[hole] = slots[i];
    hole = i;
  }
  slots[hole] = 0;
}

}  // namespace sublet::store
