// SPDX-License-Identifier: Apache-2.0
// The world of a run, drawn from its seed: the number of cards, the rules, and the frequency of each fault. A run with
// all faults at once hides what one alone would show, so most runs have a few.
#pragma once

#include "lease/rules.h"
#include "lease/tenant.h"
#include "random.h"

#include <string>
#include <vector>

namespace sublet::sim {

struct Config {
  std::uint64_t seed = 0;
  core::Rules rules;
  std::vector<Bytes> cards;  // total bytes of each card
  Bytes driver_reserved;
  Bytes host_memory;
  bool headroom_known = false;  // a cgroup limits the parked bytes
  bool sqlite = false;          // true: the daemon's own store on files; false: the store in memory

  // No process allocates without a lease, and the driver reports truthfully. Then no program with a lease may see a
  // full card, and every restore must succeed.
  bool honest = false;

  // Percentages: the chance of each fault when it may happen.
  double unleased_processes = 0;  // unleased processes
  double over_use = 0;            // programs that take more than their lease
  double lies = 0;                // readings that cannot be true
  double missing = 0;             // readings after which a process is not listed for a while
  double lost_cards = 0;          // cards that fall off the bus for a while
  double ghosts = 0;              // freed bytes that the card gives back late
  double refusals = 0;            // parks that cannot be done, and are undone
  double unknowns = 0;            // parks and unparks with an unknown result
  double stuck = 0;               // driver calls that never return
  double liars = 0;               // pauses that are reported as done, and are not, or only in part, late or for a while
  double cooperative = 0;         // programs that yield by themselves
  double rude = 0;            // of those: refuse, are late or unresponsive; unless honest, also lie or free only half
  double relapses = 0;        // of the cooperative programs: allocate while paused
  double final_faults = 0;    // restores that fail for ever
  double short_host = 0;      // host memory is short
  double store_faults = 0;    // commits that fail, kept or lost
  double slow_commits = 0;    // commits that take up to `standing_disk`
  double crashes = 0;         // crashes of the daemon
  double stalls = 0;          // the daemon stands still
  double late_words = 0;      // spot leases that register late, or never
  double booked = 0;          // token leases with a program that is merely booked to them
  double forkers = 0;         // processes that fork while they are being locked
  double pressed = 0;         // share of time in which all wait for host memory
  double actor_faults = 0;    // orders of the actor that are refused or late, or end the actor
  double dumb_clients = 0;    // requests with old generations, wrong leases or wrong states
  double deaf_programs = 0;   // programs that do not end at SIGTERM
  Duration slowest_commit{};  // slowest commit of the others

  bool swap = false;           // the machine has a swap device
  bool actor = false;          // an actor signals programs, and keeps them from swap
  bool actor_is_root = false;  // the actor may write to any group
  bool old_driver = false;     // the driver parks a program only with its owner's consent

  // At the end of a run, when all leases have gone, programs come that want more memory than there is, without faults.
  // Promises about time slices can be checked only where nothing else explains what happens.
  bool crowd = false;
  std::vector<core::Tenant> tenants;  // the tree; empty: none
  bool quiet = false;         // no faults are active any more
  bool capabilities = false;  // they end, pause and resume leases too

  explicit Config(std::uint64_t seed);
  // Parked bytes may be written to the swap device, and must not be: not all programs can be paused.
  bool keeps_from_swap() const { return swap && !rules.allow_swap; }
  static constexpr Duration standing_disk = std::chrono::seconds(30);
  Duration longest_commit() const { return slow_commits > 0 || was_slow ? standing_disk : slowest_commit; }
  bool was_slow = false;  // commits were slow before calm(): the disk may still stand
  void calm();            // stops all faults
  std::string text() const;

 private:
  void draw_limits();
  void draw_tenants();
};

}  // namespace sublet::sim
