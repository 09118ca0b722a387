# SPDX-License-Identifier: Apache-2.0
"""The driver fails midway, or programs die during a driver call: nothing is taken for free, and nothing stays behind.
"""
import json
import os
import select
import signal

import pytest

from tests.support.parking import daemon, lease_of, until, until_filled, used_on_card  # noqa: F401
from tests.support.sublet import MIB, wait_until


def run(daemon, tag, vram, alloc, *flags):
    program = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                           "--seconds", "600", "--verify")
    until_filled(daemon, tag, alloc)
    return program


def ledger(daemon):
    return daemon.get("/v1/ledger").body


def test_a_copy_that_fails_midway_frees_nothing(daemon):
    '''The driver has failed the process for good with its bytes on the card: they stay charged, and no process is
    killed.
    '''
    program = run(daemon, "it", "2GiB", "512MiB")
    used = used_on_card(daemon)
    daemon.ctl("fault", "checkpoint-fail", "--after", "50")
    done = daemon.cli("pause", "it")
    assert done.returncode == 1 and "poisoned" in done.stderr, done.stderr
    lost = until(daemon, "it", "poisoned")
    daemon.ctl("clear")
    assert used_on_card(daemon) == used and lost["used_bytes"] >= 512 * MIB
    assert ledger(daemon)["entries"][0]["bytes"] == 0, "nothing of it is in host memory"
    said = daemon.cli("ps", COLUMNS="300").stdout
    assert "the driver can never restore it, and its program keeps what it holds on its devices" in said, said
    waiter = daemon.api().post("/v1/leases", {"vram_bytes": 3700 * MIB, "ttl_seconds": 600, "tier": "interactive"})
    assert waiter.status == 202, "what it holds is promised to nobody"
    smaller = {"vram_bytes": 1024 * MIB, "ttl_seconds": 600, "tier": "critical"}
    assert daemon.api().post("/v1/leases", smaller).status == 201, "and of the rest nothing is lost"
    assert program.poll() is None
    assert daemon.cli("stop", "it").returncode == 0
    assert program.wait(60) == 128 + signal.SIGKILL, "it does not answer any more"
    wait_until(lambda: ledger(daemon)["entries"] == [] and used_on_card(daemon) == 0, "nothing of it is left")


def test_a_poisoned_program_is_reported_everywhere(daemon):
    program = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--status-fd", "2", "--", "simgpu-load",
                           "--alloc", "512MiB", "--seconds", "600")
    until_filled(daemon, "it", "512MiB")
    assert daemon.cli("pause", "it").returncode == 0
    daemon.ctl("fault", "restore-fail")
    done = daemon.cli("resume", "it")
    lost = until(daemon, "it", "poisoned")
    reason = "the driver can never restore it: "
    assert done.returncode == 1 and reason in done.stderr and "sublet stop" in done.stderr, done.stderr
    assert lost["pause"]["problem"] == lost["pause"]["reason"] and lost["pause"]["reason"].startswith(reason), lost
    assert str(lost["owner"]["pid"]) in lost["pause"]["reason"]
    daemon.kill()
    daemon.start()
    until(daemon, "it", "poisoned")
    waits = daemon.spawn("sublet", "wait", "it")
    assert select.select([waits.stderr], [], [], 60)[0], "it says that it may wait for ever"
    told = waits.stderr.readline()

    def warned():
        return [each for each in daemon.get("/v1/status")["warnings"] if each["code"] == "poisoned"]

    (warning,) = warned()
    assert reason in warning["text"] and f"sublet stop {lost['id']}" in warning["hint"], warning
    assert any(f"sublet stop {lost['id']}" in help for help in daemon.get("/v1/leases/it/why")["helps"])
    assert reason in daemon.cli("ps", COLUMNS="300").stdout
    refused = daemon.cli("release", "it")
    assert refused.returncode == 1, refused.stderr
    assert "sublet stop" in refused.stderr and "resume" not in refused.stderr, refused.stderr
    assert daemon.cli("stop", "it").returncode == 0
    said = program.communicate(timeout=60)[1]
    assert f"{lost['id']} is poisoned: {reason}" in said and f"`sublet stop {lost['id']}` ends it" in said, said
    note = next(json.loads(line) for line in said.splitlines() if '"poisoned"' in line)
    assert note["reason"] == lost["pause"]["reason"], note
    assert f"{lost['id']} is poisoned: {reason}" in told and waits.wait(60) == 128 + signal.SIGKILL, told
    assert not warned()


@pytest.mark.parametrize("fault,verb", [("lock-hang", "pause"), ("checkpoint-hang", "pause"),
                                        ("restore-hang", "resume"), ("unlock-hang", "resume")])
def test_a_program_that_dies_in_a_driver_call_is_gone(daemon, fault, verb):
    program = run(daemon, "it", "2GiB", "512MiB")
    pid = lease_of(daemon, "it")["owner"]["pid"]
    if verb == "resume":
        assert daemon.cli("pause", "it").returncode == 0
    daemon.ctl("fault", fault, "--pid", pid)
    assert daemon.cli(verb, "it", "--no-wait").returncode == 0
    wait_until(lambda: any(entry["hits"] for entry in daemon.cards()["faults"]), "the driver is at work on it")
    assert lease_of(daemon, "it")["state"] == ("pausing" if verb == "pause" else "resuming")
    os.kill(pid, signal.SIGKILL)
    assert until(daemon, "it", "ended")["end_reason"] == "owner_gone"
    assert program.wait(60) == 128 + signal.SIGKILL
    wait_until(lambda: used_on_card(daemon) == 0 and ledger(daemon)["entries"] == [], "nothing of it is left")
    daemon.ctl("clear")
    again = daemon.cli("run", "--vram", "3GiB", "--no-wait", "--", "simgpu-load", "--alloc", "2GiB", "--seconds", "0")
    assert again.returncode == 0, again.stderr
