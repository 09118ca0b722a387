# SPDX-License-Identifier: Apache-2.0
"""Shortages: disk, descriptors, host memory, and the time of a lease that is parked."""
import contextlib
import functools
import os
import re
import resource
import signal
import subprocess

import pytest

from tests.support.machine import has_memory, has_pressure, with_memory
from tests.support.parking import lease_of, quick_checkpoints, until, until_filled
from tests.support.retrying import Hook
from tests.support.sublet import GIB, MIB, Daemon, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\nmax_age = "1s"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "2s"\ngrace = "2s"\n')
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


# --- disk ---

@pytest.fixture
def small_disk():
    """A daemon with its state on a file system of 4 MiB."""
    daemon = Daemon("1x4GiB", CONFIG)
    state = daemon.dir / "state"
    state.mkdir(mode=0o700)
    words = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", state]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        daemon.close()
        pytest.skip(f"needs the right to mount, for a disk that is really full: {done.stderr.strip()}")
    try:
        yield daemon.start()
    finally:
        print(daemon.log())
        daemon.process.kill()
        daemon.process.wait()
        subprocess.run(["umount", state], check=True)
        daemon.close()


def fill(path):
    """Takes all free space there."""
    with open(path, "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"\0" * 4096)


def test_a_full_disk_grants_nothing_and_forgets_nothing(small_disk):
    api = small_disk.api()
    kept = api.post("/v1/leases", ASK)
    filler = small_disk.dir / "state" / "filler"
    fill(filler)
    lost = wait_until(lambda: (r := api.post("/v1/leases", ASK)).status == 503 and r, "the store is full")
    assert lost["code"] == "Unavailable" and lost["hint"], lost.body
    assert re.search(r"disk is full.* free in ", small_disk.log()), "it says what is wrong and where"
    assert api.lease(kept["id"])["state"] == "active"
    # The space that the failure freed may be enough for a commit or two. The warning stays all the while.
    wait_until(lambda: "the store's directory" in small_disk.cli("status").stdout, "that there is little room is said")
    small_disk.kill()  # a restart on a full disk keeps the leases too
    small_disk.start(wait_for_cards=False)
    api = small_disk.api()
    filler.unlink()
    wait_until(lambda: api.get("/healthz").status == 200, "there is room again")
    assert api.lease(kept["id"])["state"] == "active"
    wait_until(lambda: api.post("/v1/leases", ASK).status == 201, "grants go on")


# --- descriptors ---

@contextlib.contextmanager
def no_more_descriptors(daemon):
    pid = daemon.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    # The kernel gives the lowest free number, and a limit applies to numbers: a free number must be neither above nor
    # between those in use.
    numbers = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    lowest_free = next(number for number in range(len(numbers) + 1) if number not in numbers)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))


def test_a_shortage_of_descriptors(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api = daemon.api()
    lease = api.post("/v1/leases", ASK)["id"]
    program = daemon.spawn("sleep", "600")
    helper = daemon.child_pid("sublet-gpu")
    with no_more_descriptors(daemon):
        refused = api.post(f"/v1/leases/{lease}/attach", {"pid": program.pid})
        assert refused.status in (409, 503) and "open files" in refused["detail"], refused.body
        os.kill(helper, signal.SIGKILL)
        wait_until(lambda: api.get("/v1/devices")["devices"][0]["state"] == "unknown", "the card is not read any more")
        later = api.post("/v1/leases", dict(ASK, queue=False))
        assert (later.status, later["code"]) == (409, "Unverified"), later.body
        assert api.lease(lease)["state"] == "active", "nobody is ended for it"
        wait_until(lambda: any(warning["code"] == "gpu" and "open files" in warning["text"]
                               for warning in api.get("/v1/status")["warnings"]), "the warning names the shortage")
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["state"] == "ok", "another helper reads the card")
    assert api.post(f"/v1/leases/{lease}/attach", {"pid": program.pid}).status == 200
    assert api.post("/v1/leases", ASK).status == 201


# --- the time of a parked lease ---

