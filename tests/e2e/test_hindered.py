# SPDX-License-Identifier: Apache-2.0
"""Programs that could be paused, but the machine, its driver or a debugger prevents it."""
import os

import pytest

from tests.support.machine import has_memory, with_memory
from tests.support.parking import CONFIG, ends_well, lease_of, quick_checkpoints, trace, until, until_filled
from tests.support.sublet import GIB, wait_until

OLD = "1x4GiB,driver_version=12060"
CONFIG += 'spot_unused_after = "2s"\n'  # and so long a spot lease has to register


def start(daemon, tag, *run):
    program = daemon.spawn("sublet", "run", "--vram", "2560MiB", "--tag", tag, *run, "--", "simgpu-load", "--alloc",
                           "2GiB", "--seconds", "600", "--verify")
    until_filled(daemon, tag, "2GiB")
    return program


def reasons(daemon, tag, code):
    return [reason["text"] for reason in daemon.get(f"/v1/leases/{tag}/why")["reasons"] if reason["code"] == code]


def asks(daemon, tag, *run):
    return daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", tag, *run, "--", "true")


def why(daemon, tag):
    return daemon.cli("why", tag).stdout


def is_not_asked_again(daemon, tag):
    """The victim is not tried again, and the waiting lease gets no estimate."""
    waits = lease_of(daemon, tag)
    assert waits["queue"]["eta_seconds"] is None, waits["queue"]
    assert daemon.get("/v1/leases/it")["next_slice_seconds"] is None
    assert len(reasons(daemon, "it", "pausing")) == 1, "it was found out once"


def test_a_driver_without_checkpoints_promises_nothing(start_daemon):
    daemon = start_daemon(OLD, config=CONFIG)
    program = start(daemon, "it")
    higher, equal = asks(daemon, "higher", "--tier", "interactive"), None
    wait_until(lambda: "it cannot be paused: " in why(daemon, "higher"), "it is told why nobody makes room for it")
    assert "12.6" in why(daemon, "higher")
    equal = asks(daemon, "equal")
    wait_until(lambda: lease_of(daemon, "equal").get("state") == "queued", "it waits")
    is_not_asked_again(daemon, "higher")
    is_not_asked_again(daemon, "equal")
    preview = daemon.cli("free", "2GiB", "--preview")
    assert "cannot be paused" in preview.stdout + preview.stderr, preview
    ends_well(daemon, "it", program)
    assert higher.wait(60) == 0 and equal.wait(60) == 0


def test_a_driver_without_checkpoints_ends_spot_leases(start_daemon):
    daemon = start_daemon(OLD, config=CONFIG)
    program = start(daemon, "it", "--tier", "spot")
    assert asks(daemon, "higher").wait(60) == 0
    program.communicate(timeout=60)
    ended = daemon.get("/v1/leases/it")
    assert ended["end_reason"] == "revoked", ended.body
    assert "it is a spot lease that cannot be paused: " in str(reasons(daemon, "it", "ended"))


def test_swap_ends_spot_leases(start_daemon, tmp_path):
    command = with_memory(tmp_path)
    has_memory(tmp_path, 64 * GIB, swap=2 * GIB)
    daemon = start_daemon("1x4GiB", config=CONFIG, command=command)
    quick_checkpoints(daemon)
    if not daemon.get("/v1/ledger")["may_swap"]:
        pytest.skip("the control group that this runs in can be kept from swap")
    start(daemon, "it", "--tier", "spot")
    assert asks(daemon, "higher").wait(60) == 0
    assert "swap" in str(reasons(daemon, "it", "ended"))


def test_a_debugger_is_not_the_programs_failure(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    program = start(daemon, "it", "--tier", "spot")
    tracer = trace(daemon, lease_of(daemon, "it")["owner"]["pid"])
    for _ in range(3):
        assert daemon.cli("pause", "it").returncode != 0
    higher = asks(daemon, "higher", "--tier", "interactive")
    wait_until(lambda: "a debugger" in why(daemon, "higher"), "it is told what is in the way")
    assert lease_of(daemon, "it")["state"] in ("active", "pausing", "resuming"), "nobody is ended for a debugger"
    tracer.kill()
    tracer.wait()
    assert higher.wait(60) == 0
    until(daemon, "it", "active")
    [victim] = daemon.api().post("/v1/free", {"vram_bytes": 3 * GIB, "preview": True})["victims"]
    assert victim["penalty_ms"] == 0 and victim["failed"] == 0, "it is trusted as before"
    ends_well(daemon, "it", program)


class Cards:
    """Moves a daemon's cards away: drivers that start meanwhile find no cards, running drivers keep theirs."""

    def __init__(self, daemon):
        self.here, self.away = daemon.dir / "simgpu", daemon.dir / "simgpu.away"

    def go(self):
        self.here.rename(self.away)

    def come(self):
        self.away.rename(self.here)


def test_a_missing_driver_ends_no_lease(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    program, cards = start(daemon, "it", "--tier", "spot"), Cards(daemon)
    cards.go()
    refused = daemon.cli("pause", "it")
    assert refused.returncode != 0 and "does not start" in refused.stderr, refused
    higher = asks(daemon, "higher", "--tier", "interactive")
    wait_until(lambda: "does not start" in why(daemon, "higher"), "it is told what is in the way")
    assert lease_of(daemon, "it")["state"] != "ended"
    cards.come()
    assert higher.wait(60) == 0
    until(daemon, "it", "active")
    ends_well(daemon, "it", program)


def test_a_paused_lease_resumes_after_the_driver_was_away(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    program, cards = start(daemon, "it"), Cards(daemon)
    assert daemon.cli("pause", "it").returncode == 0
    daemon.restart()  # the helper that parked it had the cards already
    cards.go()
    resume = daemon.spawn("sublet", "resume", "it")
    wait_until(lambda: "does not start" in daemon.log(), "it has been tried in vain")
    cards.come()
    assert resume.wait(60) == 0, resume.communicate()
    until(daemon, "it", "active")
    ends_well(daemon, "it", program)


# The first process of a pid namespace frees its memory, and ends after all other processes in the namespace.
ENDING = """
import ctypes, os, sys, time
load = os.getppid()
assert ctypes.CDLL(None).unshare(0x20000000) == 0  # CLONE_NEWPID
ours, its = os.pipe()
first = os.fork()
if first == 0:
    os.read(ours, 1)
    os._exit(0)
other = os.fork()
if other == 0:
    time.sleep(3600)
os.write(its, b"x")
while "VmSize" in open(f"/proc/{first}/status").read():
    time.sleep(0.01)
print(first, file=open(sys.argv[1], "w"), flush=True)
while os.getppid() == load:
    time.sleep(0.1)
os.kill(other, 9)
os.waitpid(other, 0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root for a process that takes long to end")
def test_an_ending_process_does_not_prevent_a_pause(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    load = 'python3 -c "$0" "$1" & exec simgpu-load --alloc 2GiB --seconds 600 --verify'
    program = daemon.spawn("sublet", "run", "--vram", "2560MiB", "--tag", "it", "--tier", "spot", "--", "sh", "-c",
                           load, ENDING, tmp_path / "ending")
    until_filled(daemon, "it", "2GiB")
    wait_until(lambda: (tmp_path / "ending").exists() and (tmp_path / "ending").read_text(), "one of it is ending")
    higher = asks(daemon, "higher", "--tier", "interactive")
    assert higher.wait(60) == 0
    assert until(daemon, "it", "active", "ended")["state"] == "active", reasons(daemon, "it", "ended")
    ends_well(daemon, "it", program)
