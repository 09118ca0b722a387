# SPDX-License-Identifier: Apache-2.0
"""Programs that the driver cannot park: no attempt harms them, whatever the driver does."""
import os
import signal

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until, until_filled
from tests.support.sublet import MIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n'
          '[pause]\nverify_timeout = "5s"\ncooldown = "200ms"\nmin_residency = "500ms"\n')

# Allocates memory of the named kind, and at SIGTERM tells whether every byte is unchanged.
PROGRAM = """
import ctypes, mmap, os, signal, sys
cuda = ctypes.CDLL("libcuda.so.1")
kind, ended = sys.argv[1], []
signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
def call(name, *arguments):
    answer = getattr(cuda, name)(*arguments)
    assert answer == 0, (name, answer)
call("cuInit", 0)
contexts, size = [], 256 << 20
for index in range(2 if kind in ("peer", "two") else 1):
    device, context = ctypes.c_int(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), index)
    call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    contexts.append(context)
memory, more = ctypes.c_uint64(), ctypes.c_uint64()
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
call("cuMemsetD8_v2", memory, ctypes.c_ubyte(77), ctypes.c_size_t(size))
if kind == "managed":
    call("cuMemAllocManaged", ctypes.byref(more), ctypes.c_size_t(8 << 20), 1)
elif kind == "shared":
    class Wanted(ctypes.Structure):  # CUmemAllocationProp: pinned on the device, to be exported by a file descriptor
        _fields_ = [("kind", ctypes.c_int), ("handles", ctypes.c_int), ("place", ctypes.c_int), ("id", ctypes.c_int),
                    ("meta", ctypes.c_void_p), ("flags", ctypes.c_uint64)]
    descriptor = ctypes.c_int()
    call("cuMemCreate", ctypes.byref(more), ctypes.c_size_t(2 << 20), ctypes.byref(Wanted(1, 1, 1, 0, None, 0)),
         ctypes.c_uint64(0))
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), more, 1, ctypes.c_uint64(0))
elif kind == "peer":
    call("cuCtxEnablePeerAccess", contexts[0], 0)
elif kind == "nccl":
    library = open(sys.argv[2], "w+b")
    library.truncate(4096)
    mapped = mmap.mmap(library.fileno(), 4096)
print("holds its memory", flush=True)
signal.sigwait([signal.SIGTERM])
buffer = ctypes.create_string_buffer(1 << 20)
call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(memory.value + size - len(buffer)), ctypes.c_size_t(len(buffer)))
assert buffer.raw == bytes([77]) * len(buffer)
"""


class Stage:
    def __init__(self, daemon):
        self.daemon = daemon
        quick_checkpoints(daemon)

    def program(self, kind, *flags, vram="1GiB"):
        file = self.daemon.dir / "program.py"
        file.write_text(PROGRAM)
        started = self.daemon.spawn("sublet", "run", "--vram", vram, "--tag", "it", "--name", "trainer", "--tier",
                                    "batch", *flags, "--", "python3", str(file), kind,
                                    str(self.daemon.dir / "libnccl.so.2"))
        assert started.stdout.readline() == "holds its memory\n", started.communicate()
        until_filled(self.daemon, "it", "256MiB")
        return started

    def preemptor(self, vram="3500MiB"):
        return self.daemon.spawn("sublet", "run", "--vram", vram, "--tag", "preemptor", "--tier", "interactive", "--",
                                 "simgpu-load", "--alloc", "64MiB", "--seconds", "1")

    def calls(self, name):
        return self.daemon.cards()["calls"].get("cuCheckpointProcess" + name, 0)

    def why(self, tag="it"):
        return str(self.daemon.get(f"/v1/leases/{tag}/why").body)

    def tried(self):
        """Makes a first pause, which finds out."""
        done = self.daemon.cli("pause", "it")
        assert done.returncode != 0, done.stderr
        until(self.daemon, "it", "active")

    def refused(self, says):
        """Checks that a pause by the owner is refused, with the reason."""
        done = self.daemon.cli("pause", "it")
        assert done.returncode != 0 and says in done.stderr, done.stderr
        return done.stderr

    def ends_right(self, program):
        pid = lease_of(self.daemon, "it")["owner"]["pid"]
        wait_until(lambda: lease_of(self.daemon, "it")["state"] == "active", "it runs")
        os.kill(pid, signal.SIGTERM)
        assert program.wait(timeout=60) == 0, f"every byte is as it was: {program.communicate()}"


@pytest.fixture
def stage(start_daemon):
    return lambda spec: Stage(start_daemon(spec, config=CONFIG))


@pytest.mark.parametrize("kind", ["managed", "shared", "peer"])
def test_a_driver_that_undoes_a_pause_is_tried_once(stage, kind):
    its = stage("2x4GiB,driver_version=13000" if kind == "peer" else "1x4GiB,driver_version=13000")
    program = its.program(kind, *(["--gpus", "2"] if kind == "peer" else []))
    preemptor = its.preemptor()
    wait_until(lambda: "memory that the driver cannot park" in its.why(), "it is asked, and cannot")
    wait_until(lambda: "managed memory, memory shared with other processes" in its.why("preemptor"),
               "the preemptor is told so")
    until(its.daemon, "it", "active")
    assert its.calls("Checkpoint") == 1
    its.refused("cannot be paused: the driver cannot park it")
    assert lease_of(its.daemon, "preemptor")["state"] == "queued"
    assert its.calls("Checkpoint") == 1, "it is not tried again on the same program"
    assert its.daemon.get("/v1/ledger")["entries"] == []
    its.ends_right(program)
    assert preemptor.wait(timeout=60) == 0, preemptor.communicate()


