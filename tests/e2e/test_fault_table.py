# SPDX-License-Identifier: Apache-2.0
"""Each fault of the simulated driver, and the reaction of Sublet: a fault without a row fails the test."""
import os
import re
import signal
import subprocess
import sys

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until
from tests.support.sublet import BIN, GIB, MIB, ROOT, wait_until, watches_itself

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "500ms"\n')
OUT_OF_MEMORY, ECC_UNCORRECTABLE, UNKNOWN = 2, 214, 999


class Scene:
    """A card with a bystander, a program without part in the fault: it never loses a byte."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.bystander = self.load("bystander", "256MiB")

    def load(self, tag, alloc, *more):
        program = self.daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", tag, "--", "simgpu-load", "--alloc",
                                    alloc, "--seconds", "600", "--verify", *more)
        wait_until(lambda: lease_of(self.daemon, tag).get("used_bytes", 0) > int(alloc.removesuffix("MiB")) * MIB,
                   f"{tag} has filled its memory")
        return program

    def pid(self, tag):
        return lease_of(self.daemon, tag)["owner"]["pid"]

    def end(self, tag, program):
        os.kill(self.pid(tag), signal.SIGTERM)
        assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()

    def others_go_on(self):
        api = self.daemon.api()
        other = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
        assert other.status == 201, other.body
        assert api.post(f"/v1/leases/{other['id']}/release", {}).status == 200

    def settled(self, tag):
        return wait_until(lambda: (lease := lease_of(self.daemon, tag))["state"] == "ended" and not lease["settling"]
                          and lease, f"{tag} has ended, and its bytes are measured gone")

    def check(self):
        """The card and the bystander are as before, and a new lease gets the free memory."""
        self.daemon.ctl("clear")
        (card,) = wait_until(lambda: [card for card in self.daemon.get("/v1/devices")["devices"]
                                      if card["state"] == "ok"], "the card is known")
        assert card["other_bytes"] == 0
        assert lease_of(self.daemon, "bystander")["state"] == "active"
        again = self.daemon.cli("run", "--vram", "2GiB", "--no-wait", "--", "simgpu-load", "--alloc", "1500MiB",
                                "--seconds", "0")
        assert again.returncode == 0, again.stderr
        self.end("bystander", self.bystander)


def a_call_fails(call, result):
    """A call of a leased program fails: the program ends, and its lease ends with it."""
    def play(scene, fault):
        if watches_itself():
            pytest.skip("a program without the sanitizer cannot load a simulated driver that is built with it")
        program = scene.daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "it", "--", sys.executable,
                                     ROOT / "tests" / "support" / "cuda_calls.py", call, stdin=subprocess.PIPE)
        assert program.stdout.readline() == "ready\n", program.communicate()
        scene.daemon.ctl("fault", fault, "--pid", scene.pid("it"))
        out, err = program.communicate("go\n", timeout=60)
        assert out == f"{result}\n" and program.returncode == 1, (out, err)
        lease = scene.settled("it")
        assert lease["end_reason"] == "released" and lease["exit_status"] == 1
    return play


def hangs_for_ever(scene, fault):
    """A leased program hangs in the driver: a stop kills it, and its bytes are free."""
    program = scene.load("it", "128MiB")
    scene.daemon.ctl("fault", fault, "--pid", scene.pid("it"))
    wait_until(lambda: any(entry["hits"] for entry in scene.daemon.cards()["faults"]), "it hangs")
    lease = lease_of(scene.daemon, "it")
    assert lease["state"] == "active" and program.poll() is None
    assert lease["stop_grace_seconds"] == 1, "half a second is not none"
    done = scene.daemon.cli("stop", "it")
    assert done.returncode == 0, done.stderr
    assert program.wait(60) == 128 + signal.SIGKILL
    assert scene.settled("it")["end_reason"] == "released"


def parks_slowly(scene, fault):
    """A slow link: a pause takes long and reports its progress; nothing is cancelled or lost."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    scene.daemon.ctl("fault", fault, "--bandwidth", "128MiB/s")
    assert scene.daemon.api().post("/v1/leases/it/pause", {})["state"] == "pausing"
    assert until(scene.daemon, "it", "paused")["pause"]["method"] == "driver"
    assert scene.daemon.cli("resume", "it").returncode == 0
    scene.end("it", program)


def parked_late(scene, fault):
    """The driver does not return: the lease is `pausing` meanwhile, and other leases are served."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    scene.daemon.ctl("fault", fault, "--pid", scene.pid("it"))
    assert scene.daemon.api().post("/v1/leases/it/pause", {})["state"] == "pausing"
    wait_until(lambda: any(entry["hits"] for entry in scene.daemon.cards()["faults"]), "it hangs")
    assert lease_of(scene.daemon, "it")["state"] in ("pausing", "resuming")
    scene.others_go_on()
    scene.daemon.ctl("clear", fault)
    if until(scene.daemon, "it", "active", "paused")["state"] == "paused":
        assert scene.daemon.cli("resume", "it").returncode == 0
    scene.end("it", program)


def back_late(scene, fault):
    """The lease counts as running only after the driver has unlocked the program."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    assert scene.daemon.cli("pause", "it").returncode == 0
    scene.daemon.ctl("fault", fault)
    scene.daemon.api().post("/v1/leases/it/resume", {})
    wait_until(lambda: any(entry["hits"] for entry in scene.daemon.cards()["faults"]), "it hangs")
    assert lease_of(scene.daemon, "it")["state"] == "resuming"
    scene.others_go_on()
    scene.daemon.ctl("clear", fault)
    until(scene.daemon, "it", "active")
    scene.end("it", program)


