// SPDX-License-Identifier: Apache-2.0
// The end of a lease, for capabilities whose programs have leases. Pure functions of a plan in which the lease ends.
#pragma once

#include "lease/plan.h"

#include <string>

namespace sublet::engine {

// Whether its owner or an admin wanted this end.
bool ends_on_request(const core::Lease& lease, const core::Plan& plan);
// Why it ends, as one sentence; without one, the end reason.
std::string why_ended(const core::Lease& lease, const core::Plan& plan);

}  // namespace sublet::engine
