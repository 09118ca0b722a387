# SPDX-License-Identifier: Apache-2.0
"""Programs of several processes, of which one blocks the others. While it is locked, the driver tells nothing about
processes that share memory with it; or it runs a kernel that never ends. Such pauses are refused or undone, and all
processes run on. Programs that are parked slowly get enough time.
"""
import os
import pathlib
import signal

import pytest

from tests.support.parking import (ends_well, lease_of, quick_checkpoints, start_parking, until, until_filled,
                                   used_on_card)
from tests.support.sublet import MIB, ROOT, wait_until, watches_itself
from tests.support.system import helpers_of

PROGRAM = ROOT / "tests" / "support" / "tied_program.py"
SHARES = "share memory (NCCL, CUDA IPC)"


def start(daemon, count, exporter, *more, flags=()):
    """Starts that many processes that share memory, exported by the process with that number."""
    if watches_itself():
        pytest.skip("a program without the sanitizer cannot load a simulated driver that is built with it")
    program = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "it", "--tier", "batch", *flags, "--", "python3",
                           PROGRAM, count, exporter, *more)
    assert program.stdout.readline() == "holds its memory\n", program.communicate()
    wait_until(lambda: lease_of(daemon, "it").get("used_bytes", 0) >= count * 64 * MIB, "all of them are seen")
    return program


def calls(daemon, name):
    return daemon.cards()["calls"].get("cuCheckpointProcess" + name, 0)


def states(daemon):
    """Returns the program's processes that have memory on the card."""
    return [process["state"] for process in daemon.cards()["processes"] if process["devices"]]


def ends_right(daemon, program):
    os.kill(lease_of(daemon, "it")["owner"]["pid"], signal.SIGTERM)
    assert program.wait(60) == 0, f"every byte is as it was: {program.communicate()}"


def why(daemon, tag="it"):
    return str(daemon.get(f"/v1/leases/{tag}/why").body)


@pytest.mark.parametrize("count, exporter", [(2, 1), (3, 0)])
def test_processes_that_share_memory_are_not_tried_again(start_daemon, count, exporter):
    daemon = start_parking(start_daemon)
    program = start(daemon, count, exporter)
    preemptor = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "preemptor", "--tier", "interactive", "--",
                         "simgpu-load", "--alloc", "64MiB", "--seconds", "1")
    for times in (1, 2):  # a single hit may be chance
        wait_until(lambda: calls(daemon, "Lock") == times, "one is locked, and the driver is asked for the next")
        until(daemon, "it", "active")
        assert states(daemon) == ["running"] * count, "none is left locked"
    wait_until(lambda: SHARES in why(daemon, "preemptor"), "the preemptor is told why it does not yield")
    done = daemon.cli("pause", "it")
    assert done.returncode == 1 and "the driver cannot park it" in done.stderr and SHARES in done.stderr, done.stderr
    assert calls(daemon, "Lock") == calls(daemon, "Unlock") == 2, "it is not asked again, and no lock came late"
    assert calls(daemon, "Checkpoint") == 0
    assert daemon.get("/v1/ledger")["entries"] == [] and lease_of(daemon, "preemptor")["state"] == "queued"
    ends_right(daemon, program)
    assert preemptor.wait(60) == 0, preemptor.communicate()


def test_a_process_locked_by_dead_helpers_is_unlocked_first(start_daemon):
    """Nothing can be learned about the other processes before that."""
    daemon = start_parking(start_daemon)
    program = start(daemon, 3, 1)
    assert daemon.cli("pause", "it", "--no-wait").returncode == 0
    wait_until(lambda: "locked" in states(daemon), "one of them is locked")
    helpers = [helper for process in daemon.cards()["processes"] for helper in helpers_of(process["pid"])]
    for pid in helpers:
        os.kill(pid, signal.SIGSTOP)  # it would unlock its process when the daemon is gone
    daemon.kill()
    for pid in helpers:
        os.kill(pid, signal.SIGKILL)
    assert states(daemon).count("locked") == 1, "nobody is there to unlock it"
    daemon.start()
    until(daemon, "it", "active")
    assert states(daemon) == ["running"] * 3
    ends_right(daemon, program)


def test_programs_with_nccl_memory_are_not_touched(start_daemon):
    daemon = start_daemon("2x4GiB,driver_version=13000", config='[gpu]\ninterval_busy = "100ms"\n')
    shared = pathlib.Path(f"/dev/shm/nccl-{os.getpid()}")
    try:
        program = start(daemon, 2, 0, shared, flags=("--gpus", "2"))
    finally:
        shared.unlink(missing_ok=True)
    assert daemon.cli("pause", "it").returncode == 1
    until(daemon, "it", "active")
    assert "by NCCL" in why(daemon)
    assert "the driver cannot park it" in daemon.cli("pause", "it").stderr
    assert calls(daemon, "Lock") == 0
    ends_right(daemon, program)


