# SPDX-License-Identifier: Apache-2.0
"""Programs with orders by signals, which the actor sends, while there is no actor: the programs are not blamed."""
import pytest

from tests.support.sublet import wait_until
from tests.support.system import System

ANA, BEN = 54331, 54332  # an id without an account
CONFIG = """
[lease]
grace = "1s"
[pause]
spot_unused_after = "2s"
cooldown = "1s"
"""
SCRIPT = """
trap 'echo yielded > "$answer"' USR1
trap 'echo resumed > "$answer"' USR2
answer=$(sublet cooperate --signal --pid $$)
while :; do sleep 600 & wait $!; done
"""


@pytest.fixture
def system():
    made = System(CONFIG).start()
    yield made
    made.close()


def told_by_signals(system, *more):
    program = system.run(ANA, "hers", "bash", "-c", SCRIPT, vram="3GiB", more=("--pausable", "cooperative", *more))
    wait_until(lambda: system.get("/v1/leases/hers/cooperate").body.get("registered"), "it has said how it yields")
    return program


def why(system, tag):
    return " ".join(reason["text"] for reason in system.get(f"/v1/leases/{tag}/why")["reasons"])


def lose_the_actor(system):
    system.actor.kill()
    system.actor.wait()
    wait_until(lambda: not system.get("/v1/status")["daemon"]["actor"]["ready"], "it is missed")


def test_a_missing_resume_order_ends_no_program(system):
    program = told_by_signals(system, "--tier", "spot")
    system.cli(ANA, "pause", "hers", check=0)
    lose_the_actor(system)
    back = system.begin(ANA, "resume", "hers")
    wait_until(lambda: "cannot get the order to resume" in why(system, "hers"), "it is told why")
    urgent = system.run(BEN, "his", "true", vram="3GiB", more=("--tier", "interactive"))
    wait_until(lambda: system.lease("his").get("state") == "queued", "somebody above it waits")
    # The daemon would have ended an unresponsive program by now, and so would the stop.
    told = system.begin(ANA, "stop", "hers")
    wait_until(lambda: system.log().count("its program is not running again") >= 4, "all of its moments are over")
    assert system.lease("hers")["state"] == "resuming" and program.poll() is None, why(system, "hers")
    system.start_actor()
    assert back.wait(60) == 0, back.communicate()
    assert urgent.wait(60) == 0, urgent.communicate()
    assert told.wait(60) == 0, told.communicate()
    assert program.wait(60) == 128 + 15, "it went on, and was ended as it was asked to"
    assert "has not resumed for" not in why(system, "hers")


def test_without_a_yield_order_there_is_no_resume_order(system):
    program = told_by_signals(system)
    lose_the_actor(system)
    refused = system.cli(ANA, "pause", "hers", check=1)
    assert "cannot get the order" in refused.stderr and "sublet doctor" in refused.stderr, refused.stderr
    assert system.lease("hers")["state"] == "active" and program.poll() is None
    rows = system.get("/v1/consumers")["consumers"]
    assert not [row for row in rows if row["pauses"]], rows
    system.start_actor()
    wait_until(lambda: system.get("/v1/status")["daemon"]["actor"]["ready"], "another one")
    wait_until(lambda: system.cli(ANA, "pause", "hers").returncode == 0, "it is told")
    system.cli(ANA, "resume", "hers", check=0)
    system.cli(ANA, "stop", "hers", check=0)
    assert program.wait(60) == 128 + 15
