// SPDX-License-Identifier: Apache-2.0
// The next step about a process without a lease. A pure function on values.
#pragma once

#include "enforcer/verdict.h"

namespace sublet::enforcer {

inline constexpr int sightings_needed = 3;  // before a notice or a signal
inline constexpr Duration kill_again = std::chrono::seconds(10);
inline constexpr Duration unkillable_after = std::chrono::seconds(60);  // after SIGKILL

struct Circumstances {
  Time now;
  bool listed = false;    // the newest good reading lists it with memory
  bool gone = false;      // it has ended; its descendants may live
  bool quiet = false;     // the daemon has just started, its clock had a gap, or it is in safe mode
  bool another = false;   // another process is being ended that holds at least half as much
  bool budget = false;    // its program, its parent and its user may have another kill
  bool look_due = false;  // the actor may be asked about it
  bool evident = false;   // the actor has just found the evidence of the kernel, and nothing that spares it
  bool linked = false;    // a process above it belongs or belonged to a lease
  bool stored = false;    // the present stage is durable
  Policy policy = Policy::observe;
};

// notice: tell the owner. look: ask the actor for evidence. condemn: its end is decided. term, kill: send the signal.
// spare: the policy no longer ends it. alarm: too many were ended there; nothing is sent. give_up: it is unkillable.
enum class Move { none, notice, look, condemn, term, kill, spare, alarm, give_up };

Move next_move(const Verdict& verdict, const Circumstances& now);

}  // namespace sublet::enforcer
