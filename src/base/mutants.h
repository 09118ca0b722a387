// SPDX-License-Identifier: Apache-2.0
// Mistakes that the seeded simulation must find, at most 50. Each proves that an invariant of the oracle can fail
// (tests/sim/oracle.h). The shipped programs compile none of them: mutant() is false there. The program sim_mutants of
// tests/sim is built of the same sources and makes one mistake, by its name in tests/sim/mutants.cpp.
#pragma once

namespace sublet {

enum class Mutant {
  none,
  // core
  old_readings_count,
  others_do_not_count,
  an_end_frees_at_once,
  any_reading_settles,
  yielding_is_not_verified,
  unlisted_is_gone,
  back_without_room,
  undone_is_active,
  nobody_is_told_to_go_on,
  half_done_stays_so,
  deferred_ends_get_lost,
  ledger_has_no_limit,
  pins_do_not_hold,
  grants_do_not_matter,
  sleepers_are_ended,
  anybody_yields,
  nothing_is_manual,
  sleepers_are_late,
  offers_last,
  generations_do_not_matter,
  kept_room_stays_kept,
  a_gang_of_fewer,
  tenants_have_no_limit,
  guarantees_do_not_protect,
  // engine
  answered_before_durable,
  told_before_durable,
  changes_look_durable,
  done_before_durable,
  locked_before_durable,
  parked_before_durable,
  signals_before_durable,
  two_orders_at_once,
  undone_by_halves,
  room_is_not_made_sure_of,
  standstills_go_unnoticed,
  lost_ids_come_again,
  answers_are_not_kept,
  swap_is_not_prevented,
  returns_ask_again,
  // store
  torn_batches,
  commits_are_told_early,
  settled_comes_back,
  keys_are_forgotten,
  events_count_anew,
  times_are_not_kept,
  last_id_of_the_living,
  batches_in_disorder,
};

#ifdef SUBLET_MUTANTS
inline Mutant active_mutant = Mutant::none;
inline bool mutant(Mutant which) { return active_mutant == which; }
#else
constexpr bool mutant(Mutant) { return false; }
#endif

}  // namespace sublet
