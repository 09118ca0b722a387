// SPDX-License-Identifier: Apache-2.0
#include "mutants.h"

#include <algorithm>
#include <array>

namespace sublet::sim {
namespace {

bool in_a_file(const Config& config) { return config.sqlite; }
bool must_not_swap(const Config& config) { return config.keeps_from_swap(); }
bool has_nothing_automatic(const Config& config) { return !config.rules.automatic; }
bool has_tenants(const Config& config) { return !config.tenants.empty(); }
// Processes leave the list while they hold bytes, and nothing else could explain those.
bool hides_processes(const Config& config) {
  return config.missing > 0 && config.ghosts == 0 && config.lies == 0 && config.lost_cards == 0;
}

// A mutant has the name of its enumerator.
#define SUBLET_MUTANT(name, where, what, ...) \
  MutantInfo { Mutant::name, #name, where, what, __VA_ARGS__ }

constexpr std::array all{
    SUBLET_MUTANT(old_readings_count, "core", "a reading is trusted at any age"),
    SUBLET_MUTANT(others_do_not_count, "core", "bytes of unleased processes are promised"),
    SUBLET_MUTANT(an_end_frees_at_once, "core", "bytes of an ended lease are free before they are measured gone"),
    SUBLET_MUTANT(any_reading_settles, "core", "a reading from before an end proves that the bytes are gone"),
    SUBLET_MUTANT(yielding_is_not_verified, "core", "a program that says it has yielded is believed"),
    SUBLET_MUTANT(unlisted_is_gone, "core", "a process that vanishes from the list counts as yielded", hides_processes,
                  20080),
    SUBLET_MUTANT(back_without_room, "core", "a paused lease resumes before memory is free for it"),
    SUBLET_MUTANT(undone_is_active, "core", "a lease whose pause failed counts as running at once"),
    SUBLET_MUTANT(nobody_is_told_to_go_on, "core", "a program that yielded by itself never gets a resume order"),
    SUBLET_MUTANT(half_done_stays_so, "core", "a pause that a restart interrupted is left as it is"),
    SUBLET_MUTANT(deferred_ends_get_lost, "core", "a program that is to end and can never be restored is not ended"),
    SUBLET_MUTANT(ledger_has_no_limit, "core", "parking takes any amount of host memory"),
    SUBLET_MUTANT(pins_do_not_hold, "core", "a pinned lease is paused"),
    SUBLET_MUTANT(grants_do_not_matter, "core", "the driver parks programs whose owners did not agree"),
    SUBLET_MUTANT(sleepers_are_ended, "core", "a paused program is asked to end as it is"),
    SUBLET_MUTANT(anybody_yields, "core", "a lease of a higher tier is paused for one of a lower tier"),
    SUBLET_MUTANT(nothing_is_manual, "core", "the rules pause leases where nothing is automatic",
                  has_nothing_automatic),
    SUBLET_MUTANT(sleepers_are_late, "core", "time counts in which the daemon could hear nobody"),
    SUBLET_MUTANT(offers_last, "core", "an offer never ends"),
    SUBLET_MUTANT(generations_do_not_matter, "core", "a call with an old generation is obeyed"),
    SUBLET_MUTANT(kept_room_stays_kept, "core", "memory that was freed for a lease that is gone is granted to nobody",
                  nullptr, 60890),
    SUBLET_MUTANT(a_gang_of_fewer, "core", "a lease on several devices gets one device less"),
    SUBLET_MUTANT(tenants_have_no_limit, "core", "a tenant gets more than its limit", has_tenants),
    SUBLET_MUTANT(guarantees_do_not_protect, "core", "a lease within its guarantee is paused for any other",
                  has_tenants),
    SUBLET_MUTANT(answered_before_durable, "engine", "an answer does not wait for its commit"),
    SUBLET_MUTANT(told_before_durable, "engine", "events do not wait for their commit"),
    SUBLET_MUTANT(changes_look_durable, "engine", "a change looks durable before it is"),
    SUBLET_MUTANT(done_before_durable, "engine", "actions do not wait for their commit"),
    SUBLET_MUTANT(locked_before_durable, "engine", "the driver locks processes before their names are stored"),
    SUBLET_MUTANT(parked_before_durable, "engine", "the driver parks processes before their bytes are stored"),
    SUBLET_MUTANT(signals_before_durable, "engine", "a program is told to end before its end is stored"),
    SUBLET_MUTANT(two_orders_at_once, "engine", "a lease gets an order while another one is out"),
    SUBLET_MUTANT(undone_by_halves, "engine", "processes stay locked after a pause that failed"),
    SUBLET_MUTANT(room_is_not_made_sure_of, "engine", "a restore is tried without ballast"),
    SUBLET_MUTANT(standstills_go_unnoticed, "engine", "a daemon that stood still ends leases as soon as it wakes"),
    SUBLET_MUTANT(lost_ids_come_again, "engine", "a number that was told and lost is given again"),
    SUBLET_MUTANT(answers_are_not_kept, "engine", "a repeated call is decided again"),
    SUBLET_MUTANT(swap_is_not_prevented, "engine", "a parked program is not kept from the swap device", must_not_swap),
    SUBLET_MUTANT(returns_ask_again, "engine", "a resume that waits for a driver call asks in a busy loop"),
    SUBLET_MUTANT(torn_batches, "store", "only the first lease of a batch is written"),
    SUBLET_MUTANT(commits_are_told_early, "store", "the store tells all commits as durable with the first one"),
    SUBLET_MUTANT(settled_comes_back, "store", "settled leases are loaded again"),
    SUBLET_MUTANT(keys_are_forgotten, "store", "a stored answer is not looked up", in_a_file),
    SUBLET_MUTANT(events_count_anew, "store", "event numbers start again", in_a_file),
    SUBLET_MUTANT(times_are_not_kept, "store", "the latest time is not read back", in_a_file),
    SUBLET_MUTANT(last_id_of_the_living, "store", "the highest number is taken from the leases that are left",
                  in_a_file),
    SUBLET_MUTANT(batches_in_disorder, "store", "the last batch of a group is written first", in_a_file),
};

#undef SUBLET_MUTANT

}  // namespace

std::span<const MutantInfo> all_mutants() { return all; }

const MutantInfo* find_mutant(std::string_view name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const MutantInfo& mutant) { return mutant.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace sublet::sim
