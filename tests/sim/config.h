// SPDX-License-Identifier: Apache-2.0
// The world of a run, drawn from its seed: the number of cards, the rules, and the frequency of each fault. A run with
// all faults at once hides what one alone would show, so most runs have a few.
#pragma once

#include "core/rules.h"
#include "random.h"

#include <string>
#include <vector>

namespace sublet::sim {

struct Config {
  std::uint64_t seed = 0;
  core::Rules rules;
  std::vector<Bytes> cards;  // their totals
  Bytes driver_reserved;
  Bytes host_memory;
  bool headroom_known = false;  // a cgroup limits what may be parked
  bool sqlite = false;          // the store is the daemon's own, on files; else the one in memory

  // Nobody takes a card's bytes but within a lease, and the driver does what it says it did: then no program with a
  // lease may ever see the card full, and every restore must succeed.
  bool honest = false;

  // Percent of the occasions.
  double unleased_processes = 0;  // processes without a lease
  double over_use = 0;            // programs that take more than their lease
  double lies = 0;                // readings that cannot be true
  double missing = 0;             // readings from which on a process is not listed for a while
  double lost_cards = 0;          // fall off the bus, for a while
  double ghosts = 0;              // freed bytes that the card gives back late
  double refusals = 0;            // park: cannot be done, undone
  double unknowns = 0;            // park and unpark: nobody knows how far it came
  double stuck = 0;               // never answers
  double liars = 0;               // says that it has yielded, and has not, or not all, or late, or takes it again
  double cooperative = 0;         // programs that yield by themselves
  double rude = 0;           // of those: that refuse, are late or deaf; and, unless honest, that lie or do it by halves
  double relapses = 0;       // of those that yield by themselves: that take it again
  double final_faults = 0;   // restore: never again
  double short_host = 0;     // host memory is short
  double store_faults = 0;   // commits that fail, kept or lost
  double slow_commits = 0;   // commits that take up to `standing_disk`
  double crashes = 0;        // of the daemon
  double stalls = 0;         // the daemon stands still
  double late_words = 0;     // of spot leases: that say how they yield a while after their grant, or never
  double booked = 0;         // token leases with a program that is merely booked to them
  double forkers = 0;        // processes that fork while they are being locked
  double pressed = 0;        // of the time: host memory keeps everybody waiting
  double actor_faults = 0;   // of the actor's orders: refused, late, or the actor ends
  double dumb_clients = 0;   // requests with old generations, of wrong leases, in wrong states
  double deaf_programs = 0;  // do not end at SIGTERM
  Duration slowest_commit{};  // of the others

  bool swap = false;           // the machine has a swap device
  bool actor = false;          // somebody signals programs, and keeps them from swap …
  bool actor_is_root = false;  // … with the right to write to any group
  bool old_driver = false;     // parks nobody but on its owner's word
  std::size_t portion = 256;   // so many are given room by one commit

  // When all is over and everybody has gone, programs come that want more than there is, and nobody disturbs them: what
  // is promised of turns can be told only where nothing else explains what happens.
  bool crowd = false;
  bool quiet = false;  // no faults are about any more

  explicit Config(std::uint64_t seed);
  // Parked bytes may be written to the swap device, and must not be: not all programs can be paused.
  bool keeps_from_swap() const { return swap && !rules.allow_swap; }
  static constexpr Duration standing_disk = std::chrono::seconds(30);
  Duration longest_commit() const { return slow_commits > 0 || was_slow ? standing_disk : slowest_commit; }
  bool was_slow = false;  // before it was calm: a disk that stood then may stand still
  void calm();            // no faults from now on
  std::string text() const;

 private:
  void draw_limits();
};

}  // namespace sublet::sim
