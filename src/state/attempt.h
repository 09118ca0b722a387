// SPDX-License-Identifier: Apache-2.0
// One pause or resume of a lease, from the order to the proof. Plain data, and not stored: a restart undoes a pause in
// progress and repeats a resume in progress.
#pragma once

#include "lease/lease.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

// A lease has one exactly while it is pausing or resuming. A pause that fails is undone within the same attempt; the
// next method is a new attempt.
struct Attempt {
  enum class Phase {
    ordered,   // Park or Unpark is ordered and not answered
    locked,    // Park is not answered, and the processes that the driver locks are stored
    answered,  // Park: the method reports the bytes freed, and readings have to show it
    waiting,   // the order was not carried out, and is repeated at `look_at`
  };

  Phase phase = Phase::waiting;
  bool begun = true;                // its program was told, or a process was locked, as far as known
  Time ordered_at = {};             // when Park or Unpark was ordered
  Time overdue_at = Time::never();  // when it should have been answered
  bool overdue = false;             // that time passed without an answer
  Time look_at = Time::never();     // when to look for the next proof, or to repeat the order
  Bytes moved = {};                 // bytes to move: of its processes at the pause order, or to come back
  Time moving_since = {};           // since when they move; Time{}: a pause is being undone

  // A pause:
  unsigned tried = 0;                               // methods tried in this pause, by their bits
  std::optional<Bytes> parked = {};                 // reported host memory, stored with the result of the pause
  Time answered_at = {};                            // phase answered: verification runs since then
  std::vector<std::optional<Bytes>> unlisted = {};  // unlisted bytes of each device before the pause, not its own
  int proofs = 0;                                   // how many snapshots in a row prove the pause
  Time proven_at = {};                              // when the last snapshot that was judged began
  std::optional<Time> held_at = {};                 // when the last snapshot that shows it holding its bytes began
  bool unverified = false;                          // it was reported as unverified

  // A pause that is undone:
  std::optional<Obstacle> undone = {};   // why; the lease becomes ineligible when it runs again
  std::optional<PauseMethod> next = {};  // the next method, once the one before is undone
  std::optional<Time> late_since = {};   // when a Park was ordered whose driver call was given up

  // A resume, or a pause that is undone:
  Time told_since = {};      // since when only the program itself delays it
  int failures = 0;          // orders that were not carried out
  int unanswered = 0;        // orders in a row that the program did not answer
  std::string failure = {};  // why the last one failed, one sentence
  ObstacleCode failure_code = ObstacleCode::none;

  bool is_ordered() const { return phase == Phase::ordered || phase == Phase::locked; }
};

}  // namespace sublet::core
