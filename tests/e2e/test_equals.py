# SPDX-License-Identifier: Apache-2.0
"""Equal users on one card: the explanations for a user who may not pause the other's leases."""
import re

import pytest

from tests.support.system import System

ANA, BEN = 54331, 54332  # an id without an account


@pytest.fixture
def system():
    system = System(config='[pause]\nmin_residency = "10m"\n')
    yield system.start()
    system.close()


def test_a_refusal_tells_the_time_of_the_slice_and_the_admins(system):
    system.load(ANA, "hers", vram="3GiB")
    his = system.run(BEN, "his", "true")
    system.until("his", "queued")
    ways = ("a request by an admin would pause lease-1 \\(hers, .*\\), and so can its owner: "
            "`sublet pause lease-1`")
    for arguments in (["preempt", "his"], ["free", "2GiB"]):
        done = system.cli(BEN, *arguments)
        assert done.returncode == 1 and re.search(f"hint: .*{ways}", done.stderr), done.stderr
        preview = system.cli(BEN, *arguments, "--preview")
        assert preview.returncode == 1 and re.search(f"hint: .*{ways}", preview.stdout), preview.stdout
    turn = r"hint: it waits for about (9|10) min.*: its time slice begins then: lease-1 \(hers, .*\) is paused"
    assert re.search(turn, system.cli(BEN, "preempt", "his").stderr)
    why = system.cli(BEN, "why", "his", check=0).stdout
    assert "its owner or an admin can pause it (`sublet pause lease-1`)" in why and "preempt" not in why
    done = system.cli(BEN, "pause", "lease-1")
    assert done.returncode == 77, done.stderr
    # Each of these commands gives the explanation.
    done = system.cli(0, "preempt", "his")
    assert done.returncode == 0, done.stderr
    assert his.wait(60) == 0, his.communicate()
    system.until("hers", "active")


def test_users_preempt_their_own_leases(system):
    system.load(BEN, "first", vram="3GiB")
    second = system.run(BEN, "second", "true")
    system.until("second", "queued")
    why = system.cli(BEN, "why", "second", check=0).stdout
    word = re.search(r"a request by its owner is enough: `sublet (preempt \S+)` pauses lease-1 \(first, .*\) of "
                     r"the same user for it; its pause takes about", why)
    assert word and "it is the same user's, who can pause it (`sublet pause lease-1`)" in why, why
    done = system.cli(BEN, *word[1].split())
    assert done.returncode == 0, done.stderr
    assert second.wait(60) == 0, second.communicate()
    system.until("first", "active")


def test_an_unpausable_lease_is_named_to_its_owner(system):
    system.load(BEN, "pinned", vram="3GiB", more=("--pausable", "no"))
    done = system.cli(BEN, "free", "2GiB")
    assert done.returncode == 1, done.stderr
    assert "hint: `sublet stop lease-1` ends a lease of the same user, which would free enough" in done.stderr
    assert system.cli(BEN, "stop", "lease-1").returncode == 0
    system.until("pinned", "ended")
    assert system.cli(BEN, "free", "2GiB").returncode == 0
