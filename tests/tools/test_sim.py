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


def test_new_seeds_hold_every_invariant():
    done = run("--steps", 30_000)
    assert done.returncode == 0, done.stdout
    assert "held every invariant" in done.stdout


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
