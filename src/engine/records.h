// SPDX-License-Identifier: Apache-2.0
// The rows of one kind of a capability, by key: which of them have changed, whether their last change is durable, and
// when to look at each again. The capability keeps the values. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::engine {

template <typename Key>
class Records final : public RowSource {
 public:
  // Returns the row of a key, without data if it has no value any more.
  using ToRow = std::function<store::CapabilityRow(const Key&)>;

  // Keeps a reference. This object must outlive the engine's run. `transition`: name of a change, one of
  // core::all_transitions; "": tests do not interrupt it.
  Records(Engine& engine, std::string_view transition, ToRow to_row)
      : engine_(engine), transition_(transition), to_row_(std::move(to_row)) {
    engine_.capabilities().add(*this);
  }
  Records(const Records&) = delete;
  Records& operator=(const Records&) = delete;

  // Its value was changed, made or removed: it is stored with the present transaction.
  void store(const Key& key) {
    changed_.insert(key);
    engine_.rows_changed();
  }
  // The same, and it is looked at soon.
  void change(const Key& key) {
    store(key);
    wake(key, engine_.now());
  }
  // Whether its last change is durable. If it is not, it is looked at when it is.
  bool is_durable(const Key& key) {
    const bool durable = !changed_.contains(key) && !stored_in_.contains(key) && engine_.store_problem().empty();
    if (!durable) waiting_.insert(key);
    return durable;
  }

  // Looks at it at this time instead of the time set before; Time::never(): not by time. The capability's due() tells
  // the times to come.
  void wake(const Key& key, Time at) {
    const auto found = wake_at_.find(key);
    const Time before = found == wake_at_.end() ? Time::never() : found->second;
    if (before == at) return;
    if (found != wake_at_.end()) wakes_.erase({before, key}), wake_at_.erase(found);
    if (at == Time::never()) return;
    wake_at_[key] = at;
    wakes_.insert({at, key});
    if (at <= engine_.now()) engine_.call_capabilities();
  }
  // At the time set before, or at this time if it is earlier.
  void wake_by(const Key& key, Time at) {
    const auto found = wake_at_.find(key);
    if (found == wake_at_.end() || at < found->second) wake(key, at);
  }
  // The keys to look at now, the longest due first. Their times are forgotten.
  std::vector<Key> due(Time now) {
    std::vector<Key> keys;
    while (!wakes_.empty() && wakes_.begin()->first <= now) {
      keys.push_back(wakes_.begin()->second);
      wake_at_.erase(keys.back());
      wakes_.erase(wakes_.begin());
    }
    return keys;
  }
  Time next() const { return wakes_.empty() ? Time::never() : wakes_.begin()->first; }

  // The store was loaded anew.
  void clear() { changed_.clear(), stored_in_.clear(), waiting_.clear(), wakes_.clear(), wake_at_.clear(); }

  // --- RowSource ---
  void take(Rows& rows) override {
    if (!changed_.empty() && rows.transition.empty()) rows.transition = transition_;
    for (const Key& key : changed_) rows.rows.push_back(to_row_(key));
  }
  void taken(std::uint64_t sequence) override {
    for (const Key& key : std::exchange(changed_, {})) stored_in_[key] = sequence;
  }
  void committed(std::uint64_t sequence) override {
    std::erase_if(stored_in_, [&](const auto& entry) { return entry.second <= sequence; });
    for (auto each = waiting_.begin(); each != waiting_.end();) {
      const bool over = !changed_.contains(*each) && !stored_in_.contains(*each);
      if (over) wake_by(*each, engine_.now());
      each = over ? waiting_.erase(each) : std::next(each);
    }
  }

 private:
  Engine& engine_;
  std::string_view transition_;
  ToRow to_row_;
  std::set<Key> changed_;                   // not handed to the store yet
  std::map<Key, std::uint64_t> stored_in_;  // the batch of its last change, while it is not durable
  std::set<Key> waiting_;                   // for the store
  std::set<std::pair<Time, Key>> wakes_;
  std::map<Key, Time> wake_at_;
};

}  // namespace sublet::engine
