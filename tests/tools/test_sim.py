# SPDX-License-Identifier: Apache-2.0
"""The seeded simulation itself: it holds, a seed repeats a run, and deliberate faults are found."""
import os
import pathlib
import re
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
SIM = BUILD / "test" / "sim"

pytestmark = pytest.mark.skipif(not SIM.exists(), reason="tests/sim is not built")


def run(*arguments, program=SIM):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=3600)


@pytest.fixture(scope="module")
def mutants():
    """The program with the mutants in it, which only these tests need. `./dev test` builds it before all tests; a run
    of some tests builds it here.
    """
    built = subprocess.run(["cmake", "--build", BUILD, "--target", "sim_mutants"], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-4000:]
    return BUILD / "test" / "sim_mutants"


# One for each folder, found within seconds. SUBLET_MUTANTS=all runs all of them, which takes two cores for minutes.
FEW = ("others_do_not_count", "done_before_durable", "torn_batches")
SEEDS = pathlib.Path(__file__).resolve().parents[1] / "sim" / "seeds.txt"


def test_the_kept_seeds_are_replayed_first():
    """ctest runs the rest of the default campaign. Two million steps are for ./dev soak."""
    kept = [line for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    done = run("--steps", 1, "--from", 1, "--seeds", SEEDS)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith(f"{len(kept)} kept seeds, ")
    assert re.search(rf"steps in {len(kept)} runs held every invariant", done.stdout)


def test_a_seed_without_a_reason_is_refused(tmp_path):
    for line in ("12", "12 ", "x found something"):
        (tmp_path / "seeds.txt").write_text(f"# seeds\n7 is fine\n{line}\n")
        done = run("--steps", 1, "--seeds", tmp_path / "seeds.txt")
        assert done.returncode == 2 and "cannot read the seeds" in done.stderr


def test_met_situations_are_counted():
    """A short run cannot meet everything; a run of two million steps must."""
    done = run("--steps", 3000, "--from", 1, "--coverage")
    assert done.returncode == 0, done.stdout
    assert re.search(r"^queued +[1-9][0-9]* ", done.stdout, re.M) and "NEVER MET" not in done.stdout


def test_a_seed_is_a_run():
    for seed in (2, 5, 8):  # on both stores
        first, again = run("--seed", seed), run("--seed", seed)
        assert first.returncode == 0, first.stdout
        assert re.search(r"hash [0-9a-f]{16}", first.stdout)
        assert first.stdout == again.stdout
    assert run("--seed", 3).stdout != run("--seed", 4).stdout


def test_a_trace_shows_each_step():
    traced = run("--seed", 2, "--steps", 300, "--trace").stdout
    assert re.search(r"^300 \d+ ", traced, re.M)
    assert "lease-1 " in traced


@pytest.mark.parametrize("arguments", [["--seed"], ["--seed", "x"], ["--frob", "1"], ["frob"], ["--seed", "1x"]])
def test_bad_arguments_are_refused(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage: sim" in done.stderr


def test_mutants_are_found(mutants):
    chosen = [] if os.environ.get("SUBLET_MUTANTS") == "all" else ["--mutant", ",".join(FEW)]
    done = run("--mutants", *chosen, program=mutants)
    assert done.returncode == 0, done.stdout
    found = re.search(r"^(\d+) of (\d+) mutants were found$", done.stdout, re.M)
    rows = re.findall(r"^([a-z_]+) +(core|engine|store) ", done.stdout, re.M)
    assert found and found[1] == found[2] and len(dict(rows)) == int(found[1])
    if chosen:
        assert {name for name, _ in rows} == set(FEW) and len({place for _, place in rows}) == 3


def test_mutants_try_all_folders(mutants):
    listed = run("--mutants", "--mutant", "none", program=mutants)
    assert listed.returncode == 2
    names = re.findall(r"^  ([a-z_]+) ", listed.stderr, re.M)
    source = (BUILD.parent / "tests" / "sim" / "mutants.cpp").read_text()
    where = dict(re.findall(r'SUBLET_MUTANT\(([a-z_]+), "(core|engine|store)"', source))
    assert list(where) == names and 30 <= len(names) <= 50
    places = list(where.values())
    assert 2 * places.count("core") <= len(places) + 1, "the loop around the core, and the store, are tried as hard"


def test_a_finding_is_reduced_and_can_be_replayed(mutants):
    mutant = "done_before_durable"
    done = run("--mutant", mutant, "--seed", 1, program=mutants)
    assert done.returncode == 1
    invariant = re.search(r"^FAILED: ([a-z-]+): ", done.stdout, re.M)[1]
    least, events = map(int, re.search(r"the least that fails so, (\d+) of (\d+) events", done.stdout).groups())
    assert least < events / 10
    assert re.search(rf"^  {invariant}: ", done.stdout, re.M), "the small run fails in the same way"
    replay = re.search(rf"replay: ./dev sim --mutant {mutant} --seed (\d+) --steps (\d+)", done.stdout)
    again = run("--mutant", mutant, "--seed", replay[1], "--steps", replay[2], program=mutants)
    assert again.stdout == done.stdout


def test_an_unknown_mutant_is_refused_with_the_known_names(mutants):
    for name in ("28", "done", "none"):
        done = run("--mutant", name, "--seed", 1, program=mutants)
        assert done.returncode == 2 and f"no mutant is called '{name}'" in done.stderr
        assert re.search(r"^  done_before_durable +actions do not wait", done.stderr, re.M)


def test_the_shipped_programs_have_no_mutants():
    done = run("--mutants")
    assert done.returncode == 2 and "has no mutants" in done.stderr
