# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, or the daemon's end, while a command waits for work that continues by itself: the message tells that."""
import signal

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until
from tests.support.sublet import MIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n[pause]\nautomatic = false\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


@pytest.fixture
def program(daemon):
    """A program that fills 1 GiB of its 3 and checks every byte of it at its end."""
    child = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "train", "--", "simgpu-load", "--alloc", "1GiB",
                         "--seconds", "600", "--verify")
    wait_until(lambda: lease_of(daemon, "train").get("used_bytes", 0) >= 512 * MIB, "it has filled its memory")
    return child


def listens(child, number):
    """The command catches or blocks the signal. Before its first answer it just dies."""
    with open(f"/proc/{child.pid}/status", encoding="ascii") as status:
        masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigBlk:", "SigCgt:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def leaves(child, said, number=signal.SIGINT):
    """The command dies by the signal, as a shell expects, and prints this before."""
    wait_until(lambda: listens(child, number), "it listens to the signal")
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == -number, (out, err)
    assert said in err, err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_leaving_a_pause(daemon, program, number):
    daemon.ctl("fault", "checkpoint-hang")
    pausing = daemon.spawn("sublet", "pause", "train")
    wait_until(lambda: any(fault["hits"] for fault in daemon.cards()["faults"]), "the driver is at it")
    leaves(pausing, "lease-1 continues to pause", number)
    daemon.ctl("clear")
    until(daemon, "train", "paused")
    assert program.poll() is None


def test_leaving_a_resume(daemon, program):
    assert daemon.cli("pause", "train").returncode == 0
    daemon.ctl("fault", "restore-hang")
    resuming = daemon.spawn("sublet", "resume", "train")
    until(daemon, "train", "resuming")
    wait_until(lambda: any(fault["hits"] for fault in daemon.cards()["faults"]), "the driver is at it")
    leaves(resuming, "lease-1 continues to resume")
    daemon.ctl("clear")
    until(daemon, "train", "active")


def test_leaving_a_resume_that_waits_for_memory(daemon, program):
    assert daemon.cli("pause", "train").returncode == 0
    holder = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "holder")
    until(daemon, "holder", "active")
    resuming = daemon.spawn("sublet", "resume", "train")
    wait_until(lambda: lease_of(daemon, "train")["queue"], "it waits")
    leaves(resuming, "lease-1 stays in the queue")
    holder.terminate()
    until(daemon, "train", "active")


def test_leaving_a_preempt(daemon, program):
    waiting = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "next", "--", "true")
    until(daemon, "next", "queued")
    daemon.ctl("fault", "checkpoint-hang")
    asking = daemon.spawn("sublet", "preempt", "next")
    until(daemon, "train", "pausing")
    wait_until(lambda: any(fault["hits"] for fault in daemon.cards()["faults"]), "the driver is at it")
    leaves(asking, "sublet why lease-2")
    daemon.ctl("clear")
    assert waiting.wait(60) == 0, waiting.communicate()


def test_a_pause_undone_by_the_daemons_end_is_told(daemon, program):
    daemon.ctl("fault", "checkpoint-hang")
    pausing = daemon.spawn("sublet", "pause", "train")
    wait_until(lambda: any(fault["hits"] for fault in daemon.cards()["faults"]), "the driver is at it")
    daemon.kill()
    daemon.ctl("clear")
    done = daemon.cli("ps")
    assert done.returncode == 69 and f"hint: start the daemon: subletd --dir {daemon.dir};" in done.stderr, done.stderr
    daemon.start()
    out, err = pausing.communicate(timeout=60)
    assert pausing.returncode == 1, (out, err)
    assert ("lease-1 is active: its pause was undone: the daemon restarted during the pause\n"
            "  hint: sublet why lease-1") in err, err
    until(daemon, "train", "active")
    assert program.poll() is None


def test_a_lease_with_memory_needs_no_preemption(daemon, program):
    done = daemon.cli("preempt", "train", "--preview")
    assert done.returncode == 0 and done.stdout.startswith("lease-1 has its 3.0 GiB already"), done
    done = daemon.cli("preempt", "train")
    assert done.returncode == 0 and done.stdout == "" and done.stderr == "lease-1 has its 3.0 GiB\n", done
