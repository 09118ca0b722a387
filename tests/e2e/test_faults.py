# SPDX-License-Identifier: Apache-2.0
"""Faults of the driver, the store and the daemon: nothing is granted, nothing is forgotten, and `status` reports them.
"""
import contextlib
import os
import pathlib
import re
import resource
import signal
import subprocess

import pytest

from tests.support.sublet import BIN, GIB, wait_until

QUICK = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\nmax_age = "1s"\ntimeout = "1s"\n'
         '[lease]\nlinger = "500ms"\nreconnect = "2s"\n')


def start(start_daemon, **options):
    return start_daemon("1x4GiB", config=QUICK, **options)


def warnings(daemon):
    return daemon.get("/v1/status")["warnings"]


def grants_nothing(api):
    reply = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "queue": False})
    return reply.status in (409, 503) and reply["code"] in ("Unverified", "Memory", "GpuLost") and reply


@pytest.mark.parametrize("fault", ["nvml-error", "nvml-hang", "nvml-empty", "device-lost"])
def test_a_driver_that_fails_grants_nothing_and_forgets_nothing(start_daemon, fault):
    daemon = start(start_daemon)
    api = daemon.api()
    program = daemon.spawn("sublet", "run", "--vram", "2GiB", "--name", "worker", "--",
                           "simgpu-load", "--alloc", "1700MiB", "--seconds", "600")
    lease = wait_until(lambda: next((lease for lease in api.get("/v1/leases")["leases"] if lease["used_bytes"] > GIB),
                                    None), "it runs")
    waiter = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    assert waiter.status == 202
    daemon.ctl("fault", fault)
    wait_until(lambda: warnings(daemon), "a loud warning")
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["state"] != "ok", "the device is unknown")
    refused = wait_until(lambda: grants_nothing(api), "grants are refused")
    assert refused["detail"]
    text = daemon.cli("status").stdout
    assert "!" in text and re.search("UNKNOWN|LOST", text), text
    assert api.lease(lease["id"])["state"] == "active" or fault == "device-lost"
    assert program.poll() is None or fault == "device-lost"

    daemon.ctl("clear")
    if fault == "device-lost":
        return  # a context on a lost device is gone for good; the card itself can come back
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["state"] == "ok", "the device is known again")
    wait_until(lambda: not warnings(daemon), "the warning is gone")
    assert api.lease(lease["id"])["state"] == "active"
    assert api.lease(waiter["id"])["state"] == "queued"
    program.terminate()
    assert program.wait(60) == 143


def test_a_missing_nvml_is_a_loud_line_and_no_grant(start_daemon):
    config = QUICK.replace("[gpu]\n", '[gpu]\nnvml = "/nowhere/libnvidia-ml.so.1"\n')
    daemon = start_daemon(sim=None, config=config, wait_for_cards=False)
    told = wait_until(lambda: warnings(daemon), "a warning")
    assert any("/nowhere/libnvidia-ml.so.1" in warning["text"] for warning in told)
    api = daemon.api()
    queued = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    assert queued.status == 202 and queued["queue"]["eta_seconds"] is None
    assert daemon.cli("doctor").returncode == 1


