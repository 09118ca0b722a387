// SPDX-License-Identifier: Apache-2.0
// The preemptors in the order of the queue: waiters for which other leases may be paused. A value, made anew when they
// have changed.
#pragma once

#include "core/queue_tree.h"

#include <string>
#include <unordered_map>
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
  // `devices`: the uuids that each of them waits for, in the same order; empty: any device.
  Preemptors(std::vector<Preemptor> in_order, const std::vector<std::vector<std::string>>& devices);

  const std::vector<Preemptor>& in_order() const { return in_order_; }
  bool empty() const { return in_order_.empty(); }
  bool contains(LeaseId lease) const { return by_rule_.contains(lease); }
  bool by_rule(LeaseId lease) const;
  // The preemptors that wait for this device, alone or among others, in their order.
  std::vector<LeaseId> on(const std::string& device) const;

 private:
  std::vector<Preemptor> in_order_;
  std::unordered_map<LeaseId, bool> by_rule_;
  std::vector<std::size_t> on_any_;  // places in that order, ascending
  std::unordered_map<std::string, std::vector<std::size_t>> on_;
};

}  // namespace sublet::core
