# SPDX-License-Identifier: Apache-2.0
"""Tenants at work, with several real users on one card: limits, a guarantee that is taken back, and turns."""
import json

import pytest

from tests.support.sublet import GIB, wait_until
from tests.support.system import ADMINS, CAROL, DAVE, GROUP, System

GAMES, MAN = 5, 6  # accounts of every Debian
ADMIN = (GROUP, ADMINS)
CONFIG = """
[pause]
min_residency = "1500ms"
slice_overhead = 1.0
cooldown = "500ms"
[[tenants.user]]
name = "dave"
tenant = "vision"
[[tenants.user]]
name = "games"
tenant = "house"
"""


@pytest.fixture
def system():
    made = System(config=CONFIG)
    yield made.start()
    made.close()


def apply(system, text):
    (system.home / "tenants.toml").write_text(text)
    return system.cli(CAROL, "tenant", "apply", system.home / "tenants.toml", groups=ADMIN, check=0)


def why(system, uid, tag):
    return system.cli(uid, "why", tag, check=0).stdout


def ends(system, uid, tag):
    system.cli(uid, "stop", tag, check=0)
    system.until(tag, "ended")


def test_a_request_over_a_limit_waits_or_is_refused_as_configured(system):
    apply(system, '[[tenant]]\nname = "vision"\nlimit = "1536MiB"\n'
                  '[[tenant]]\nname = "house"\nlimit = "1GiB"\nlive_leases = 1\non_limit = "refuse"\n')
    for uid, tag in ((DAVE, "first"), (GAMES, "only")):
        system.run(uid, tag, "sleep", "600", vram="1GiB")
        system.until(tag, "active")
    system.run(DAVE, "second", "sleep", "600", vram="1GiB")
    system.until("second", "queued")
    told = why(system, DAVE, "second")
    for words in ("vision", "1.0 GiB", "1.5 GiB"):
        assert words in told, (words, told)
    for uid, vram, code, said in ((GAMES, "512MiB", 75, "the tenant house has 1.0 GiB and may have 1.0 GiB"),
                                  (GAMES, "2GiB", 125, "the tenant house may have 1.0 GiB in all"),
                                  (DAVE, "2GiB", 125, "the tenant vision may have 1.5 GiB in all")):
        refused = system.cli(uid, "run", "--vram", vram, "--", "true")
        assert refused.returncode == code and said in refused.stderr, refused.stderr
    ends(system, DAVE, "first")
    system.until("second", "active")
    rows = {row["name"]: row for row in json.loads(system.cli(CAROL, "tenant", "ls", "--json", check=0,
                                                              groups=ADMIN).stdout)["tenants"]}
    assert rows["vision"]["held_bytes"] == rows["house"]["held_bytes"] == GIB


def test_a_guarantee_is_taken_back_by_pausing_a_borrower(system):
    apply(system, '[[tenant]]\nname = "vision"\nquota = "2GiB"\n')
    system.load(GAMES, "borrower", vram="3GiB", more=("--tier", "interactive"))
    assert system.lease("borrower")["state"] == "active"
    system.run(DAVE, "ours", "sleep", "600", vram="2GiB", more=("--tier", "interactive"))
    system.until("ours", "active")
    assert system.until("borrower", "paused")
    told = why(system, GAMES, "borrower")
    assert "within the quota of its tenant vision" in told and "borrowed 3.0 GiB" in told, told
    shown = system.cli(DAVE, "tenant", "show", "vision", check=0).stdout
    assert "2.0 GiB" in shown, shown
    # Beyond the guarantee nothing is taken.
    system.run(DAVE, "more", "sleep", "600", vram="2GiB", more=("--tier", "interactive"))
    system.until("more", "queued")
    system.cli(DAVE, "release", "more", check=None)
    ends(system, DAVE, "ours")
    system.until("borrower", "active")


def test_three_tenants_that_want_the_whole_card_take_turns(system):
    tags = {"a": DAVE, "b": GAMES, "c": MAN}
    for tag, uid in tags.items():
        system.run(uid, tag, "simgpu-load", "--alloc", "512MiB", "--seconds", "600", vram="3GiB")
        wait_until(lambda tag=tag: system.lease(tag).get("state"), f"{tag} is there")
    turns = []

    def watch():
        states = {row["tag"]: row["state"] for row in system.get("/v1/leases")["leases"]}
        active = [tag for tag in tags if states.get(tag) == "active"]
        if len(active) == 1 and turns[-1:] != active:
            turns.extend(active)
        return len(turns) >= 12
    wait_until(watch, "twelve turns", timeout=120)
    assert all(turns[i] == turns[i - 3] for i in range(6, 12)), turns
    assert set(turns[-3:]) == set(tags), turns
    shown = system.cli(MAN, "tenant", "show", "man", check=0).stdout
    assert " of every " in shown and "(tier standard, 3 leases)" in shown, shown
    rotation, = json.loads(system.cli(MAN, "tenant", "show", "man", "--json", check=0).stdout)["rotations"]
    assert rotation["turns"] == pytest.approx(3) and rotation["slice_seconds"] >= 1.5, rotation
    assert rotation["period_seconds"] == pytest.approx(3 * rotation["slice_seconds"]), rotation
    told = wait_until(lambda: next((text for tag, uid in tags.items() if "By rule it waits" in (text := why(
        system, uid, tag))), None), "a waiter is told the longest wait")
    assert " at most, unless " in told and " before its own)" in told, told
