// SPDX-License-Identifier: Apache-2.0
// The names of all transitions of a lease, for reasons and events, and for tests that interrupt the daemon.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace sublet::core {

// The codes of reasons, "ended" by its reason.
inline constexpr std::array<std::string_view, 41> transitions{
    // on the way to the end
    "queued", "granted", "offered", "claimed", "attached", "renewed", "lapsed", "capacity_reserved", "resizing",
    "resized", "amended", "over_soft_limit", "short_of_memory", "memory_kept", "idle_warned", "held_back",
    "keeper_killed", "stray_use", "draining", "pausing", "unverified", "paused", "resuming", "resumed", "poisoned",
    "cooperates", "allocated_while_paused", "blocked", "stopping", "killing", "settled",
    // the end, by its reason
    "released", "expired", "revoked", "owner_gone", "over_limit", "failed", "cancelled", "rejected", "unclaimed",
    "lost"};

// Other changes that are decided and stored. Users see some of them as one of the transitions above, and some not at
// all. A crash in the middle of each is a case of its own.
inline constexpr std::array<std::string_view, 39> within_transitions{
    "booked",                       // processes that do not own the lease were booked to it
    "named",                        // the device that a waiting lease asked for by its name is there
    "exited",                       // the program ended, and its lease did not
    "deadlines_extended",           // clock gap: deadlines moved
    "deadlines_extended_at_start",  // clock gap, found when the store was opened
    "preemption_requested",         // memory was requested for a waiting lease
    "plan_changed",                 // a preemption plan: its victims or beneficiaries, or its end
    "request_kept",                 // the lease got that memory, and keeps it
    "grown",                        // resized: to more, after a wait
    "resize_withdrawn",             // resized: it wants no more, and keeps what it has
    "cooperation_withdrawn",        // cooperates: no longer
    "grant_given",                  // a consumer's programs may be paused although Sublet did not start them
    "grant_removed",                // the grant was removed
    "lock_intent",                  // the processes that the driver is about to lock
    "undone",                       // resuming: a pause that was not verified
    "next_method",                  // pausing: by another method than the one that failed
    "resume_requested_early",       // a resume was requested before the pause was verified
    "resume_queued",                // queued: to come back
    "stays_paused",                 // paused: it waits no longer to come back
    "not_yet",                      // resuming: it does not run yet
    "tried_again",                  // the resume order was repeated, after a failure or a restart
    "resumed_to_end",               // resumed: only to be ended
    "deferred",                     // stopping: the program is ended once it runs again
    "liveness_changed",             // parked: no process lives any more, or one does again
    "orphaned",                     // expired: paused, and no process is left to resume
    "spot_ended",                   // revoked: a spot lease that could not be paused
    "device_gone",                  // failed: its device is gone
    "token_made",                   // an access token was made
    "token_revoked",
    "program_added",    // a supervised program
    "program_changed",  // its manifest or its progress
    "program_removed",
    "verdict_changed",      // the record about a process without a lease
    "enforcement_changed",  // an approval or a policy
    "stack_changed",        // a stack: its use or its settings
    "session_changed",      // a session: its request or its progress
    "service_changed",      // a device: out of service, or back in service
    "tenants_changed",      // the tree of tenants
    "answered"};            // a call without changes, remembered for its repetition

// All transitions that tests interrupt.
inline constexpr auto interruptible = [] {
  std::array<std::string_view, transitions.size() + within_transitions.size()> all{};
  const auto within = std::copy(transitions.begin(), transitions.end(), all.begin());
  std::copy(within_transitions.begin(), within_transitions.end(), within);
  return all;
}();

constexpr bool is_transition(std::string_view name) {
  return std::find(transitions.begin(), transitions.end(), name) != transitions.end();
}

constexpr bool is_interruptible(std::string_view name) {
  return std::find(interruptible.begin(), interruptible.end(), name) != interruptible.end();
}

}  // namespace sublet::core
