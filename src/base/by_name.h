// SPDX-License-Identifier: Apache-2.0
// Values by their names: walked over in the order of the names, found by a hash. A plain value: copying it copies all.
#pragma once

#include <cassert>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace sublet {

// The standard library compares names one by one in a small table if the hash counts as slow, as its own does. This
// hash does not count as slow.
struct NameHash {
  std::size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>{}(name); }
};

// A name that shares its place with another is compared with it, and both are hashed anew.
inline constexpr float names_per_place = 0.25F;

// Does the same as std::map, as far as used here, and references stay valid as long as the value. A lookup uses a hash,
// so that it compares few names.
template <typename Value>
class ByName {
 public:
  using Map = std::map<std::string, Value>;
  using iterator = typename Map::iterator;
  using const_iterator = typename Map::const_iterator;

  ByName() { places_.max_load_factor(names_per_place); }
  ByName(const ByName& other) : ByName() {
    in_order_ = other.in_order_;
    for (iterator at = in_order_.begin(); at != in_order_.end(); ++at) places_.emplace(at->first, at);
  }
  ByName(ByName&&) noexcept = default;
  ByName& operator=(ByName other) noexcept {
    in_order_.swap(other.in_order_);
    places_.swap(other.places_);
    return *this;
  }
  ~ByName() = default;

  iterator begin() { return in_order_.begin(); }
  iterator end() { return in_order_.end(); }
  const_iterator begin() const { return in_order_.begin(); }
  const_iterator end() const { return in_order_.end(); }
  std::size_t size() const { return in_order_.size(); }
  bool empty() const { return in_order_.empty(); }

  iterator find(std::string_view name) {
    const auto place = places_.find(name);
    return place == places_.end() ? in_order_.end() : place->second;
  }
  const_iterator find(std::string_view name) const {
    const auto place = places_.find(name);
    return place == places_.end() ? in_order_.end() : const_iterator(place->second);
  }
  const_iterator lower_bound(const std::string& name) const { return in_order_.lower_bound(name); }
  bool contains(std::string_view name) const { return places_.contains(name); }
  Value& at(std::string_view name) { return places_.at(name)->second; }  // only for a name that is there
  const Value& at(std::string_view name) const { return places_.at(name)->second; }

  std::pair<iterator, bool> try_emplace(const std::string& name) {
    if (const iterator known = find(name); known != end()) return {known, false};
    const iterator fresh = in_order_.try_emplace(name).first;
    places_.emplace(fresh->first, fresh);
    return {fresh, true};
  }
  iterator erase(iterator at) {
    places_.erase(at->first);
    return in_order_.erase(at);
  }

 private:
  Map in_order_;
  std::unordered_map<std::string_view, iterator, NameHash> places_;  // the names are those of in_order_
};

}  // namespace sublet
