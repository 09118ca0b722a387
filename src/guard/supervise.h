// SPDX-License-Identifier: Apache-2.0
// The rules of supervision: what follows the end of a program. Pure functions on a Program.
#pragma once

#include "guard/program.h"
#include "lease/lease.h"

namespace sublet::guard {

inline constexpr Duration first_backoff = std::chrono::seconds(1);  // doubles with each recent restart
inline constexpr Duration longest_backoff = std::chrono::minutes(1);
inline constexpr std::size_t most_restarts = 5;  // in `restart_window`; the next end is final
inline constexpr Duration restart_window = std::chrono::minutes(10);
// How long the memory of an ended lease stays reserved for the next start.
inline constexpr Duration kept_for = std::chrono::seconds(10);

// The end of a start.
struct Ended {
  core::EndReason reason = core::EndReason::failed;
  std::optional<int> status{};  // exit status, 128+N by signal N
  bool on_request = false;      // its owner or an admin ended it
  std::string why{};            // one sentence
};

// Whether the program of this lease, its newest, is being ended. The end of a paused program waits for its resume.
bool is_being_ended(const Progress& progress, const core::Lease* lease);

// A new start is about to be ordered.
void begin_start(Program& program, Time now);
// The back-off is over: the next start by the policy begins.
void restart(Program& program, Time now);
// The lease of the newest start is in this state.
void follow(Program& program, core::LeaseState state, Time now);
// The newest start has ended: the next phase, by request and policy. Phase starting: the next start has begun.
void end_start(Program& program, const Ended& end, Time now);

}  // namespace sublet::guard