# --- a kernel that never ends ---

def test_an_endless_kernel_prevents_parking(start_daemon):
    """All processes are locked before any is parked: a process that cannot be locked costs the others no restore."""
    daemon = start_parking(start_daemon)
    one = "simgpu-load --alloc 256MiB --seconds 600 --verify"
    tree = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "it", "--", "sh", "-c",
                        f"{one} & first=$!; {one} & second=$!; trap 'kill $first $second' TERM; wait; "
                        "wait $first; [ $? = 143 ] || exit 1; wait $second; [ $? = 143 ]")
    until_filled(daemon, "it", "768MiB")
    second = max(process["pid"] for process in daemon.cards()["processes"] if process["devices"])
    daemon.ctl("fault", "launch-hang", "--pid", second)
    wait_until(lambda: any(entry["hits"] for entry in daemon.cards()["faults"]), "its kernel does not end")
    pausing = daemon.spawn("sublet", "pause", "it")
    wait_until(lambda: "locked" in states(daemon), "the other one is locked")
    progress = until(daemon, "it", "pausing")["pause"]["progress"]
    assert progress["moved_bytes"] == 0 and progress["bytes_per_second"] == 0, progress
    assert "0 B of 1.0 GiB parked, waiting until its program is at rest" in daemon.cli("ps", COLUMNS="300").stdout
    assert pausing.wait(60) == 1
    said = pausing.stderr.read()
    assert f"process {second} did not finish its GPU work within" in said, said
    assert until(daemon, "it", "active")["pause"] is None and states(daemon) == ["running", "running"]
    assert (calls(daemon, "Lock"), calls(daemon, "Checkpoint"), calls(daemon, "Restore")) == (2, 0, 0)
    assert daemon.get("/v1/ledger")["entries"] == []
    daemon.ctl("clear")  # the kernel has ended
    assert daemon.cli("pause", "it").returncode == 0
    assert used_on_card(daemon) < 64 * MIB
    assert daemon.cli("resume", "it").returncode == 0
    os.kill(lease_of(daemon, "it")["owner"]["pid"], signal.SIGTERM)
    assert tree.wait(60) == 0, tree.communicate()


# --- a slow link ---

def test_the_rate_of_a_slow_link_is_remembered(start_daemon):
    daemon = start_parking(start_daemon)
    it = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--name", "slow", "--tier", "batch", "--",
                      "simgpu-load", "--alloc", "1GiB", "--seconds", "600", "--verify")
    other = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "other", "--tier", "batch", "--pausable", "no",
                         "--", "simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--verify")
    until_filled(daemon, "it", "1GiB")
    until_filled(daemon, "other", "256MiB")

    def yields():
        """A pause for a preemptor, over a link that needs longer than the default time of the driver."""
        daemon.ctl("fault", "bandwidth", "--bandwidth", "55MiB/s")
        preemptor = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "preemptor", "--tier", "interactive", "--",
                             "simgpu-load", "--alloc", "64MiB", "--seconds", "0")
        until(daemon, "it", "paused", "resuming")  # the preemptor may be over already
        daemon.ctl("clear")
        assert preemptor.wait(60) == 0, preemptor.communicate()
        until(daemon, "it", "active")

    yields()
    assert why(daemon, "it").count("stuck: the driver should have parked its program") == 1
    daemon.kill()
    daemon.start()
    yields()
    assert why(daemon, "it").count("stuck: the driver should have parked its program") == 1, "it is given its time"
    for tag, program in (("it", it), ("other", other)):
        assert lease_of(daemon, tag)["state"] == "active"
        ends_well(daemon, tag, program)


def test_the_first_pause_on_a_slow_link_is_given_its_time(start_daemon):
    """Nothing has moved on that card yet: only its link's rate is known, and that is enough."""
    daemon = start_daemon("1x4GiB,link_bandwidth=250000000", config='[gpu]\ninterval_busy = "100ms"\n')
    assert daemon.get("/v1/devices")["devices"][0]["link_bytes_per_second"] == 250_000_000, "one lane of the first kind"
    program = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--tier", "batch", "--", "simgpu-load",
                           "--alloc", "1GiB", "--seconds", "600", "--verify")
    until_filled(daemon, "it", "1GiB")
    room = daemon.api().post("/v1/free", {"vram_bytes": 3 << 30, "preview": True})
    assert room["pause_ms"] > 4000, "1 GiB at 250 MB/s, and the assumed driver would need 1.3 s"
    assert daemon.cli("pause", "it").returncode == 0
    told = daemon.get("/v1/leases/it/why")["reasons"]
    assert not any("undone" in reason["text"] for reason in told), "it was not given up"
    assert daemon.cli("resume", "it").returncode == 0
    ends_well(daemon, "it", program)
