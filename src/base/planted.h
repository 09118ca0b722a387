// SPDX-License-Identifier: Apache-2.0
// Mistakes that the seeded simulation must find: each is a bug somebody could make, at the place where it would be
// made. In what is shipped planted() is false and the mistakes are not compiled; one program, tests/sim's sim_planted,
// is made of the same sources with them, and makes the one that it is told to. tests/sim/bugs.cpp says what each does.
#pragma once

namespace sublet {

enum class Bug {
  none,
  // core
  old_readings_count,
  problems_do_not_matter,
  others_do_not_count,
  an_end_frees_at_once,
  any_reading_settles,
  yielding_is_not_verified,
  back_without_room,
  undone_is_active,
  ledger_keeps_the_dead,
  ledger_has_no_limit,
  tiers_are_equal,
  generations_do_not_matter,
  time_runs_while_parked,
  sleepers_are_late,
  offers_last,
  a_gang_of_fewer,
  pins_do_not_hold,
  ids_come_again,
  half_done_stays_so,
  anybody_yields,
  turns_end_leases,
  turns_of_one_device,
  turns_begin_with_the_first,
  all_yield_at_once,
  grants_do_not_matter,
  nobody_is_told_to_go_on,
  relapses_take_no_room,
  crowds_come_back_small,
  words_do_not_last,
  unlisted_is_gone,
  resumes_get_lost,
  next_for_nobody,
  stuck_ones_hold_up,
  hosts_refusals_are_faults,
  ledger_is_asked_one_by_one,
  residues_are_nobodys,
  more_yield_than_need,
  prices_do_not_matter,
  switching_takes_no_time,
  failures_do_not_count,
  outsiders_go_unnamed,
  pauses_are_not_counted,
  returns_take_nothing,
  // engine
  answered_before_durable,
  done_before_durable,
  locked_before_durable,
  told_before_durable,
  two_orders_at_once,
  ends_forget_holders,
  orders_for_the_dead,
  changes_look_durable,
  lost_ids_come_again,
  time_goes_back,
  alarms_come_no_sooner,
  standstills_go_unnoticed,
  readings_begin_late,
  readings_of_before_a_sleep,
  answers_are_not_kept,
  ends_are_not_counted,
  restored_is_running,
  undone_by_halves,
  parked_by_halves,
  back_by_halves,
  who_came_is_not_locked,
  weighed_before_locked,
  room_is_not_made_sure_of,
  nobody_else_allocates,
  restored_inside_a_park,
  lost_counts_as_done,
  refused_and_locked,
  locks_have_no_time,
  stuck_ones_get_a_second,
  busy_for_ever,
  // store
  torn_batches,
  commits_are_told_early,
  settled_comes_back,
  parking_half_stored,
  told_is_forgotten,
  keys_are_forgotten,
  batches_in_disorder,
  events_count_anew,
  times_are_not_kept,
  last_id_of_the_living,
  yielded_is_forgotten,
  words_are_forgotten,
};

#ifdef SUBLET_PLANT_BUGS
inline Bug planted_bug = Bug::none;
inline bool planted(Bug bug) { return planted_bug == bug; }
#else
constexpr bool planted(Bug) { return false; }
#endif

}  // namespace sublet
