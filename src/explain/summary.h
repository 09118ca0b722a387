// SPDX-License-Identifier: Apache-2.0
// The present state of a lease as one sentence, for all who show it. Reads only.
#pragma once

#include "explain/explain.h"
#include "state/blocked.h"

#include <optional>
#include <string>

namespace sublet::explain {

// Facts that the core does not know.
struct Aspects {
  std::string problem{};       // of its pause or resume, as a sentence; "": none
  bool keeper_killed = false;  // its program runs on without a keeper
  std::string stopped{};       // "stopped by a debugger"; "": its program is not stopped
};

// `blocked`: see core::what_blocks. `queue`: its place and estimate, if they were asked for; null: only its place is
// told.
std::string summary(const core::State& state, const core::Lease& lease, const std::optional<core::Blocked>& blocked,
                    const QueueInfo* queue, const Aspects& aspects);

}  // namespace sublet::explain
