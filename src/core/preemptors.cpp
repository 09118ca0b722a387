// SPDX-License-Identifier: Apache-2.0
#include "core/preemptors.h"

#include <algorithm>
#include <iterator>

namespace sublet::core {

Preemptors::Preemptors(std::vector<Preemptor> in_order, const std::vector<std::vector<std::string>>& devices)
    : in_order_(std::move(in_order)) {
  for (std::size_t i = 0; i < in_order_.size(); ++i) {
    by_rule_.emplace(in_order_[i].key.lease, in_order_[i].by_rule);
    if (devices[i].empty()) on_any_.push_back(i);
    for (const std::string& device : devices[i]) on_[device].push_back(i);
  }
}

bool Preemptors::by_rule(LeaseId lease) const {
  const auto found = by_rule_.find(lease);
  return found != by_rule_.end() && found->second;
}

std::vector<LeaseId> Preemptors::on(const std::string& device) const {
  std::vector<std::size_t> places = on_any_;
  if (const auto named = on_.find(device); named != on_.end()) {
    places.clear();
    std::merge(on_any_.begin(), on_any_.end(), named->second.begin(), named->second.end(), std::back_inserter(places));
  }
  std::vector<LeaseId> leases;
  leases.reserve(places.size());
  for (const std::size_t place : places) leases.push_back(in_order_[place].key.lease);
  return leases;
}

}  // namespace sublet::core
