// SPDX-License-Identifier: Apache-2.0
// The part of a transaction that is not handed to the store yet, and the leases that are not in the state any more.
#pragma once

#include "engine/capability.h"
#include "lease/plan.h"
#include "store/store.h"

#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sublet::engine {

struct Pending {
  std::deque<core::Plan> plans = {};
  std::size_t told = 0;  // how many of them the capabilities have heard of
  std::optional<store::Remembered> remembered = {};
  std::vector<Rows::Event> events = {};
  std::optional<Duration> asleep = {};  // the machine slept before it
  std::string_view transition = {};     // of rows that a call changed
  Time now = {};                        // of the newest plan
  bool stores = false;                  // there is something to store
};

// The leases that ended last, so that they are answered without the store.
class RecentlyEnded {
 public:
  void keep(const core::Lease& lease) {
    if (leases_.insert_or_assign(lease.id, lease).second) order_.push_back(lease.id);
    if (order_.size() <= limit) return;
    leases_.erase(order_.front());
    order_.pop_front();
  }
  const core::Lease* find(LeaseId id) const {
    const auto found = leases_.find(id);
    return found == leases_.end() ? nullptr : &found->second;
  }

 private:
  static constexpr std::size_t limit = 1024;
  std::unordered_map<LeaseId, core::Lease> leases_;
  std::deque<LeaseId> order_;
};

}  // namespace sublet::engine
