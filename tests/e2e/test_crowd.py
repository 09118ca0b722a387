# SPDX-License-Identifier: Apache-2.0
"""Many programs on a card that is too small for them: no program is refused memory, and every byte is intact.

SUBLET_CROWD_SECONDS makes the runs longer (./dev soak: 600), SUBLET_SEED repeats a run.
"""
import os
import random
import time

from tests.support.crowd import CONFIG, HEAD, SPEC, promise, soak
from tests.support.parking import quick_checkpoints

SECONDS = int(os.environ.get("SUBLET_CROWD_SECONDS", "0"))
SHORT = 8  # seconds, and programs
PROGRAMS = 200 if SECONDS else SHORT


def drawn():
    seed = int(os.environ.get("SUBLET_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"SUBLET_SEED={seed}")
    return seed, random.Random(seed)


def tell(text):
    """Prints the totals. ./dev soak asks for a file of its own; a failing test prints them too."""
    print(text)
    if path := os.environ.get("SUBLET_CROWD_TABLE"):
        fresh = not os.path.exists(path)
        with open(path, "a") as table:
            table.write((HEAD + "\n" if fresh else "") + text + "\n")


def test_random_programs_and_faults_all_around_them(start_daemon):
    seed, rng = drawn()
    daemon = start_daemon(SPEC, config=CONFIG)
    quick_checkpoints(daemon)
    began = time.monotonic()
    crowd = soak(daemon, rng, programs=PROGRAMS, seconds=SECONDS or SHORT)
    tell(crowd.table("random programs, faults", seed, time.monotonic() - began))
    assert crowd.sums["programs"] >= PROGRAMS


def test_robbers_leave_no_bytes_behind(start_daemon):
    """Programs allocate while they are paused: others may then run out of memory, but no program hangs and no byte is
    left.
    """
    seed, rng = drawn()
    daemon = start_daemon(SPEC, config=CONFIG)
    quick_checkpoints(daemon)
    began = time.monotonic()
    crowd = soak(daemon, rng, programs=PROGRAMS // 2, seconds=(SECONDS or SHORT) / 2, robbers=True)
    tell(crowd.table("the same, with robbers", seed, time.monotonic() - began))


def test_eight_programs_share_a_card_that_is_too_small(start_daemon):
    """The promise: none of the programs ever runs out of memory, all verify their bytes, all end well."""
    seed, rng = drawn()
    daemon = start_daemon(SPEC, config=CONFIG)
    if not SECONDS:
        quick_checkpoints(daemon)  # else a move costs as much as with a real driver
    began = time.monotonic()
    crowd = promise(daemon, rng, SECONDS)
    tell(crowd.table(f"eight that want {crowd.wanted:.1f} cards", seed, time.monotonic() - began))
    assert crowd.sums["faults"] == 0
