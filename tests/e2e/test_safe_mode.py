# SPDX-License-Identifier: Apache-2.0
"""A daemon that crashes repeatedly starts in safe mode: it keeps everything as it is, and begins nothing."""
import signal

import pytest

from tests.support.parking import ends_well, lease_of, quick_checkpoints, until, until_filled
from tests.support.sublet import GIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "64MiB"\n'
          '[lease]\nlinger = "30s"\nreconnect = "60s"\ngrace = "2s"\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def end_three_times(daemon, by):
    for _ in range(3):
        daemon.process.send_signal(by)
        assert daemon.process.wait(60) == -by
        daemon.start(wait_for_cards=False)


def safe_mode(daemon):
    return daemon.get("/v1/status")["daemon"]["safe_mode"]


def stop_and_start(daemon):
    daemon.process.terminate()
    assert daemon.process.wait(60) == 0
    assert not list(daemon.dir.glob("state/*.crashes"))
    daemon.start()


@pytest.mark.parametrize("by", [signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL])
def test_three_crashes_within_a_minute(daemon, by):
    api = daemon.api()
    assert api.get("/healthz").status == 200 and safe_mode(daemon) is None
    end_three_times(daemon, by)
    safe = safe_mode(daemon)
    assert f"crashed 3 times within 1 min, last by {by.name}" in safe["why"]
    assert f"safe mode until {safe['until']}" in daemon.log()
    health = daemon.get("/healthz")
    assert health.status == 503 and "safe mode" in health["status"]
    shown = daemon.cli("status", check=0).stdout
    assert safe["until"] in shown and by.name in shown and "report the bug" in shown
    assert "reports a fault: the daemon is in safe mode until" in daemon.cli("doctor").stdout
    (warning,) = [each for each in daemon.get("/v1/status")["warnings"] if each["code"] == "safe-mode"]
    assert safe["until"] in warning["hint"]
    assert 'sublet_warnings{code="safe-mode"} 1' in daemon.get("/metrics").body
    refused = daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    assert refused.status == 503 and refused["code"] == "Unavailable"
    assert f"try again after {safe['until']}" in refused["hint"]
    stop_and_start(daemon)
    assert safe_mode(daemon) is None and daemon.get("/healthz").status == 200
    assert daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600}).status == 201


def test_a_kill_is_not_a_crash(daemon):
    end_three_times(daemon, signal.SIGKILL)
    assert safe_mode(daemon) is None
    asked = daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    assert asked.status in (201, 202), "the cards may not have been read yet"


def test_an_unreadable_record_does_not_prevent_the_start(daemon):
    daemon.process.kill()
    daemon.process.wait()
    record = daemon.dir / "state" / "store.db.crashes"
    record.unlink()
    record.mkdir()
    daemon.start()
    assert safe_mode(daemon) is None and "cannot record crashes" in daemon.log()


def test_safe_mode_keeps_what_exists(daemon, tmp_path):
    def load(tag, vram, alloc):
        program = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, "--", "simgpu-load", "--alloc", alloc,
                               "--seconds", "600", "--verify")
        until_filled(daemon, tag, alloc)
        return program

    parked = load("parked", "1GiB", "512MiB")
    assert daemon.cli("pause", "parked").returncode == 0
    runs, stopped = load("runs", "1GiB", "256MiB"), load("stopped", "1GiB", "256MiB")
    api = daemon.api()
    token = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    said = tmp_path / "said"
    with open(said, "w") as errors:
        waits = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "waits", "--", "true", stderr=errors)
        until(daemon, "waits", "queued")

    end_three_times(daemon, signal.SIGABRT)
    api = daemon.api()
    until_safe = safe_mode(daemon)["until"]
    assert api.post(f"/v1/leases/{token['id']}/renew", {"ttl_seconds": 900}).status == 200
    assert api.post(f"/v1/leases/{token['id']}/release", {}).status == 200
    assert daemon.cli("stop", "stopped", check=0)
    assert stopped.wait(60) == 128 + signal.SIGTERM
    # Memory is free, and no lease gets it.
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["effective_free_bytes"] > 2 * GIB,
               "what ended is measured gone")
    wait_until(lambda: "safe mode" in said.read_text(), "who waits is told why")
    assert lease_of(daemon, "waits")["state"] == "queued" and waits.poll() is None
    assert "safe mode" in daemon.cli("why", "waits", check=0).stdout
    for tag, word in (("runs", "pause"), ("parked", "resume")):
        refused = api.post(f"/v1/leases/{tag}/{word}", {})
        assert refused.status == 503 and until_safe in refused["hint"], refused
    assert lease_of(daemon, "parked")["state"] == "paused" and parked.poll() is None
    assert lease_of(daemon, "runs")["state"] == "active" and runs.poll() is None

    stop_and_start(daemon)
    assert waits.wait(60) == 0, said.read_text()
    assert daemon.cli("resume", "parked", check=0)
    ends_well(daemon, "parked", parked)
    ends_well(daemon, "runs", runs)
