// SPDX-License-Identifier: Apache-2.0
// Shares: for each key, the integral of the amount that it holds over time. A pure value. It is exact, in integers, and
// lazy: nothing is done as time passes, since each change and each question brings its time.
#pragma once

#include "base/units.h"
#include "lease/tenant.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace sublet::core {

// The use that counts: that of the present slot of time, and of the slots before it.
struct Window {
  Duration slot{};         // length of a slot; 0: all use counts, for ever
  std::int64_t slots = 1;  // number of slots, the present one included
};

template <typename Key>
class Shares {
 public:
  explicit Shares(Window window = {}) : window_(window) {}

  // From now on the key holds this amount.
  void hold(const Key& key, std::int64_t amount, Time now) {
    Share& share = shares_[key];
    count(share, now);
    share.amount = amount;
  }

  // Adds a key that has held as much as the key that has held least. A key that is there already stays as it is.
  void join(const Key& key, Time now) {
    if (shares_.contains(key)) return;
    std::optional<Integral> least;
    for (const auto& [other, share] : shares_) least = least ? std::min(*least, of(other, now)) : of(other, now);
    shares_[key] = {0, now, {{slot_of(now), least.value_or(0)}}};
  }

  // The amount × time of the key in the window.
  Integral of(const Key& key, Time now) const {
    const auto found = shares_.find(key);
    if (found == shares_.end()) return 0;
    Share share = found->second;
    count(share, now);
    Integral sum = 0;
    for (const auto& [slot, used] : share.used) sum += used;
    return sum;
  }

  // No key holds anything between these times, for example because the machine sleeps.
  void skip(Time from, Time to) {
    for (auto& [key, share] : shares_) count(share, from), share.since = std::max(share.since, to);
  }

  template <typename Gone>
  void erase_if(Gone gone) {
    std::erase_if(shares_, [&gone](const auto& entry) { return gone(entry.first); });
  }

  std::vector<Key> keys() const {
    std::vector<Key> keys;
    for (const auto& [key, share] : shares_) keys.push_back(key);
    return keys;
  }

 private:
  struct Share {
    std::int64_t amount = 0;                // held since `since`
    Time since = {};                        // up to which `used` counts
    std::map<std::int64_t, Integral> used;  // by slot
  };

  std::int64_t slot_of(Time at) const { return window_.slot > Duration{} ? at.ns / window_.slot.count() : 0; }
  std::int64_t first_slot(Time now) const { return window_.slot > Duration{} ? slot_of(now) - window_.slots + 1 : 0; }
  Time start_of(std::int64_t slot) const { return {slot * window_.slot.count()}; }

  void count(Share& share, Time now) const {
    const std::int64_t first = first_slot(now), last = slot_of(now);
    std::erase_if(share.used, [first](const auto& entry) { return entry.first < first; });
    for (std::int64_t slot = std::max(first, slot_of(share.since)); share.amount != 0 && slot <= last; ++slot) {
      const Time from = std::max(share.since, start_of(slot)), to = slot < last ? start_of(slot + 1) : now;
      if (to > from) share.used[slot] += Integral{share.amount} * (to - from).count();
    }
    share.since = std::max(share.since, now);
  }

  Window window_;
  std::map<Key, Share> shares_;
};

}  // namespace sublet::core
