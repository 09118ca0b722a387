// SPDX-License-Identifier: Apache-2.0
// Grants to the waiters that fit. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void grant_waiting(Step& step);
std::optional<Placement> place(const Step& step, const QueueKey& key, const Nominations* held);
// `why`: arguments of the fragment "chosen".
void grant(Step& step, Lease& lease, const Placement& placement, ReasonArgs why = {});
void start_ttl(Step& step, Lease& lease);
void reject_as_hopeless(Step& step, Lease& lease, ReasonArgs why);
void reject_hopeless(Step& step);

}  // namespace sublet::core
