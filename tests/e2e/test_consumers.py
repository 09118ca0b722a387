# SPDX-License-Identifier: Apache-2.0
"""The history of a consumer belongs to its user: programs of the same name do not change another user's estimates."""
import pytest

from tests.support.sublet import MIB
from tests.support.system import CAROL, System

ANA, BEN = 54331, 54332  # an id without an account


@pytest.fixture
def system():
    system = System()
    yield system.start()
    system.close()


def trained(system, uid, tag, alloc, pauses=0):
    """Runs a program of that user with the same name as the others, to its end."""
    program = system.load(uid, tag, alloc=alloc, more=("--name", "train"))
    for _ in range(pauses):
        system.cli(uid, "pause", tag, check=0)
        system.cli(uid, "resume", tag, check=0)
    system.cli(uid, "stop", tag, check=0)
    program.wait(60)
    system.until(tag, "ended")


def check(system):
    rows = {row["uid"]: row for row in system.get("/v1/consumers")["consumers"]}
    assert rows.keys() == {ANA, BEN} and {row["consumer"] for row in rows.values()} == {"train"}
    assert [rows[uid]["user"] for uid in (ANA, BEN)] == [str(ANA), str(BEN)]
    assert 1024 * MIB <= rows[ANA]["peak_used_bytes"] < 1600 * MIB
    assert 600 * MIB <= rows[BEN]["peak_used_bytes"] < 1000 * MIB
    assert {move["samples"] for move in rows[ANA]["moves"]} == {1} and not rows[BEN]["moves"]
    # The lists show the consumers of both users to everybody, with their users.
    table = system.cli(CAROL, "report", "--consumers", check=0).stdout.splitlines()
    assert table[0].split()[:2] == ["CONSUMER", "USER"]
    assert [line.split()[:2] for line in table[1:3]] == [["train", str(ANA)], ["train", str(BEN)]]
    # Estimates come from the caller's own history.
    for uid in (ANA, BEN):
        said = system.cli(uid, "run", "--name", "train", "--dry-run", "--", "true", check=0)
        size = f"{rows[uid]['peak_used_bytes'] / MIB / 1024:.1f} GiB" if uid == ANA else \
            f"{rows[uid]['peak_used_bytes'] // MIB} MiB"
        assert f"'train' used at most {size} so far" in said.stderr + said.stdout, said
    said = system.cli(CAROL, "run", "--name", "train", "--dry-run", "--", "true", check=0)
    assert "'train' has not run before" in said.stderr + said.stdout, said


def test_programs_of_one_name_are_each_users_own(system):
    trained(system, ANA, "hers", "1GiB", pauses=1)
    trained(system, BEN, "his", "600MiB")
    check(system)
    system.process.kill()
    system.process.wait(60)
    system.start_daemon()
    check(system)


def test_grants_are_too(system):
    system.cli(ANA, "pause", "--grant", "train", check=0)
    assert [(row["consumer"], row["uid"]) for row in system.get("/v1/consumers")["grants"]] == [("train", ANA)]
    refused = system.cli(BEN, "pause", "--revoke", "train")
    assert refused.returncode != 0 and "no grant" in refused.stderr
    system.cli(ANA, "pause", "--revoke", "train", check=0)
    assert not system.get("/v1/consumers")["grants"]
