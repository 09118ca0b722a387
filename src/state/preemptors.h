// SPDX-License-Identifier: Apache-2.0
// The preemptors in the order of the queue: waiters for which other leases may be paused. A value, made anew when they
// have changed.
#pragma once

#include "state/queue_tree.h"

#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::core {

struct Preemptor {
  QueueKey key;
  bool by_rule = true;  // by its place in the queue; otherwise only by a preemption request
  bool operator==(const Preemptor&) const = default;
};

class Preemptors {
 public:
  Preemptors() = default;
  explicit Preemptors(std::vector<Preemptor> in_order) : in_order_(std::move(in_order)) {
    for (const Preemptor& preemptor : in_order_) by_rule_.emplace(preemptor.key.lease, preemptor.by_rule);
  }

  const std::vector<Preemptor>& in_order() const { return in_order_; }
  bool empty() const { return in_order_.empty(); }
  bool by_rule(LeaseId lease) const {
    const auto found = by_rule_.find(lease);
    return found != by_rule_.end() && found->second;
  }

 private:
  std::vector<Preemptor> in_order_;
  std::unordered_map<LeaseId, bool> by_rule_;
};

}  // namespace sublet::core
