// SPDX-License-Identifier: Apache-2.0
// Shares: for each key, the integral of the amount that it holds over time. A pure value. It is exact, in integers, and
// lazy: nothing is done as time passes, since each change and each question brings its time. Only a half-life rounds.
#pragma once

#include "base/units.h"
#include "lease/tenant.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <optional>
#include <vector>

namespace sublet::core {

// The use that counts: that of the present slot of time, and of the slots before it. With a half-life there are no
// slots: use counts for half as much after that time.
struct Window {
  Duration slot{};         // length of a slot; 0: all use counts, for ever
  std::int64_t slots = 1;  // number of slots, the present one included
  Duration half_life{};    // 0: none

  std::int64_t slot_of(Time at) const { return slot > Duration{} ? at.ns / slot.count() : 0; }
  std::int64_t first_slot(Time now) const { return slot > Duration{} ? slot_of(now) - slots + 1 : 0; }
  Time start_of(std::int64_t index) const { return {index * slot.count()}; }
};

// The amount that one key holds, and its integral over time.
class Held {
 public:
  // From now on it holds this amount.
  void hold(std::int64_t amount, Time now, const Window& window) {
    if (amount == amount_) return;
    count(now, window);
    amount_ = amount;
  }
  // The amount × time in the window.
  Integral of(Time now, const Window& window) const {
    Integral sum = 0;
    if (window.half_life > Duration{}) {
      for (const auto& [slot, used] : by_slot(now, window)) sum += used;
      return sum;
    }
    const std::int64_t first = window.first_slot(now);
    for (const auto& [slot, used] : used_)
      if (slot >= first) sum += used;
    const Time from = window.slot > Duration{} ? std::max(since_, window.start_of(first)) : since_;
    return now > from ? sum + Integral{amount_} * (now - from).count() : sum;
  }
  // It holds nothing between these times, for example because the machine sleeps.
  void skip(Time from, Time to, const Window& window) {
    count(from, window);
    since_ = std::max(since_, to);
  }
  std::int64_t amount() const { return amount_; }
  Time since() const { return since_; }  // when the amount changed last, or time was skipped
  bool empty() const { return amount_ == 0 && used_.empty(); }
  // The use up to now, by slot: what a restart needs.
  std::vector<std::pair<std::int64_t, Integral>> by_slot(Time now, const Window& window) const {
    Held copy = *this;
    copy.count(now, window);
    return copy.used_;
  }
  static Held restored(Time at, std::vector<std::pair<std::int64_t, Integral>> used) {
    Held held;
    held.since_ = at;
    held.used_ = std::move(used);
    return held;
  }

 private:
  void count(Time now, const Window& window) {
    if (window.half_life > Duration{}) return decay(now, window);
    const std::int64_t first = window.first_slot(now), last = window.slot_of(now);
    std::erase_if(used_, [first](const auto& entry) { return entry.first < first; });
    for (std::int64_t slot = std::max(first, window.slot_of(since_)); amount_ != 0 && slot <= last; ++slot) {
      const Time from = std::max(since_, window.start_of(slot)), to = slot < last ? window.start_of(slot + 1) : now;
      if (to > from) add(slot, Integral{amount_} * (to - from).count());
    }
    since_ = std::max(since_, now);
  }
  void decay(Time now, const Window& window) {
    if (now <= since_) return;
    const auto half_life = static_cast<double>(window.half_life.count());
    const double left = std::exp2(-static_cast<double>((now - since_).count()) / half_life);
    double use = static_cast<double>(amount_) * half_life / std::numbers::ln2 * (1 - left);
    for (const auto& [slot, used] : used_) use += static_cast<double>(used) * left;
    used_.clear();
    if (use >= 1) used_.emplace_back(0, static_cast<Integral>(use));
    since_ = now;
  }
  void add(std::int64_t slot, Integral use) {
    const auto at = std::ranges::lower_bound(used_, slot, {}, [](const auto& entry) { return entry.first; });
    if (at != used_.end() && at->first == slot) at->second += use;
    else used_.insert(at, {slot, use});
  }

  std::int64_t amount_ = 0;                              // held since `since_`
  Time since_ = {};                                      // up to which `used_` counts
  std::vector<std::pair<std::int64_t, Integral>> used_;  // by slot, ascending
};

template <typename Key>
class Shares {
 public:
  explicit Shares(Window window = {}) : window_(window) {}

  // From now on the key holds this amount.
  void hold(const Key& key, std::int64_t amount, Time now) { shares_[key].hold(amount, now, window_); }

  // Adds a key that has held as much as the key that has held least. A key that is there already stays as it is.
  void join(const Key& key, Time now) {
    if (contains(key)) return;
    std::optional<Integral> least;
    for (const auto& [other, share] : shares_) least = least ? std::min(*least, of(other, now)) : of(other, now);
    start(key, least.value_or(0), now);
  }
  // Adds a key that has held so much.
  void start(const Key& key, Integral had, Time now) {
    shares_[key] = Held::restored(now, {{window_.slot_of(now), had}});
  }
  bool contains(const Key& key) const { return shares_.contains(key); }

  // The amount × time of the key in the window.
  Integral of(const Key& key, Time now) const {
    const auto found = shares_.find(key);
    return found == shares_.end() ? 0 : found->second.of(now, window_);
  }
  std::int64_t amount(const Key& key) const {
    const auto found = shares_.find(key);
    return found == shares_.end() ? 0 : found->second.amount();
  }
  // Since when the key holds this amount.
  Time since(const Key& key) const {
    const auto found = shares_.find(key);
    return found == shares_.end() ? Time{} : found->second.since();
  }

  // No key holds anything between these times, for example because the machine sleeps.
  void skip(Time from, Time to) {
    for (auto& [key, share] : shares_) share.skip(from, to, window_);
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
  Window window_;
  std::map<Key, Held> shares_;
};

}  // namespace sublet::core
