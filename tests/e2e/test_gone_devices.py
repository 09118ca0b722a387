# SPDX-License-Identifier: Apache-2.0
"""A card that is gone for good: leases that only that card could hold are told at once, and rejected in the end."""
import shutil
import signal

import pytest

from tests.support.keeping import ended, lease, queued
from tests.support.parking import ends_well, quick_checkpoints, until, until_filled
from tests.support.sublet import GIB, MIB, wait_until

# The second card is the large one.
SIM = "1x2GiB+1x4GiB"
# test_cordon_on.py: a lost card is cordoned by itself.
QUICK = ('[gpu]\ncordon_on = []\n'
         'interval_idle = "200ms"\ninterval_busy = "100ms"\nmax_age = "1s"\nforget_after = "{forget}"\n'
         '[lease]\nlinger = "500ms"\ngrace = "500ms"\n[device]\nheadroom = "64MiB"\n')
ASK = {"vram_bytes": 3 * GIB, "ttl_seconds": 600}


def machine(start_daemon, forget):
    return start_daemon(SIM, config=QUICK.format(forget=forget))


def fill(daemon):
    """Holds the large card by a token lease; leases of 3 GiB must wait for that card."""
    return daemon.api().post("/v1/leases", dict(ASK, consumer="blocker"))


def states(daemon):
    return {device["id"]: device["state"] for device in daemon.get("/v1/devices")["devices"]}


def test_a_wait_for_a_lost_card_is_told_at_once(start_daemon):
    daemon = machine(start_daemon, "1h")
    blocker = fill(daemon)
    run = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "large", "--", "true")
    daemon.spawn("sublet", "run", "--vram", "1GiB", "--gpu", "gpu1", "--tag", "named", "--", "true")
    queued(daemon, "large"), queued(daemon, "named")
    uuid = blocker["devices"][0]
    daemon.ctl("fault", "device-lost", "--device", 1)
    wait_until(lambda: states(daemon) == {"gpu0": "ok", "gpu1": "lost"}, "it is lost")
    gone = f"gpu1 ({uuid}) has been gone for "
    for tag in ("large", "named"):
        place = lease(daemon, tag)["queue"]
        assert gone in place["basis"] and "GPU is lost" in place["basis"], place
        assert place["device"] is None and place["holders"] == [] and place["eta_seconds"] is None
        for words in (("why", tag), ("queue",), ("ps",)):
            assert gone in daemon.cli(*words, check=0).stdout, words
    assert "the most is" in daemon.cli("why", "large").stdout
    assert "ask for any device" in daemon.cli("why", "named").stdout
    # Its lease has failed by now, or soon will: the driver reported that the card is gone.
    failed = daemon.api().get(f"/v1/leases/{blocker['id']}?wait=30s&since=active")
    assert (failed["state"], failed["end_reason"]) == ("ended", "failed")
    refused = daemon.api().post("/v1/leases", dict(ASK, queue=False))
    assert (refused.status, refused["code"]) == (409, "GpuLost") and gone in refused["detail"]
    assert daemon.api().post("/v1/leases", dict(ASK, vram_bytes=GIB, queue=False)).status == 201
    # The card is back: the leases have kept their places.
    daemon.ctl("clear")
    assert run.wait(60) == 0


def test_a_lease_for_a_card_that_stays_away_is_rejected(start_daemon):
    daemon = machine(start_daemon, "2s")
    fill(daemon)
    run = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "large", "--", "true")
    daemon.spawn("sublet", "run", "--vram", "1GiB", "--gpu", "gpu1", "--tag", "named", "--", "true")
    queued(daemon, "large"), queued(daemon, "named")
    daemon.ctl("fault", "device-lost", "--device", 1)
    assert run.wait(60) == 125
    said = run.stderr.read()
    assert "rejected" in said and "hint:" in said
    for tag in ("large", "named"):
        assert ended(daemon, tag)["end_reason"] == "rejected"
    assert "at most 1.8 GiB" in daemon.cli("why", "large").stdout
    assert "has been gone for" in daemon.cli("why", "named").stdout
    assert states(daemon) == {"gpu0": "ok"} and "is forgotten" in daemon.log()
    assert daemon.api().post("/v1/leases", ASK).status == 422
    daemon.ctl("clear")
    wait_until(lambda: states(daemon) == {"gpu0": "ok", "gpu1": "ok"}, "it is known again")
    assert daemon.api().post("/v1/leases", ASK).status == 201


