// SPDX-License-Identifier: Apache-2.0
#include "core/over_limit.h"

namespace sublet::core {

Bytes over_size(const State& state, const Lease& lease, std::string_view device) {
  if (lease.state != LeaseState::active) return {};
  const Bytes over = state.charge(lease.id, device).used - lease.vram;
  return over > over_slack ? over : Bytes{};
}

Bytes over_size(const State& state, const Lease& lease) {
  Bytes all;
  for (const std::string& device : lease.devices) all += over_size(state, lease, device);
  return all;
}

}  // namespace sublet::core
