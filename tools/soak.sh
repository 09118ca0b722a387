# SPDX-License-Identifier: Apache-2.0
# Sourced by ./dev: the long run.

# ./dev soak [MINUTES]: what `test` does for seconds, again and again with new seeds: crowds of programs that want more
# than there is, for ten minutes each; kills at random moments; every failpoint; requests made by chance; two million
# steps of the simulation; all mutants; where there is time for them, each drill killed at all that it reaches. At the
# end the packages, where that can be done. A failure prints its seed.
soak() {
  local minutes=${1:-30} round=0
  [[ $minutes =~ ^[0-9]+$ ]] || die "soak takes a number of minutes" 2
  verb_setup
  verb_build
  report=$build/soak
  rm -rf "$report"
  mkdir -p "$report"
  local each=$((minutes * 20))
  [[ $each -lt 600 ]] || each=600
  [[ $each -gt 20 ]] || each=20
  local until=$((SECONDS + minutes * 60)) began=$SECONDS took=0
  # A quarter of an hour. Nothing of them is left to chance, so that once is enough.
  if [[ $minutes -ge 30 ]]; then
    say "each drill, killed at all that it reaches"
    SUBLET_DRILL_STEPS=all python_tests -- -q -o faulthandler_timeout=0 -k on_the_way tests/e2e/test_drills_killed.py ||
      die "a drill failed"
  fi
  # No round is begun that is unlikely to end in time.
  say "all mutants"
  SUBLET_MUTANTS=all python_tests -- -q -o faulthandler_timeout=0 -k mutants_are_found tests/tools/test_sim.py ||
    die "a mutant was not found"
  while [[ $round == 0 || $((SECONDS + took)) -lt $until ]]; do
    began=$SECONDS
    round=$((round + 1))
    say "round $round, $(((until - SECONDS) / 60)) min left"
    SUBLET_CROWD_SECONDS=$each SUBLET_CROWD_TABLE=$PWD/$report/table \
      python_tests -- -q -s -o faulthandler_timeout=0 tests/e2e/test_crowd.py || die "round $round failed"
    SUBLET_KILLS=500 python_tests -- -q tests/e2e/test_kill_storm.py tests/e2e/test_failpoints.py \
      tests/e2e/test_driver_faults.py tests/e2e/test_reconcile.py || die "round $round failed"
    local seed=$((RANDOM << 15 | RANDOM)) chance=$((each / 5))
    [[ $chance -gt 15 ]] || chance=15
    say "requests made by chance, SUBLET_FUZZ_SEED=$seed"
    SUBLET_FUZZ_SEED=$seed SUBLET_FUZZ_SECONDS=$chance python_tests -- -q -s tests/e2e/test_api_fuzz.py ||
      die "round $round failed: SUBLET_FUZZ_SEED=$seed"
    SEEDS=100 "$build/test/core_test" --gtest_filter='Property.*' || die "round $round failed"
    "$build/test/sim" --steps 2000000 --seeds tests/sim/seeds.txt || die "round $round failed"
    "$build/test/sim_capabilities" --steps 2000000 --from $RANDOM$RANDOM || die "round $round failed"
    took=$((SECONDS - began))
  done
  say "the release and its packages"
  nightly_tests -q || die "the release failed"
  cat "$report/table"
  say "$round rounds passed"
}