@pytest.mark.parametrize("by_name", [False, True])
def test_a_daemon_that_starts_again_on_a_smaller_machine_rejects_what_never_fits(start_daemon, by_name):
    daemon = machine(start_daemon, "1h")
    blocker = fill(daemon)
    wanted = {"device": "gpu1"} if by_name else {}
    waiter = daemon.api().post("/v1/leases", dict(ASK, **wanted))
    small = daemon.api().post("/v1/leases", dict(ASK, vram_bytes=1900 * MIB))
    assert (waiter.status, small.status) == (202, 201)
    daemon.kill()
    shutil.rmtree(daemon.dir / "simgpu")
    daemon.sim = "1x2GiB"
    daemon.start(wait_for_cards=False)
    api = daemon.api()
    rejected = api.get(f"/v1/leases/{waiter['id']}?wait=30s&since=queued")
    assert (rejected["state"], rejected["end_reason"]) == ("ended", "rejected")
    told = api.get(f"/v1/leases/{waiter['id']}/why")["reasons"][-1]["text"]
    assert ("there is no device" if by_name else "at most 1.8 GiB") in told, told
    failed = api.get(f"/v1/leases/{blocker['id']}?wait=30s&since=active")
    assert failed["end_reason"] == "failed"
    assert daemon.process.poll() is None


def parked_on_the_large_card(start_daemon, forget):
    """A program that holds 1 GiB of the card, and is paused when the card is lost."""
    daemon = machine(start_daemon, forget)
    quick_checkpoints(daemon)
    program = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "it", "--", "simgpu-load", "--alloc", "1GiB",
                           "--seconds", "600", "--verify")
    until_filled(daemon, "it", "1GiB")
    assert daemon.cli("pause", "it").returncode == 0
    daemon.ctl("fault", "device-lost", "--device", 1)
    wait_until(lambda: states(daemon)["gpu1"] == "lost", "it is lost")
    return daemon, program


def test_a_parked_program_waits_for_its_lost_card(start_daemon):
    daemon, program = parked_on_the_large_card(start_daemon, "1h")
    blocked = wait_until(lambda: lease(daemon, "it")["blocked"], "it is told what it waits for")
    assert blocked["code"] == "ResumeBlocked" and blocked["unleased_processes"] == [], blocked
    assert "gpu1" in blocked["text"] and "has been gone for" in blocked["text"] and "GPU is lost" in blocked["text"]
    now = lease(daemon, "it")
    assert now["state"] == "paused" and now["parked_bytes"] > 0, now
    assert "ResumeBlocked: its device is gone" in daemon.cli("ps").stdout
    why = daemon.cli("why", "it").stdout
    assert "has been gone for" in why and "`sublet doctor` says what the driver reports" in why, why
    asked = daemon.spawn("sublet", "resume", "it")
    wait_until(lambda: lease(daemon, "it")["queue"], "it is wanted back")
    daemon.ctl("clear")
    until(daemon, "it", "active")
    assert asked.wait(60) == 0
    ends_well(daemon, "it", program)


def test_a_parked_lease_of_a_forgotten_card_ends_with_its_program(start_daemon):
    daemon, program = parked_on_the_large_card(start_daemon, "3s")
    assert program.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert ended(daemon, "it")["end_reason"] == "failed"
    assert "nothing else can restore its program" in daemon.cli("why", "it").stdout
    wait_until(lambda: states(daemon) == {"gpu0": "ok"}, "it is forgotten")


def test_a_parked_program_whose_card_is_lost_can_be_stopped(start_daemon):
    daemon, program = parked_on_the_large_card(start_daemon, "1h")
    wait_until(lambda: lease(daemon, "it")["blocked"], "it is told what it waits for")
    assert daemon.cli("stop", "it").returncode == 0
    assert program.wait(60) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert ended(daemon, "it")["end_reason"] == "released"