def helpers_of(daemon):
    """The living helpers that read the cards: pid and start time."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{entry}/stat").read_text()
            rest = text[text.rindex(")") + 2:].split()
            if "(sublet-gpu)" in text and int(rest[1]) == daemon.process.pid and rest[0] != "Z":
                found[int(entry)] = int(rest[19])
    return found


def test_hanging_helpers_are_abandoned_and_their_number_is_bounded(start_daemon):
    daemon = start(start_daemon)
    first = daemon.child_pid("sublet-gpu")
    daemon.ctl("fault", "nvml-hang")
    tried = {}  # pid: when it was started, in ticks of the kernel

    def five_more():
        living = helpers_of(daemon)
        assert len(living) <= 2, "one that is asked, and one that is being killed"
        tried.update((pid, ticks) for pid, ticks in living.items() if pid != first)
        return len(tried) >= 5

    wait_until(five_more, "other helpers are tried")
    starts = sorted(tried.values())
    assert starts[-1] - starts[-2] > starts[1] - starts[0], "the next is waited for longer and longer"
    told = wait_until(lambda: next((w["text"] for w in warnings(daemon) if w["code"] == "gpu"), ""), "a warning")
    assert "did not answer" in told
    daemon.ctl("clear")
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["state"] == "ok", "it answers again")


# --- the store ---

def limit_file_size(pid, size):
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_store_that_cannot_be_written_grants_nothing_and_comes_back(start_daemon):
    daemon = start(start_daemon)
    api = daemon.api()
    kept = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    limit_file_size(daemon.process.pid, 1)  # like a full disk: every write fails
    wanted = {"vram_bytes": GIB, "ttl_seconds": 600}
    lost = wait_until(lambda: (r := api.post("/v1/leases", wanted)).status == 503 and r, "the refusal")
    assert lost["code"] == "Unavailable" and lost["hint"]
    assert api.get("/healthz").status == 503
    assert any(w["code"] == "store" for w in warnings(daemon))
    assert "store" in daemon.cli("status").stdout
    limit_file_size(daemon.process.pid, resource.RLIM_INFINITY)
    wait_until(lambda: api.get("/healthz").status == 200, "the store is back")
    assert api.lease(kept["id"])["state"] == "active"
    granted = wait_until(lambda: (r := api.post("/v1/leases", wanted)).status == 201 and r, "grants go on")
    assert granted["id"] != kept["id"]


def test_a_corrupt_store_is_set_aside_and_never_taken_for_an_empty_one(start_daemon):
    daemon = start(start_daemon)
    kept = daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    daemon.process.terminate()
    daemon.process.wait(30)
    store = daemon.dir / "state" / "store.db"
    data = bytearray(store.read_bytes())
    data[:4096] = os.urandom(4096)
    store.write_bytes(data)
    for _ in range(2):  # a restart does not make the GPU free
        daemon.start(wait_for_cards=False)
        api = daemon.api()
        assert api.get("/healthz").status == 503
        refused = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
        assert (refused.status, refused["code"]) == (503, "Unavailable")
        aside = list((daemon.dir / "state").glob("store.db.corrupt-*"))
        assert aside and any(str(path) in w["text"] for path in aside for w in warnings(daemon)), warnings(daemon)
        daemon.kill()
    for path in (daemon.dir / "state").glob("store.db*"):
        path.rename(daemon.dir / f"moved-{path.name}")
    daemon.start()  # a user who moves it away asks for a fresh start
    api = daemon.api()
    assert api.get("/v1/leases?all=true")["leases"] == []  # earlier grants are forgotten
    assert api.get(f"/v1/leases/{kept['id']}").status == 404
    assert api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600}).status == 201


# --- usage ---

@pytest.mark.parametrize("arguments, names", [
    (["--simm", "1x4GiB"], ["--simm"]),
    (["--sim", "1x4GiB"], ["--dir"]),
    (["--dir", "{dir}", "--sim", "0x4GiB"], ["0x4GiB"]),
    (["--dir", "{dir}", "--sim", "1x8Q"], ["8Q"]),
])
def test_wrong_usage_of_the_daemon(tmp_path, arguments, names):
    words = [argument.format(dir=tmp_path) for argument in arguments]
    done = subprocess.run([BIN / "subletd", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode in (1, 2)
    for name in names:
        assert name in done.stderr


def test_a_wrong_configuration_is_refused_with_its_line(tmp_path):
    (tmp_path / "sublet.toml").write_text('[queue]\nclaim_windov = "10s"\n')
    done = subprocess.run([BIN / "subletd", "--dir", tmp_path], capture_output=True, text=True, timeout=30)
    assert done.returncode == 78
    assert "sublet.toml:2:1" in done.stderr and "claim_window" in done.stderr


def test_a_terminated_daemon_leaves_programs_running(start_daemon):
    daemon = start(start_daemon)
    run = daemon.spawn("sublet", "run", "--vram", "1GiB", "--", "simgpu-load", "--alloc", "512MiB", "--seconds", "600")
    wait_until(lambda: any(l["used_bytes"] for l in daemon.leases()), "it runs")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(30) == 0
    assert not daemon.socket.exists() and run.poll() is None
    daemon.start()
    run.terminate()
    assert run.wait(60) == 143
