// SPDX-License-Identifier: Apache-2.0
// The devices of a waiter that takes some of several, by `placement.policy`. Private to this folder; reads only.
#pragma once

#include "core/current_step.h"
#include "state/queue_tree.h"

namespace sublet::core {

// The part of the free memory of a device that the waiter may take; `held` null: nothing is reserved.
Bytes allowance(const QueueKey& key, const Lease& lease, const DeviceFree& room, const Nominations* held);
// Nothing if it does not fit on so many devices. Where only less than all of it fits, it takes the roomiest.
std::optional<Placement> place_on_some(const Step& step, const QueueKey& key, const Lease& lease,
                                       const Nominations* held);
// Why the waiter gets these devices and not the next best ones, as arguments of the fragment "chosen". Empty: it had no
// choice.
ReasonArgs why_there(const Step& step, const QueueKey& key, const Lease& lease, const Nominations* held,
                     const Placement& placement);

}  // namespace sublet::core
