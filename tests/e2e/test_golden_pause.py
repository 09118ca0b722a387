# SPDX-License-Identifier: Apache-2.0
"""Pauses and resumes, as a person sees them: tests/e2e/golden/NAME.txt holds every word.

After an intended change: SUBLET_GOLDEN=write ./dev test tests/e2e/test_golden_pause.py, and read the difference.
"""
import re

import pytest

from tests.support.parking import ends_well, lease_of, start_parking, until, until_filled
from tests.support.sublet import wait_until, watches_itself
from tests.support.transcript import Transcript

pytestmark = pytest.mark.skipif(watches_itself(), reason="a sanitizer takes memory in programs that are parked")


class Parked(Transcript):
    """Hides the progress of a program and the machine's free memory, which depend on chance."""

    def normal(self, text):
        text = re.sub(r"(?m)^.*(of [^ ]+ [KMG]iB (parked|restored),).*\n", "", text)
        text = re.sub(r"[^ ]+ [KMG]iB of host memory is available", "SIZE of host memory is available", text)
        machine = r"\S+ [KMGT]iB available on the machine.* control group.*"
        text = re.sub(machine, "SIZE on the machine, groups LIMIT", text)
        return super().normal(text)


@pytest.fixture
def scene(start_daemon):
    return Parked(start_parking(start_daemon, '[ledger]\nlimit = "4GiB"\n'))


def program(scene, tag, vram, alloc, *flags):
    """A program that has filled its memory, and runs until SIGTERM."""
    child = scene.daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, "--name", tag, *flags, "--",
                               "simgpu-load", "--alloc", alloc, "--seconds", "600", "--verify")
    scene.hide_pid(child.pid)
    until_filled(scene.daemon, tag, alloc)
    scene.hide_pid(lease_of(scene.daemon, tag)["owner"]["pid"])
    return child


def test_paused_and_back_by_hand(scene):
    train = program(scene, "train", "2GiB", "1GiB")
    scene.run("pause", "train")
    wait_until(lambda: lease_of(scene.daemon, "train")["used_bytes"] == 0, "what it keeps is measured")
    for words in (["ps"], ["status"], ["why", "train"], ["pause", "train"], ["release", "train"], ["resume", "train"],
                  ["resume", "train"], ["why", "train"]):
        scene.run(*words)
    ends_well(scene.daemon, "train", train)
    scene.check("pause-resume")


def test_a_paused_program_is_stopped(scene):
    train = program(scene, "train", "2GiB", "1GiB")
    scene.run("pause", "train")
    scene.run("stop", "train")
    scene.add("sublet run --vram 2GiB --tag train", train.wait(timeout=60))
    scene.check("stop-paused")


def test_a_poisoned_program(scene):
    train = program(scene, "train", "2GiB", "1GiB")
    scene.run("pause", "train")
    wait_until(lambda: lease_of(scene.daemon, "train")["used_bytes"] == 0, "what it keeps is measured")
    scene.daemon.ctl("fault", "restore-fail")
    for words in (["resume", "train"], ["ps"], ["status"], ["why", "train"], ["resume", "train"], ["release", "train"]):
        scene.run(*words)
    assert scene.daemon.cli("stop", "train").returncode == 0
    scene.add("sublet run --vram 2GiB --tag train", train.wait(timeout=60), *train.communicate())
    scene.check("poisoned")


def test_a_program_that_can_be_paused(scene):
    train = program(scene, "train", "3GiB", "2GiB")
    for words in (["run", "--dry-run", "--vram", "2GiB", "--tier", "interactive", "--", "echo"],
                  ["free", "2GiB", "--preview"], ["free", "5GiB", "--preview"]):
        scene.run(*words)
    waits = scene.daemon.spawn("sublet", "hold", "--vram", "2GiB", "--tag", "infer", "--name", "infer")
    scene.hide_pid(waits.pid)
    wait_until(lambda: "helps" in scene.daemon.get("/v1/leases/infer/why").body, "it waits")
    for words in (["why", "infer"], ["queue"], ["preempt", "infer", "--preview"], ["preempt", "infer"]):
        scene.run(*words)
    until(scene.daemon, "infer", "active")
    for words in (["ps"], ["why", "train"]):
        scene.run(*words)
    waits.terminate()
    waits.wait(timeout=60)
    until(scene.daemon, "train", "active")
    scene.run("ps")
    ends_well(scene.daemon, "train", train)
    scene.check("step-aside")


def test_a_program_that_cannot_be_paused(start_daemon):
    scene = Parked(start_parking(start_daemon, '[ledger]\nlimit = "256MiB"\n'))
    program(scene, "pinned", "1GiB", "512MiB", "--pausable", "no")
    program(scene, "large", "2GiB", "1GiB")
    holder = scene.daemon.spawn("sublet", "hold", "--vram", "256MiB", "--tag", "bare")
    scene.hide_pid(holder.pid)
    until(scene.daemon, "bare", "active")
    for tag in ("pinned", "large", "bare"):
        scene.run("pause", tag)
    scene.run("run", "--no-wait", "--vram", "2GiB", "--tier", "interactive", "--", "true")
    scene.check("not-pausable")
