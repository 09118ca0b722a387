// SPDX-License-Identifier: Apache-2.0
#include "mutants.h"

#include <algorithm>
#include <array>

namespace sublet::sim {
namespace {

bool in_a_file(const Config& config) { return config.sqlite; }
bool fails_to_store(const Config& config) { return config.store_faults > 0; }
bool has_restarts(const Config& config) { return config.crashes > 0; }
bool is_honest(const Config& config) { return config.honest; }
bool has_swap(const Config& config) { return config.swap; }
bool must_not_swap(const Config& config) { return config.keeps_from_swap(); }
bool has_nothing_automatic(const Config& config) { return !config.rules.automatic; }
// Room is made on somebody's word alone, and by all who are asked.
bool has_words_alone(const Config& config) {
  return !config.rules.automatic && config.liars <= 0 && config.stuck <= 0 && config.pressed <= 0;
}
bool has_bookings(const Config& config) { return config.booked > 0; }
bool has_a_crowd(const Config& config) { return config.crowd; }
bool has_late_words(const Config& config) { return config.late_words > 0; }
bool has_liars(const Config& config) { return config.cooperative > 0 && config.liars > 0; }
// Processes leave the list while they hold bytes, and nothing else could explain those.
bool hides_processes(const Config& config) {
  return config.missing > 0 && config.ghosts == 0 && config.lies == 0 && config.lost_cards == 0;
}

// Its name is the enumerator's: a new one leaves the others theirs.
#define SUBLET_MUTANT(name, where, what, ...) \
  MutantInfo { Mutant::name, #name, where, what, __VA_ARGS__ }

constexpr std::array all{
    SUBLET_MUTANT(old_readings_count, "core", "a reading is trusted whatever its age"),
    SUBLET_MUTANT(problems_do_not_matter, "core", "a device whose newest reading cannot be true is given out"),
    SUBLET_MUTANT(others_do_not_count, "core", "bytes of processes without a lease are promised"),
    SUBLET_MUTANT(an_end_frees_at_once, "core", "what ended is free before it is measured gone"),
    SUBLET_MUTANT(any_reading_settles, "core", "a reading from before the end shows that the bytes are gone"),
    SUBLET_MUTANT(yielding_is_not_verified, "core", "who says that it has yielded is believed"),
    SUBLET_MUTANT(back_without_room, "core", "a paused lease is restored before it has room"),
    SUBLET_MUTANT(undone_is_active, "core", "a pause that failed counts as never tried"),
    SUBLET_MUTANT(ledger_keeps_the_dead, "core", "the ledger keeps what ended while it was parked"),
    SUBLET_MUTANT(ledger_has_no_limit, "core", "parking takes any amount of host memory"),
    SUBLET_MUTANT(tiers_are_equal, "core", "the queue does not know tiers"),
    SUBLET_MUTANT(generations_do_not_matter, "core", "a call with an old generation is obeyed"),
    SUBLET_MUTANT(time_runs_while_parked, "core", "the time limit goes on while its owner is parked"),
    SUBLET_MUTANT(sleepers_are_late, "core", "time in which nobody could be heard counts"),
    SUBLET_MUTANT(offers_last, "core", "an offer never ends"),
    SUBLET_MUTANT(a_gang_of_fewer, "core", "a lease on several devices gets one less"),
    SUBLET_MUTANT(pins_do_not_hold, "core", "a pinned lease is paused"),
    SUBLET_MUTANT(ids_come_again, "core", "numbers of leases that are history are given again"),
    SUBLET_MUTANT(half_done_stays_so, "core", "what a restart interrupted is left as it is"),
    SUBLET_MUTANT(anybody_yields, "core", "who is of a higher tier yields too"),
    SUBLET_MUTANT(turns_end_leases, "core",
                  "a spot lease that cannot be parked is ended for the time slice of an equal"),
    SUBLET_MUTANT(turns_of_one_device, "core", "who wants several devices has others leave one of them for its turn"),
    SUBLET_MUTANT(turns_begin_with_the_first, "core", "a turn on several devices begins when it could on one of them"),
    SUBLET_MUTANT(all_yield_at_once, "core", "the next is asked to yield before the one before has"),
    SUBLET_MUTANT(grants_do_not_matter, "core", "programs that nobody granted are parked"),
    SUBLET_MUTANT(nobody_is_told_to_go_on, "core", "who yielded by itself is never told to go on"),
    SUBLET_MUTANT(relapses_take_no_room, "core", "what a paused program takes again is promised to others"),
    SUBLET_MUTANT(crowds_come_back_small, "core", "what it took while it was paused comes back into others' room"),
    SUBLET_MUTANT(words_do_not_last, "core", "who yielded on somebody's word takes its room back at once"),
    SUBLET_MUTANT(makers_of_room_come_back, "core", "who has yielded on a word comes back before the next has yielded",
                  has_words_alone),
    SUBLET_MUTANT(unlisted_is_gone, "core", "who vanishes from the list counts as having yielded", hides_processes),
    SUBLET_MUTANT(resumes_get_lost, "core", "a resume while a pause is undone is forgotten"),
    SUBLET_MUTANT(next_for_nobody, "core", "the next method is tried for one who has gone"),
    SUBLET_MUTANT(stuck_ones_hold_up, "core", "nobody else is asked while a driver call does not return"),
    SUBLET_MUTANT(hosts_refusals_are_faults, "core", "who could not be asked for want of host memory has failed"),
    SUBLET_MUTANT(ledger_is_asked_one_by_one, "core", "those yield who are too much together for host memory"),
    SUBLET_MUTANT(residues_are_nobodys, "core", "what parked programs keep on a card is promised beyond its headroom"),
    SUBLET_MUTANT(more_yield_than_need, "core", "who is not needed for it has to make room too"),
    SUBLET_MUTANT(prices_do_not_matter, "core", "the fewest have to make room, whatever that costs them"),
    SUBLET_MUTANT(switching_takes_no_time, "core", "turns come as often as may be, whatever it takes to switch"),
    SUBLET_MUTANT(failures_do_not_count, "core", "who fails to yield is not the worse for it"),
    SUBLET_MUTANT(unleased_go_unnamed, "core",
                  "nobody says which unleased process keeps a paused lease from coming back"),
    SUBLET_MUTANT(pauses_are_not_counted, "core",
                  "time in which a lease was paused counts as time that it held its room"),
    SUBLET_MUTANT(returns_take_nothing, "core", "who comes back or grows takes nothing of the room that is held",
                  has_a_crowd),
    SUBLET_MUTANT(shares_go_by_priority, "core", "who is of a higher priority has all turns", has_a_crowd),
    SUBLET_MUTANT(all_leave_for_a_turn, "core", "for a turn those leave, too, who would fit beside it", has_a_crowd),
    SUBLET_MUTANT(turns_are_put_off, "core", "an announced turn is put off when it comes", has_a_crowd),
    SUBLET_MUTANT(turns_are_not_looked_for, "core", "an announced turn begins when something else happens"),
    SUBLET_MUTANT(moves_look_short, "core", "what a pause takes is learned too short", has_a_crowd),
    SUBLET_MUTANT(lower_tiers_go_unseen, "core", "that those of lower tiers could yield now is not noticed"),
    SUBLET_MUTANT(gaps_are_idle, "core", "a spot program that uses nothing for a moment is ended as if it never had"),
    SUBLET_MUTANT(who_may_register_is_ended, "core",
                  "a spot lease of which nothing has registered yet is ended at once", has_late_words),
    SUBLET_MUTANT(silent_ones_stay, "core", "a spot lease of which nothing ever registers is never ended",
                  has_late_words),
    SUBLET_MUTANT(turns_are_the_first_ones, "core", "of several who come in by a turn one has room kept", has_a_crowd),
    SUBLET_MUTANT(turns_begin_when_near, "core", "an announced turn begins when it is near", has_a_crowd),
    SUBLET_MUTANT(turns_last_one_step, "core", "an announced turn is forgotten in the next step", has_a_crowd),
    SUBLET_MUTANT(back_and_asked_at_once, "core", "who has just come back from a pause is asked again at once"),
    SUBLET_MUTANT(kept_room_stays_kept, "core", "what was kept for one who needs it no more is given to nobody"),
    SUBLET_MUTANT(nothing_stays_behind, "core", "what those keep who yield counts as free"),
    SUBLET_MUTANT(batch_is_spot, "core", "who is of the tier batch is ended for others too"),
    SUBLET_MUTANT(first_failures_are_free, "core", "whose pause failed for the first time is asked again at once"),
    SUBLET_MUTANT(sleepers_are_ended, "core", "a paused program is asked to end as it is"),
    SUBLET_MUTANT(deferred_ends_get_lost, "core", "who is to end and can never be restored is not asked to"),
    SUBLET_MUTANT(grants_are_no_news, "core", "a grant leaves the generation as it was"),
    SUBLET_MUTANT(who_offers_is_asked, "core", "who wants the driver is asked to yield by itself"),
    SUBLET_MUTANT(returns_are_for_all, "core", "who is back from a pause gets all that it once asked for", is_honest),
    SUBLET_MUTANT(time_is_for_the_absent, "core", "whose owner is connected is never out of time"),
    SUBLET_MUTANT(entered_as_used, "core", "the ledger is entered with what is used, not what may be"),
    SUBLET_MUTANT(restarts_lose_places, "core", "who waits where it is does so in no queue after a restart"),
    SUBLET_MUTANT(charged_as_used, "core", "a lease is charged what it uses, whatever it was promised"),
    SUBLET_MUTANT(first_device_is_booked, "core", "of several devices only the first is booked"),
    SUBLET_MUTANT(sums_come_later, "core", "a size changes before the old one is out of the sums"),
    SUBLET_MUTANT(exits_are_the_end, "core", "an exit after the end is noted as its reason"),
    SUBLET_MUTANT(lapses_begin_anew, "core", "whose offer lapsed begins with its first generation"),
    SUBLET_MUTANT(ends_stay_parked, "core", "who ends while it is parked still counts as parked"),
    SUBLET_MUTANT(times_do_not_come_back, "core", "who is back from a pause has no time limit any more"),
    SUBLET_MUTANT(shares_do_not_bind, "core", "one user fills the ledger while others wait"),
    SUBLET_MUTANT(pressure_does_not_matter, "core", "programs are parked while everybody waits for host memory"),
    SUBLET_MUTANT(swap_does_not_matter, "core", "who cannot be kept from the swap device is asked all the same",
                  must_not_swap),
    SUBLET_MUTANT(nothing_is_manual, "core", "others yield although nothing is automatic", has_nothing_automatic),
    SUBLET_MUTANT(the_parked_go_with_their_card, "core", "who is parked ends with its card, and stays parked"),
    SUBLET_MUTANT(deserted_is_forgotten, "core",
                  "how long nothing of a paused lease has lived is counted anew by each daemon", has_bookings),
    SUBLET_MUTANT(orphans_stay, "core", "a paused lease of which nobody is left never ends", has_bookings),
    SUBLET_MUTANT(orphans_count_from_the_pause, "core", "nobody is left since the pause, whenever they ended",
                  has_bookings),
    SUBLET_MUTANT(turns_take_a_tenth, "core", "a tenth of a turn goes into switching, whatever is configured"),
    SUBLET_MUTANT(refused_words_stay, "core", "the order of a request that is refused goes to the next one",
                  has_nothing_automatic),
    SUBLET_MUTANT(answered_before_durable, "engine", "an answer does not wait for its commit"),
    SUBLET_MUTANT(done_before_durable, "engine", "actions do not wait for their commit"),
    SUBLET_MUTANT(locked_before_durable, "engine", "the driver locks before it is stored whom"),
    SUBLET_MUTANT(hindrances_are_faults, "engine", "whom a debugger or the machine keeps from being parked has failed"),
    SUBLET_MUTANT(what_passes_lasts, "engine", "what keeps one from being parked for a moment counts as if it lasted"),
    SUBLET_MUTANT(parked_before_durable, "engine", "the driver parks before it is stored what is there"),
    SUBLET_MUTANT(told_before_durable, "engine", "events do not wait for their commit"),
    SUBLET_MUTANT(two_orders_at_once, "engine", "an order is given while another of the lease is out"),
    SUBLET_MUTANT(ends_forget_holders, "engine", "an end that is not durable forgets who holds the lease",
                  fails_to_store),
    SUBLET_MUTANT(orders_for_the_dead, "engine", "a lease that has ended is parked"),
    SUBLET_MUTANT(changes_look_durable, "engine", "a change looks durable before it is"),
    SUBLET_MUTANT(lost_ids_come_again, "engine", "a number that was told of and lost is given again"),
    SUBLET_MUTANT(time_goes_back, "engine", "the wall clock set back sets the time line back"),
    SUBLET_MUTANT(alarms_come_no_sooner, "engine",
                  "who is to be woken sooner than was said is woken then all the same"),
    SUBLET_MUTANT(standstills_go_unnoticed, "engine", "a stopped daemon wakes and ends everything"),
    SUBLET_MUTANT(readings_begin_late, "engine", "a reading counts from when it is told"),
    SUBLET_MUTANT(readings_of_before_a_sleep, "engine", "a reading from before the machine slept is used"),
    SUBLET_MUTANT(answers_are_not_kept, "engine", "a call that is made again is decided again"),
    SUBLET_MUTANT(ends_are_not_counted, "engine", "ended leases count as live ones of their user"),
    SUBLET_MUTANT(restored_is_running, "engine", "who is restored by the driver is not told to go on", has_liars),
    SUBLET_MUTANT(undone_by_halves, "engine", "of a pause that failed what is locked stays so"),
    SUBLET_MUTANT(parked_by_halves, "engine", "the youngest of the processes stays locked"),
    SUBLET_MUTANT(back_by_halves, "engine", "who is restored counts as running, whoever is still parked"),
    SUBLET_MUTANT(who_came_is_not_locked, "engine", "who was forked while the others were locked runs on"),
    SUBLET_MUTANT(weighed_before_locked, "engine", "a program is weighed while it can still grow"),
    SUBLET_MUTANT(room_is_not_made_sure_of, "engine", "a restore is tried without ballast"),
    SUBLET_MUTANT(nobody_else_allocates, "engine", "a restore counts on room that programs without a lease may take"),
    SUBLET_MUTANT(restored_inside_a_park, "engine", "a pause that fails restores whatever the room"),
    SUBLET_MUTANT(lost_counts_as_done, "engine", "what a helper was asked before it ended counts as done"),
    SUBLET_MUTANT(refused_and_locked, "engine", "who cannot be parked is locked all the same"),
    SUBLET_MUTANT(locks_have_no_time, "engine", "a lock is given up while its program may still finish"),
    SUBLET_MUTANT(stuck_ones_get_a_second, "engine", "a process whose helper hangs gets another"),
    SUBLET_MUTANT(busy_for_ever, "engine", "an order that has ended is still under way"),
    SUBLET_MUTANT(weighings_get_lost, "engine", "who is to be asked is forgotten while the store is behind"),
    SUBLET_MUTANT(alarms_need_a_commit, "engine", "when to wake is noted only with what is stored"),
    SUBLET_MUTANT(returns_wait_for_nobody, "engine", "a return that waits for a driver call is forgotten"),
    SUBLET_MUTANT(lost_decisions_are_done, "engine", "what follows from a lost decision is done later", fails_to_store),
    SUBLET_MUTANT(returns_ask_again, "engine", "a return that waits for a driver call asks all the time"),
    SUBLET_MUTANT(signals_before_durable, "engine", "a program is told to end before it is stored that it is to"),
    SUBLET_MUTANT(jumps_are_not_stored, "engine", "that times moved along over a restart is not stored"),
    SUBLET_MUTANT(weighed_for_nothing, "engine", "who is found too heavy is parked all the same"),
    SUBLET_MUTANT(forgotten_and_answered, "engine", "an order that was forgotten is answered"),
    SUBLET_MUTANT(unknown_is_running, "engine", "who comes back, nobody knows how far, counts as running"),
    SUBLET_MUTANT(quiet_answers_get_lost, "engine", "an answer to a call that changed nothing is not kept"),
    SUBLET_MUTANT(alarms_ring_by_the_second, "engine", "alarms ring on whole seconds"),
    SUBLET_MUTANT(noted_once, "engine", "who came while the others were locked is not noted"),
    SUBLET_MUTANT(lost_is_durable, "engine", "who waits for a commit that is lost is told that it is durable"),
    SUBLET_MUTANT(earlier_commits_do, "engine", "a change looks durable with the commit before its own"),
    SUBLET_MUTANT(one_commit_early, "engine", "what follows from a decision is done with the commit before it"),
    SUBLET_MUTANT(restarts_watch_nobody, "engine", "who was there before a restart is not watched after it",
                  has_restarts),
    SUBLET_MUTANT(held_are_forgotten, "engine", "who holds a lease while the store is read anew is forgotten"),
    SUBLET_MUTANT(ended_and_ordered, "engine", "the order of a lease that has ended goes on"),
    SUBLET_MUTANT(lost_is_back, "engine", "who can never be restored counts as back"),
    SUBLET_MUTANT(last_trouble_counts, "engine", "of several calls only the last can fail"),
    SUBLET_MUTANT(locks_wait_for_ever, "engine", "who waits to lock when the store fails is told nothing, ever"),
    SUBLET_MUTANT(swap_is_not_prevented, "engine", "who is parked is not kept from the swap device", must_not_swap),
    SUBLET_MUTANT(once_kept_always_kept, "engine", "who runs again is still kept from the swap device", must_not_swap),
    SUBLET_MUTANT(groups_are_asked_once, "engine", "a group that is kept for one lease is not for the next",
                  must_not_swap),
    SUBLET_MUTANT(swapped_goes_unseen, "engine", "nobody looks what is on the swap device", has_swap),
    SUBLET_MUTANT(who_comes_is_told_nothing, "engine", "an actor that comes knows of no program"),
    SUBLET_MUTANT(who_comes_keeps_nobody, "engine", "an actor that comes keeps nobody from swap", must_not_swap),
    SUBLET_MUTANT(who_comes_keeps_the_rest, "engine", "what an earlier actor kept from swap stays so", must_not_swap),
    SUBLET_MUTANT(nobody_looks_who_lives, "engine", "that nobody of a parked lease lives is not told", has_bookings),
    SUBLET_MUTANT(bookings_do_not_live, "engine", "what is booked to a parked lease counts as nobody", has_bookings),
    SUBLET_MUTANT(any_actor_will_do, "engine", "an actor that is gone is counted on", must_not_swap),
    SUBLET_MUTANT(reboots_keep_parking, "engine", "what a reboot has ended still counts as parked", has_restarts),
    SUBLET_MUTANT(reboots_by_halves, "engine", "what a reboot has ended is measured gone before it ends", has_restarts),
    SUBLET_MUTANT(torn_batches, "store", "only the first lease of a batch is written"),
    SUBLET_MUTANT(commits_are_told_early, "store", "all is told as durable when the first of it is"),
    SUBLET_MUTANT(settled_comes_back, "store", "settled leases are loaded again"),
    SUBLET_MUTANT(parking_half_stored, "store", "who wants to come back is forgotten", in_a_file),
    SUBLET_MUTANT(told_is_forgotten, "store", "that a program was told to yield is forgotten", in_a_file),
    SUBLET_MUTANT(keys_are_forgotten, "store", "a stored answer is not looked for", in_a_file),
    SUBLET_MUTANT(batches_in_disorder, "store", "the last of a group is written first", in_a_file),
    SUBLET_MUTANT(events_count_anew, "store", "event numbers start again", in_a_file),
    SUBLET_MUTANT(times_are_not_kept, "store", "the latest time is not read back", in_a_file),
    SUBLET_MUTANT(last_id_of_the_living, "store", "the highest number is taken from what is left", in_a_file),
    SUBLET_MUTANT(yielded_is_forgotten, "store", "what programs held when they yielded is forgotten", in_a_file),
    SUBLET_MUTANT(words_are_forgotten, "store", "on whose word a lease has its room is forgotten", in_a_file),
    SUBLET_MUTANT(sizes_are_forgotten, "store", "what a lease had before it was resized is forgotten", in_a_file),
    SUBLET_MUTANT(growths_are_forgotten, "store", "that a lease waits to grow is forgotten", in_a_file),
    SUBLET_MUTANT(manners_are_forgotten, "store", "how a program yields by itself is forgotten", in_a_file),
    SUBLET_MUTANT(touched_is_forgotten, "store", "whom the driver was allowed to lock is forgotten", in_a_file),
    SUBLET_MUTANT(reads_overtake, "store", "a read does not wait for what is still to be written"),
    SUBLET_MUTANT(returns_are_forgotten, "store", "when a lease came back from its pause is forgotten", in_a_file),
    SUBLET_MUTANT(stops_are_forgotten, "store", "that a program is to end is forgotten", in_a_file),
    SUBLET_MUTANT(lapses_are_forgotten, "store", "that an offer lapsed is forgotten", in_a_file),
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
