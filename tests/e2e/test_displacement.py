# SPDX-License-Identifier: Apache-2.0
"""Whoever is more urgent has others yield, equals take turns; all come back with their bytes whole."""
import signal

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until
from tests.support.sublet import GIB, MIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "2s"\n'
          '[pause]\nverify_timeout = "5s"\ncooldown = "500ms"\nmin_residency = "1500ms"\noverhead = 1.0\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def run(daemon, tag, vram, alloc, seconds, *flags):
    return daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                        "--seconds", str(seconds), "--verify", "--json")


def filled(daemon, tag, size=512 * MIB):
    wait_until(lambda: lease_of(daemon, tag).get("used_bytes", 0) >= size, f"{tag} has filled its memory")


def helps(daemon, tag):
    return str(daemon.get(f"/v1/leases/{tag}/why").body.get("helps"))


def codes(daemon, tag):
    return [reason["code"] for reason in daemon.get(f"/v1/leases/{tag}/why").body.get("reasons", [])]


def test_the_urgent_has_the_patient_step_aside_and_come_back(daemon):
    batch = run(daemon, "batch", "3GiB", "2GiB", 5, "--tier", "batch")
    filled(daemon, "batch", 2 * GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1, "--tier", "interactive")
    paused = until(daemon, "batch", "paused")
    assert "makes room for" in paused["pause"]["reason"] and "interactive" in paused["pause"]["reason"]
    assert paused["pause"]["returns"] is True
    until(daemon, "urgent", "active")
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    until(daemon, "batch", "active")
    assert batch.wait(timeout=60) == 0, "every byte is as it was: " + str(batch.communicate())
    assert {"pausing", "paused", "resuming", "resumed", "ended"} <= set(codes(daemon, "batch"))
    assert daemon.get("/v1/ledger")["entries"] == []


def test_nobody_is_paused_who_is_pinned_or_no_lower(daemon):
    pinned = run(daemon, "pinned", "3GiB", "1GiB", 600, "--tier", "batch", "--pausable", "no")
    filled(daemon, "pinned", GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1, "--tier", "critical")
    until(daemon, "urgent", "queued")
    wait_until(lambda: "is not asked to yield" in helps(daemon, "urgent"), "it says why")
    assert "pinned" in helps(daemon, "urgent")
    assert lease_of(daemon, "pinned")["state"] == "active"
    assert daemon.cli("stop", "pinned").returncode == 0
    assert urgent.wait(timeout=60) == 0
    pinned.wait(timeout=60)


def test_without_host_memory_nobody_is_asked_and_it_says_so(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + '[ledger]\nlimit = "256MiB"\n')
    quick_checkpoints(daemon)
    batch = run(daemon, "batch", "3GiB", "1GiB", 600, "--tier", "batch")
    filled(daemon, "batch", GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1, "--tier", "interactive")
    wait_until(lambda: "host memory takes" in helps(daemon, "urgent"), "it says why not")
    assert "pausing" not in codes(daemon, "batch"), "a pause that does not fit is not begun"
    assert daemon.cli("stop", "batch").returncode == 0
    assert urgent.wait(timeout=60) == 0
    batch.wait(timeout=60)


def test_a_spot_program_that_cannot_be_paused_is_ended_with_notice(daemon):
    spot = run(daemon, "spot", "3GiB", "1GiB", 600, "--tier", "spot", "--pausable", "no")
    filled(daemon, "spot", GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1)
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    ended = until(daemon, "spot", "ended")
    assert ended["end_reason"] == "revoked"
    assert "spot" in str(daemon.get("/v1/leases/spot/why")["reasons"][-2:])
    assert spot.wait(timeout=60) == 128 + signal.SIGTERM


def test_the_asker_goes_in_the_middle(daemon):
    daemon.ctl("set", "checkpoint_us", 1_500_000)
    batch = run(daemon, "batch", "3GiB", "2GiB", 4, "--tier", "batch")
    filled(daemon, "batch", 2 * GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1, "--tier", "interactive")
    until(daemon, "batch", "pausing")
    urgent.send_signal(signal.SIGINT)
    assert urgent.wait(timeout=60) == 130
    until(daemon, "batch", "active")
    assert batch.wait(timeout=60) == 0, batch.communicate()
    assert daemon.get("/v1/ledger")["entries"] == []


def test_an_outsider_takes_the_room_and_is_named(daemon):
    daemon.ctl("set", "checkpoint_us", 1_500_000)
    batch = run(daemon, "batch", "3GiB", "2GiB", 2, "--tier", "batch")
    filled(daemon, "batch", 2 * GIB)
    urgent = run(daemon, "urgent", "3GiB", "2GiB", 1, "--tier", "interactive")
    until(daemon, "batch", "pausing")
    outsider = daemon.spawn("simgpu-load", "--alloc", "900MiB", "--seconds", "600")
    until(daemon, "batch", "paused", "resuming", "active")
    said = wait_until(lambda: (lambda text: text if f"pid {outsider.pid}" in text else None)(
        str(daemon.get("/v1/leases/urgent/why").body)), "the outsider is named")
    assert "still held" not in str(daemon.get("/v1/leases/batch/why").body), said
    outsider.kill()
    outsider.wait()
    assert urgent.wait(timeout=60) == 0, urgent.communicate()
    assert batch.wait(timeout=60) == 0, batch.communicate()
    assert daemon.get("/v1/ledger")["entries"] == []


def test_a_killed_daemon_finishes_or_undoes_it(daemon):
    daemon.ctl("set", "checkpoint_us", 800_000)
    batch = run(daemon, "batch", "3GiB", "2GiB", 6, "--tier", "batch")
    filled(daemon, "batch", 2 * GIB)
    urgent = run(daemon, "urgent", "2GiB", "1GiB", 1, "--tier", "interactive")
    until(daemon, "batch", "pausing")
    daemon.restart()
    assert urgent.wait(timeout=90) == 0, urgent.communicate()
    assert batch.wait(timeout=90) == 0, batch.communicate()
    assert daemon.get("/v1/ledger")["entries"] == []


def test_equals_take_turns_and_the_next_one_is_announced(daemon):
    first = run(daemon, "first", "2500MiB", "2GiB", 8)
    filled(daemon, "first", 2 * GIB)
    second = run(daemon, "second", "2500MiB", "2GiB", 8)
    until(daemon, "second", "active")
    assert "pausing" in codes(daemon, "first") and "it is the turn of" in str(daemon.get("/v1/leases/first/why").body)
    wait_until(lambda: lease_of(daemon, "second").get("next_turn_seconds") is not None
               or lease_of(daemon, "first")["state"] == "active", "the next turn is announced")
    until(daemon, "first", "active", "ended")
    assert first.wait(timeout=120) == 0, first.communicate()
    assert second.wait(timeout=120) == 0, second.communicate()
    assert daemon.get("/v1/ledger")["entries"] == []
