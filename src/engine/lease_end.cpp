// SPDX-License-Identifier: Apache-2.0
#include "engine/lease_end.h"

#include <algorithm>

namespace sublet::engine {

bool ends_on_request(const core::Lease& lease, const core::Plan& plan) {
  if (lease.end_reason == core::EndReason::released && lease.stop_requested) return true;
  return std::ranges::any_of(plan.reasons, [&](const core::Reason& reason) {
    using Kind = core::ReasonKind;
    return reason.lease == lease.id &&
           (reason.kind == Kind::cancelled_by_owner || reason.kind == Kind::cancelled_by_admin ||
            reason.kind == Kind::released_by_owner || reason.kind == Kind::revoked_by_admin);
  });
}

std::string why_ended(const core::Lease& lease, const core::Plan& plan) {
  std::string why(core::to_string(lease.end_reason));
  for (const core::Reason& reason : plan.reasons)
    if (reason.lease == lease.id && core::code(reason) == "ended") why = core::text_of(reason);
  return why;
}

}  // namespace sublet::engine
