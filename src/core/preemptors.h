// SPDX-License-Identifier: Apache-2.0
// Those who may have others asked to yield, in the order of the queue; a value, made anew when they have changed.
#pragma once

#include "core/queue_tree.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::core {

struct Preemptor {
  QueueKey key;
  bool by_rule = true;  // by its place in the queue; else on somebody's word alone
  bool operator==(const Preemptor&) const = default;
};

class Preemptors {
 public:
  Preemptors() = default;
  // `devices`: on which each of them waits for room, in their order; uuids, none: on any.
  Preemptors(std::vector<Preemptor> in_order, const std::vector<std::vector<std::string>>& devices);

  const std::vector<Preemptor>& in_order() const { return in_order_; }
  bool empty() const { return in_order_.empty(); }
  bool contains(LeaseId lease) const { return by_rule_.contains(lease); }
  bool by_rule(LeaseId lease) const;
  // Those who wait for room on this device, alone or among others, in their order.
  std::vector<LeaseId> on(const std::string& device) const;

 private:
  std::vector<Preemptor> in_order_;
  std::unordered_map<LeaseId, bool> by_rule_;
  std::vector<std::size_t> on_any_;  // places in that order, ascending
  std::unordered_map<std::string, std::vector<std::size_t>> on_;
};

}  // namespace sublet::core
