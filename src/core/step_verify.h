// SPDX-License-Identifier: Apache-2.0
// Verification of pauses, and their failures. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

void verify_yielding(Step& step, Time began);
void look_at_unlisted(Step& step, const Lease& lease);
void learn(Step& step, const Lease& lease, Move move, Bytes bytes, Duration took);
void settle_down(Step& step, Lease& lease);
void fail(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args, Obstacle obstacle);
void undo(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args, Obstacle obstacle);
void leave_alone(Step& step, Lease& lease, Obstacle why);
void look_again(Step& step, Lease& lease);

}  // namespace sublet::core