@pytest.mark.parametrize("kind", ["plain", "managed", "shared", "peer"])
def test_a_driver_that_destroys_programs_is_never_tried(stage, kind):
    its = stage("2x4GiB,driver_version=12090" if kind == "peer" else "1x4GiB,driver_version=12090")
    program = its.program(kind, *(["--gpus", "2"] if kind == "peer" else []))
    preemptor = its.preemptor()
    says = "is on 2 devices" if kind == "peer" else "it is unknown whether"
    wait_until(lambda: says in its.why(), "it is told why it is not paused")
    until(its.daemon, "it", "active")
    its.refused(says)
    assert lease_of(its.daemon, "preemptor")["state"] == "queued"
    assert its.calls("Lock") == 0, "nothing of it was touched"
    its.ends_right(program)
    assert preemptor.wait(timeout=60) == 0, preemptor.communicate()


def test_before_driver_13_the_owner_must_vouch(stage):
    its = stage("1x4GiB,driver_version=12080")
    program = its.program("plain")
    its.tried()
    assert "sublet pause --grant trainer" in its.refused("cannot be paused") + its.refused("CUDA 12.8")
    assert its.daemon.cli("pause", "--grant", "trainer").returncode == 0
    preemptor = its.preemptor()
    assert preemptor.wait(timeout=60) == 0, preemptor.communicate()
    assert "paused" in [reason["code"] for reason in its.daemon.get("/v1/leases/it/why")["reasons"]]
    until(its.daemon, "it", "active")
    its.ends_right(program)


@pytest.mark.parametrize("version, says, hint", [
    (12060, "CUDA 12.6", "install the vendor's driver 570 or newer"),
    (12090, "it is unknown whether", "sublet pause --grant trainer"),
    (13000, "is stopped or frozen", "kill -CONT")], ids=["old", "owner_must_vouch", "stopped"])
def test_an_early_refusal_says_what_to_do(stage, version, says, hint):
    its = stage(f"1x4GiB,driver_version={version}")
    program = its.program("plain")
    pid = lease_of(its.daemon, "it")["owner"]["pid"]
    if hint == "kill -CONT":
        os.kill(pid, signal.SIGSTOP)
    done = its.daemon.cli("pause", "it")
    assert done.returncode == 1 and "it was not paused: " in done.stderr, done.stderr
    assert says in done.stderr and hint in done.stderr.split("hint: ")[1], done.stderr
    assert "undone" not in done.stderr + its.why() and "rest" not in done.stderr, done.stderr
    assert its.calls("Lock") == 0 and its.daemon.get("/v1/ledger")["entries"] == []
    os.kill(pid, signal.SIGCONT)
    its.ends_right(program)


@pytest.mark.parametrize("flags", [[], ["--gpus", "2"]], ids=["nccl", "two"])
def test_a_vouching_owner_does_not_override_measurements(stage, flags):
    its = stage("2x4GiB,driver_version=12090")
    program = its.program("two" if flags else "nccl", "--pausable", "driver", *flags)
    its.tried()
    its.refused("is on 2 devices" if flags else "uses NCCL")
    its.refused("the driver cannot park it")
    assert its.calls("Lock") == 0
    its.ends_right(program)


def test_a_program_with_a_wrong_owner_claim_is_kept(stage):
    its = stage("1x4GiB,driver_version=12090")
    program = its.program("managed", "--pausable", "driver", vram="2GiB")
    assert its.daemon.cli("pause", "it").returncode != 0
    lost = until(its.daemon, "it", "poisoned")
    assert lost["parked_bytes"] == 0 and lost["used_bytes"] >= 256 * MIB, "its memory is on the card, as it was"
    assert its.daemon.get("/v1/ledger")["parked_bytes"] == 0
    said = its.daemon.cli("why", "it").stdout
    assert "None of its memory is parked" in said and "the driver cannot park" in said, said
    assert program.poll() is None, "it is not killed"
    its.daemon.cli("stop", "it", "--now")
    assert its.daemon.cli("doctor").stdout.count("only programs that their owner vouches for") == 1


@pytest.mark.parametrize("version, kind, says", [(13000, "managed", "memory that the driver cannot park"),
                                                 (12090, "plain", "it is unknown whether")])
def test_a_restart_does_not_repeat_the_attempt(stage, version, kind, says):
    its = stage(f"1x4GiB,driver_version={version}")
    program = its.program(kind)
    its.tried()

    def asked():
        reasons = its.daemon.get("/v1/leases/it/why")["reasons"]
        return its.calls("Lock"), its.calls("Checkpoint"), [reason["code"] for reason in reasons].count("pausing")
    before = asked()
    assert before == ((1, 1, 1) if kind == "managed" else (0, 0, 1))
    its.daemon.restart()
    its.refused(says)
    preemptor = its.preemptor()
    wait_until(lambda: says in its.why("preemptor"), "the preemptor is told why nobody yields")
    assert asked() == before, "the driver is not asked again"
    assert lease_of(its.daemon, "it")["state"] == "active"
    its.ends_right(program)
    assert preemptor.wait(timeout=60) == 0, preemptor.communicate()


def test_a_result_holds_for_one_program_alone(stage):
    its = stage("1x4GiB,driver_version=13000")
    first = its.program("managed")
    its.daemon.cli("pause", "it")
    its.refused("the driver cannot park it")
    its.ends_right(first)
    until(its.daemon, "it", "ended")
    second = its.program("plain")
    done = its.daemon.cli("pause", "it")
    assert done.returncode == 0, done.stderr
    assert its.daemon.cli("resume", "it").returncode == 0
    its.ends_right(second)
