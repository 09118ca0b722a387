// SPDX-License-Identifier: Apache-2.0
#include "bugs.h"

#include <array>

namespace sublet::sim {
namespace {

constexpr std::array all{
    BugInfo{Bug::old_readings_count, "core", "a reading is trusted whatever its age"},
    BugInfo{Bug::problems_do_not_matter, "core", "a device whose newest reading cannot be true is given out"},
    BugInfo{Bug::others_do_not_count, "core", "bytes of processes under no lease are promised"},
    BugInfo{Bug::an_end_frees_at_once, "core", "what ended is free before it is measured gone"},
    BugInfo{Bug::any_reading_settles, "core", "a reading from before the end shows that the bytes are gone"},
    BugInfo{Bug::yielding_is_not_verified, "core", "who says that it has yielded is believed"},
    BugInfo{Bug::back_without_room, "core", "a paused lease is restored before it has room"},
    BugInfo{Bug::undone_is_active, "core", "a pause that failed counts as never tried"},
    BugInfo{Bug::ledger_keeps_the_dead, "core", "the ledger keeps what ended while it was parked"},
    BugInfo{Bug::ledger_has_no_limit, "core", "parking takes any amount of host memory"},
    BugInfo{Bug::tiers_are_equal, "core", "the queue does not know tiers"},
    BugInfo{Bug::generations_do_not_matter, "core", "a call with an old generation is obeyed"},
    BugInfo{Bug::time_runs_while_parked, "core", "the time limit goes on while its owner is parked"},
    BugInfo{Bug::sleepers_are_late, "core", "time in which nobody could be heard counts"},
    BugInfo{Bug::offers_last, "core", "an offer never ends"},
    BugInfo{Bug::a_gang_of_fewer, "core", "a lease on several devices gets one less"},
    BugInfo{Bug::pins_do_not_hold, "core", "a pinned lease is paused"},
    BugInfo{Bug::ids_come_again, "core", "numbers of leases that are history are given again"},
    BugInfo{Bug::half_done_stays_so, "core", "what a restart interrupted is left as it is"},
    BugInfo{Bug::anybody_yields, "core", "who is of a higher tier yields too"},
    BugInfo{Bug::all_yield_at_once, "core", "the next is asked to yield before the one before has"},
    BugInfo{Bug::grants_do_not_matter, "core", "programs that nobody granted are parked"},
    BugInfo{Bug::nobody_is_told_to_go_on, "core", "who yielded by itself is never told to go on"},
    BugInfo{Bug::relapses_take_no_room, "core", "what a paused program takes again is promised to others"},
    BugInfo{Bug::crowds_come_back_small, "core", "what it took while it was paused comes back into others' room"},
    BugInfo{Bug::words_do_not_last, "core", "who yielded on somebody's word takes its room back at once"},
    BugInfo{Bug::answered_before_durable, "engine", "an answer does not wait for its commit"},
    BugInfo{Bug::done_before_durable, "engine", "actions do not wait for their commit"},
    BugInfo{Bug::locked_before_durable, "engine", "the driver locks before it is stored whom"},
    BugInfo{Bug::told_before_durable, "engine", "events do not wait for their commit"},
    BugInfo{Bug::two_orders_at_once, "engine", "an order is given while another of the lease is out"},
    BugInfo{Bug::ends_forget_holders, "engine", "an end that is not durable forgets who holds the lease"},
    BugInfo{Bug::orders_for_the_dead, "engine", "a lease that has ended is parked"},
    BugInfo{Bug::changes_look_durable, "engine", "a change looks durable before it is"},
    BugInfo{Bug::lost_ids_come_again, "engine", "a number that was told of and lost is given again"},
    BugInfo{Bug::time_goes_back, "engine", "the wall clock set back sets the time line back"},
    BugInfo{Bug::standstills_go_unnoticed, "engine", "a stopped daemon wakes and ends everything"},
    BugInfo{Bug::readings_begin_late, "engine", "a reading counts from when it is told"},
    BugInfo{Bug::readings_of_before_a_sleep, "engine", "a reading from before the machine slept is used"},
    BugInfo{Bug::answers_are_not_kept, "engine", "a call that is made again is decided again"},
    BugInfo{Bug::ends_are_not_counted, "engine", "ended leases count as live ones of their user"},
    BugInfo{Bug::restored_is_running, "engine", "who is restored by the driver is not told to go on"},
    BugInfo{Bug::torn_batches, "store", "only the first lease of a batch is written"},
    BugInfo{Bug::commits_are_told_early, "store", "all is told as durable when the first of it is"},
    BugInfo{Bug::settled_comes_back, "store", "settled leases are loaded again"},
    BugInfo{Bug::parking_half_stored, "store", "who wants to come back is forgotten"},
    BugInfo{Bug::told_is_forgotten, "store", "that a program was told to yield is forgotten"},
    BugInfo{Bug::keys_are_forgotten, "store", "a stored answer is not looked for"},
    BugInfo{Bug::batches_in_disorder, "store", "the last of a group is written first"},
    BugInfo{Bug::events_count_anew, "store", "event numbers start again"},
    BugInfo{Bug::times_are_not_kept, "store", "the latest time is not read back"},
    BugInfo{Bug::last_id_of_the_living, "store", "the highest number is taken from what is left"},
};

}  // namespace

std::span<const BugInfo> planted_bugs() { return all; }

}  // namespace sublet::sim
