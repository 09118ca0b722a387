// SPDX-License-Identifier: Apache-2.0
// Tenants in a step: the tree, what a tenant may not ask for, and the places of its waiters. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

Result<LeaseId> on(Step& step, const SetTenants& set);

// Refuses what the limits of the tenant do not allow. A lease that asks for no time limit gets that of its tenant.
// `successor_of`: the lease whose kept memory it takes over.
Status check_tenant(Step& step, Lease& asked, LeaseId successor_of = {});
// Refuses to charge the lease to another tenant or user, as whom it is `as`.
Status check_charged(Step& step, const Lease& lease, const Lease& as);
// The same for a new size of a lease that waits for it already.
Status check_growth(const Step& step, const Lease& lease);
// The same for a new time limit.
Status check_time_limit(const Step& step, const Lease& lease, std::optional<Duration> ttl);

// Waiters of the tenants whose charges changed get new places in the queue. True: a place changed.
bool place_waiters(Step& step);

}  // namespace sublet::core
