# SPDX-License-Identifier: Apache-2.0
"""The seeded simulation itself: it holds, a seed is a run, and what is broken on purpose is found."""
import os
import pathlib
import re
import subprocess

import pytest

BUILD = pathlib.Path(os.environ.get("SUBLET_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
SIM = BUILD / "test" / "sim"

pytestmark = pytest.mark.skipif(not SIM.exists(), reason="tests/sim is not built")


def run(*arguments, program=SIM):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def mutants():
    """The program with the mutants in it, which only these tests need: it is built when they run."""
    built = subprocess.run(["cmake", "--build", BUILD, "--target", "sim_mutants"], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-4000:]
    return BUILD / "test" / "sim_mutants"


def test_two_million_steps_hold_every_invariant_and_meet_everything():
    """With what ctest runs. The same seeds each time: new ones are for ./dev sim and ./dev soak, not for whoever
    changes something else."""
    done = run("--steps", 2_000_000, "--from", 1000)
    assert done.returncode == 0, done.stdout
    assert "held every invariant" in done.stdout


def test_what_was_met_is_counted():
    """In a short run not everything can be; two million steps fail where it is not."""
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


def test_every_mutant_is_found(mutants):
    done = run("--mutants", program=mutants)
    assert done.returncode == 0, done.stdout
    found = re.search(r"^(\d+) of (\d+) mutants were found$", done.stdout, re.M)
    assert found and found[1] == found[2] and int(found[1]) >= 30
    rows = re.findall(r"^([a-z_]+) +(core|engine|store) ", done.stdout, re.M)
    where = [place for _, place in rows]
    assert len(dict(rows)) == int(found[1])
    assert 2 * where.count("core") <= len(where), "the loop around the core, and the store, are tried as hard"


def test_what_is_found_is_made_small_and_can_be_replayed(mutants):
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


def test_a_mutant_that_there_is_not_is_refused_with_the_names_of_those_there_are(mutants):
    for name in ("28", "done", "none"):
        done = run("--mutant", name, "--seed", 1, program=mutants)
        assert done.returncode == 2 and f"no mutant is called '{name}'" in done.stderr
        assert re.search(r"^  done_before_durable +actions do not wait", done.stderr, re.M)


def test_what_is_shipped_has_no_mutants():
    done = run("--mutants")
    assert done.returncode == 2 and "has no mutants" in done.stderr