def test_the_time_of_a_token_lease_stands_still_while_it_is_parked(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, hook = daemon.api(), Hook()
    try:
        lease = api.post("/v1/leases", dict(ASK, ttl_seconds=10, tag="parked"))["id"]
        assert api.post(f"/v1/leases/{lease}/cooperate", {"way": "webhook", "url": hook.url}).status == 200
        assert api.post(f"/v1/leases/{lease}/pause", {}).status in (200, 202)
        paused = until(daemon, "parked", "paused")
        assert paused["expires_at"] is None and 0 < paused["left_seconds"] < 10, paused
        # Time passes while it is parked, and over a restart.
        clock = api.post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 4, "tag": "clock"})["id"]
        daemon.restart()
        api = daemon.api()
        wait_until(lambda: api.lease(clock)["end_reason"] == "expired", "time has passed")
        still = lease_of(daemon, "parked")
        assert (still["state"], still["left_seconds"]) == ("paused", paused["left_seconds"])
        assert api.post(f"/v1/leases/{lease}/resume", {}).status in (200, 202)
        back = until(daemon, "parked", "active")
        assert back["expires_at"] and back["left_seconds"] <= paused["left_seconds"] < back["ttl_seconds"], back
        assert api.post(f"/v1/leases/{lease}/renew", {}).status == 200
        wait_until(lambda: api.lease(lease)["end_reason"] == "expired", "then it runs again")
    finally:
        hook.close()


# --- host memory ---

@pytest.fixture
def lean(tmp_path):
    """A daemon with a made-up machine: `.available(bytes)` sets its memory, `.pressure(percent)` its memory pressure.
    """
    command = with_memory(tmp_path)
    daemon = Daemon("1x4GiB", CONFIG + '[ledger]\nreserve = "1GiB"\nlimit = "16GiB"\n'
                    '[pause]\ncooldown = "500ms"\nmin_residency = "500ms"\n')
    daemon.command = command
    daemon.available, daemon.pressure = (functools.partial(says, tmp_path) for says in (has_memory, has_pressure))
    try:
        yield daemon.start()
    finally:
        print(daemon.log())
        daemon.close()


def test_host_memory_limits_parking(lean):
    quick_checkpoints(lean)
    program = lean.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--", "simgpu-load", "--alloc", "1GiB",
                         "--seconds", "600", "--verify")
    until_filled(lean, "it", "1GiB")
    lean.available(GIB + 512 * MIB)
    refused = lean.api().post("/v1/leases/it/pause", {})
    assert (refused.status, refused["code"]) == (409, "HostMemory"), refused.body
    assert "only 512 MiB more may be parked" in refused["detail"], refused.body
    assert "1.5 GiB of host memory is available" in refused["detail"], refused.body
    assert "ledger.reserve" in refused["hint"], refused.body
    assert lease_of(lean, "it")["state"] == "active" and lean.get("/v1/ledger")["entries"] == []
    lean.available(8 * GIB)
    assert lean.cli("pause", "it").returncode == 0
    lean.available(256 * MIB)  # memory is short while the lease is parked: the bytes stay intact, and the lease resumes
    assert lease_of(lean, "it")["state"] == "paused"
    assert lean.cli("resume", "it").returncode == 0
    os.kill(lease_of(lean, "it")["owner"]["pid"], signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()


@pytest.mark.skipif(not os.path.exists("/proc/pressure/memory"), reason="this kernel does not tell of memory pressure")
def test_memory_pressure_prevents_parking(lean):
    quick_checkpoints(lean)
    program = lean.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--", "simgpu-load", "--alloc", "1GiB",
                         "--seconds", "600", "--verify")
    until_filled(lean, "it", "1GiB")
    lean.pressure(40)
    refused = lean.cli("pause", "it")
    assert refused.returncode != 0 and "40 % of the last 10 s" in refused.stderr, refused.stderr
    assert "ledger.max_pressure" in refused.stderr
    waiter = lean.spawn("sublet", "run", "--vram", "3GiB", "--tier", "interactive", "--tag", "next", "--", "true")
    wait_until(lambda: "of the last 10 s" in lean.cli("why", "next").stdout, "it is not asked to make room either")
    assert lease_of(lean, "it")["state"] == "active" and lean.get("/v1/ledger")["pressure_ratio"] == 0.4
    lean.pressure(0)  # checked again without a request
    assert waiter.wait(120) == 0, waiter.communicate()
    until(lean, "it", "active")
    assert lean.cli("pause", "it").returncode == 0
    lean.pressure(40)
    assert "host memory is short" in lean.cli("status").stdout
    assert lean.cli("resume", "it").returncode == 0, "what is parked comes back whatever the pressure is"
    os.kill(lease_of(lean, "it")["owner"]["pid"], signal.SIGTERM)
    assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()