def restored_never(scene, fault):
    """A restore that fails is final: the program is kept, not killed."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    assert scene.daemon.cli("pause", "it").returncode == 0
    scene.daemon.ctl("fault", fault)
    scene.daemon.api().post("/v1/leases/it/resume", {})
    until(scene.daemon, "it", "poisoned")
    assert program.poll() is None
    os.kill(scene.pid("it"), signal.SIGKILL)
    assert program.wait(60) == 128 + signal.SIGKILL
    scene.settled("it")


def pause_undone(scene, fault):
    """A checkpoint that fails: the program runs on and has lost nothing."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    scene.daemon.ctl("fault", fault, "--pid", scene.pid("it"))
    assert scene.daemon.cli("pause", "it").returncode == 1
    assert until(scene.daemon, "it", "active")["pause"] is None
    scene.end("it", program)


def restored_all_the_same(scene, fault):
    """A restore refused once, as under a debugger that came and went: no program is lost."""
    quick_checkpoints(scene.daemon)
    program = scene.load("it", "128MiB")
    assert scene.daemon.cli("pause", "it").returncode == 0
    scene.daemon.ctl("fault", fault, "--pid", scene.pid("it"), "--nth", 1)
    assert scene.daemon.cli("resume", "it").returncode == 0
    assert until(scene.daemon, "it", "active", "poisoned")["state"] == "active"
    scene.end("it", program)


def elsewhere(file, test):
    """Tested in a file of its own."""
    return file, test


EXPECTED = {
    "alloc-fail": a_call_fails("alloc", OUT_OF_MEMORY),
    "create-fail": a_call_fails("create", OUT_OF_MEMORY),
    "map-fail": a_call_fails("map", OUT_OF_MEMORY),
    "register-fail": a_call_fails("register", OUT_OF_MEMORY),
    "copy-fail": a_call_fails("copy", UNKNOWN),
    "ecc": a_call_fails("copy", ECC_UNCORRECTABLE),
    "sync-hang": hangs_for_ever,
    "launch-hang": hangs_for_ever,
    "bandwidth": parks_slowly,
    "checkpoint-hang": parked_late,
    "lock-hang": parked_late,
    "state-hang": parked_late,
    "restore-hang": back_late,
    "unlock-hang": back_late,
    "restore-fail": restored_never,
    "restore-refused": restored_all_the_same,
    "checkpoint-fail": pause_undone,
    "device-lost": elsewhere("test_driver_faults.py", "test_a_device_that_is_lost_and_comes_back"),
    "nvml-error": elsewhere("test_driver_faults.py", "test_one_card_that_errs_ends_no_lease_on_it"),
    "nvml-hang": elsewhere("test_driver_faults.py", "test_an_old_reading_grants_nothing"),
    "nvml-empty": elsewhere("test_faults.py", "test_a_driver_that_fails_grants_nothing_and_forgets_nothing"),
    "nvml-missing-pid": elsewhere("test_driver_faults.py", "test_a_process_missing_from_the_list_stays_charged"),
    "nvml-late": elsewhere("test_driver_faults.py", "test_old_figures_never_free_a_byte"),
    "nvml-no-utilization": elsewhere("test_idle.py", "test_without_utilization_every_lease_counts_as_busy"),
    "nvml-wrong-namespace": elsewhere("test_driver_faults.py", "test_pids_of_another_namespace_end_nobody"),
}
PLAYED = [fault for fault, expected in EXPECTED.items() if callable(expected)]


def known_faults():
    said = subprocess.run([BIN / "simgpu-ctl", "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z-]+) ", said.split("\nFaults:\n")[1].split("\nSettings:\n")[0], re.MULTILINE)


def test_every_fault_is_expected():
    assert sorted(known_faults()) == sorted(EXPECTED)


@pytest.mark.parametrize("fault", [fault for fault in EXPECTED if fault not in PLAYED])
def test_the_named_tests_exist(fault):
    file, test = EXPECTED[fault]
    text = (ROOT / "tests" / "e2e" / file).read_text()
    assert f"def {test}(" in text and f'"{fault}"' in text


@pytest.mark.parametrize("fault", PLAYED)
def test_a_fault_does_not_harm_others(start_daemon, fault):
    scene = Scene(start_daemon("1x4GiB", config=CONFIG))
    EXPECTED[fault](scene, fault)
    scene.check()
