// SPDX-License-Identifier: Apache-2.0
// Every transition of a lease by its name: what is explained to people and what events tell, and what tests interrupt.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace sublet::core {

// The codes of reasons, "ended" by its reason.
inline constexpr std::array<std::string_view, 31> transitions{
    // on the way to the end
    "queued", "granted", "offered", "claimed", "attached", "renewed", "lapsed", "capacity_reserved", "resizing",
    "resized", "pausing", "unverified", "paused", "resuming", "resumed", "poisoned", "cooperates",
    "allocated_while_paused", "blocked", "stopping", "killing", "settled",
    // the end, by its reason
    "released", "expired", "revoked", "owner_gone", "failed", "cancelled", "rejected", "unclaimed", "lost"};

// Other changes that are decided and stored. Users see some of them as one of the transitions above, and some not at
// all. A crash in the middle of each is a case of its own.
inline constexpr std::array<std::string_view, 35> within_transitions{
    "booked",                       // processes that do not own it, to a lease
    "named",                        // the device that a waiting lease asked for by its name is there
    "exited",                       // how the program ended, of a lease that does not end with it
    "deadlines_extended",           // the machine, or the daemon, stood still: what runs out moves along
    "deadlines_extended_at_start",  // the same, found when the store is opened
    "preemption_requested",         // room for one that waits, on somebody's word
    "request_kept",                 // it has that room, and keeps it
    "grown",                        // resized: to more, when it was its turn
    "resize_withdrawn",             // resized: it wants no more, and keeps what it has
    "cooperation_withdrawn",        // cooperates: no longer
    "grant_given",                  // a consumer's programs may be paused although Sublet did not start them
    "grant_removed",                // no longer
    "lock_intent",                  // whom the driver is about to lock
    "bytes_parked",                 // what it parked in host memory, before it is verified
    "undone",                       // resuming: a pause that was not verified
    "next_method",                  // pausing: by another method than the one that failed
    "resume_requested_early",       // wanted back before it has yielded
    "resume_queued",                // queued: to come back
    "stays_paused",                 // paused: it waits no longer to come back
    "not_yet",                      // resuming: it does not run yet
    "tried_again",                  // to let it run, when it did not, or the daemon was away meanwhile
    "resumed_to_end",               // resumed: only to be ended
    "deferred",                     // stopping: as soon as it runs again
    "parking_again",                // allocated_while_paused: what it took while it was paused is to be parked too
    "parked_again",                 // it is
    "parking_again_failed",         // allocated_while_paused: it cannot be
    "parking_again_dropped",        // nothing came of it
    "parked_again_measured",        // what came of it is measured: nobody could tell
    "liveness_changed",             // nothing of it lives while it is parked, or something does again
    "orphaned",                     // expired: paused, and nobody is left who could come back
    "spot_ended",                   // revoked: one of the tier spot, that could not be paused
    "device_gone",                  // failed: with its device
    "token_made",                   // to let somebody in over TCP
    "token_revoked",
    "answered"};  // a call that is to be answered the same when it is made again, and changed nothing itself

// A later batch of a plan that grants to thousands of leases (core/commit_batches.h).
inline constexpr std::string_view later_portion = "portion";

// All that tests interrupt.
inline constexpr auto interruptible = [] {
  std::array<std::string_view, transitions.size() + within_transitions.size() + 1> all{};
  auto end = std::copy(transitions.begin(), transitions.end(), all.begin());
  end = std::copy(within_transitions.begin(), within_transitions.end(), end);
  *end = later_portion;
  return all;
}();

constexpr bool is_transition(std::string_view name) {
  return std::find(transitions.begin(), transitions.end(), name) != transitions.end();
}

constexpr bool is_interruptible(std::string_view name) {
  return std::find(interruptible.begin(), interruptible.end(), name) != interruptible.end();
}

}  // namespace sublet::core
