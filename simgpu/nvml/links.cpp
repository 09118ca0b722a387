// SPDX-License-Identifier: Apache-2.0
// The links between cards.
#include "library.h"

namespace simgpu::nvml {

bool Card::is_linked(LinkWay link, unsigned other) const {
  const auto way = static_cast<std::size_t>(link);
  if (is_slice() || other >= max_devices || other == index) return false;
  return device().linked[way] > 0 && device().linked[way] == table.device(other).linked[way];
}

std::vector<unsigned> Card::nvlink_peers() const {
  std::vector<unsigned> peers;
  for (unsigned i = 0; i < table.device_count(); ++i)
    if (is_linked(LinkWay::nvlink, i)) peers.push_back(i);
  return peers;
}

Count nvlinks_up(const Card& card) {
  return static_cast<Count>(figure_of(card.device(), Figure::nvlinks, card.nvlink_peers().size()).value_or(0));
}

}  // namespace simgpu::nvml
