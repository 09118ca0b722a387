// SPDX-License-Identifier: Apache-2.0
#include "explain/nesting.h"

#include "state/format.h"

#include <algorithm>
#include <functional>
#include <vector>

namespace sublet::explain {

using namespace core;

Bytes most_beside(const State& state, const Rules& rules, const Lease& asked, const Lease& outer) {
  std::vector<Bytes> left;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    if (!may_use(asked, uuid)) continue;
    if (!device.read_at) return asked.vram;
    const Bytes taken = device.leases.contains(outer.id) ? charged_on(state, outer, uuid) : Bytes{};
    left.push_back(std::max(capacity_of(device, rules) - taken, Bytes{}));
  }
  const auto count = static_cast<std::size_t>(std::max(asked.device_count, 1));
  if (left.size() < count) return state.devices.by_uuid.empty() ? asked.vram : Bytes{};
  std::ranges::sort(left, std::greater<>());
  return left[count - 1];
}

bool would_wait_for(const State& state, const Rules& rules, const Lease& asked, const Lease& outer) {
  return outer.reserves() && most_beside(state, rules, asked, outer) < asked.least();
}

}  // namespace sublet::explain
