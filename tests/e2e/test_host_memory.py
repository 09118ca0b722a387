# SPDX-License-Identifier: Apache-2.0
"""Host memory for parked programs: swap devices, and the limits of control groups."""
import contextlib
import os
import pathlib
import signal

import pytest

from tests.support.machine import has_memory, with_memory
from tests.support.parking import lease_of, quick_checkpoints, until
from tests.support.sublet import GIB, MIB, unified_mounts, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[lease]\nlinger = "500ms"\n'
          '[pause]\nverify_timeout = "5s"\ncooldown = "200ms"\n')
V1 = pathlib.Path("/sys/fs/cgroup/memory")


def with_swap(directory):
    """A command to run before the daemon's, which shows the daemon a machine with a swap device."""
    command = with_memory(directory)
    has_memory(directory, 64 * GIB, swap=2 * GIB)
    return command


def start(daemon, tag="it", *before, alloc="1GiB"):
    program = daemon.spawn(*before, "sublet", "run", "--vram", "2GiB", "--tag", tag, "--tier", "batch", "--",
                           "simgpu-load", "--alloc", alloc, "--seconds", "600", "--verify")
    wait_until(lambda: (lease_of(daemon, tag).get("used_bytes") or 0) >= 512 * MIB, "it has filled its memory")
    return program


def ends_right(daemon, program, tag="it"):
    os.kill(lease_of(daemon, tag)["owner"]["pid"], signal.SIGTERM)
    assert program.wait(timeout=60) == 143, program.communicate()


def swap_limits_of(pid):
    """The files memory.swap.max that apply to the process."""
    lines = pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    inside = [line[3:] for line in lines if line.startswith("0::")]
    found = []
    for mount in unified_mounts():
        group = mount / (inside or ["/"])[0].lstrip("/")
        while group != mount.parent:
            found += [group / "memory.swap.max"] if (group / "memory.swap.max").exists() else []
            group = group.parent
    return found


def test_swap_without_a_group_prevents_every_pause(start_daemon, tmp_path):
    if swap_limits_of("self"):
        pytest.skip("the control group that this runs in can be kept from swap")
    daemon = start_daemon("1x4GiB", config=CONFIG, command=with_swap(tmp_path))
    program = start(daemon)
    done = daemon.cli("pause", "it")
    assert done.returncode != 0 and "swap" in done.stderr and "ledger.allow_swap" in done.stderr, done.stderr
    doctor = daemon.cli("doctor").stdout
    assert "cannot be kept out of it" in doctor
    assert "swapoff -a" in doctor and "MemorySwapMax=0" in doctor
    assert lease_of(daemon, "it")["state"] == "active"
    ends_right(daemon, program)


def test_swap_may_be_allowed(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB", config=CONFIG + "[ledger]\nallow_swap = true\n", command=with_swap(tmp_path))
    quick_checkpoints(daemon)
    program = start(daemon)
    assert daemon.cli("pause", "it").returncode == 0
    assert "ledger.allow_swap lets" in daemon.cli("doctor").stdout
    assert daemon.cli("resume", "it").returncode == 0
    ends_right(daemon, program)


def test_doctor_says_that_there_is_no_swap(start_daemon):
    if "SwapTotal:             0 kB" not in pathlib.Path("/proc/meminfo").read_text():
        pytest.skip("this machine has a swap device")
    assert "no swap device is in use" in start_daemon("1x1GiB", config=CONFIG).cli("doctor").stdout


@contextlib.contextmanager
def group_that_swaps():
    """A group of the unified hierarchy with a limit on swap space."""
    for mount in unified_mounts():
        with contextlib.suppress(OSError):
            (mount / "cgroup.subtree_control").write_text("+memory")
        group = mount / f"sublet-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / "memory.swap.max").exists():
                yield group
                return
        finally:
            wait_until(lambda: not (group / "cgroup.procs").read_text(), "nobody is in the group")
            for below in sorted(group.rglob("*"), reverse=True):
                if below.is_dir():
                    below.rmdir()
            group.rmdir()
    pytest.skip("no unified hierarchy with the memory controller may be written here")


def test_a_group_is_kept_from_swap_while_its_program_is_parked(start_daemon, tmp_path):
    with group_that_swaps() as group:
        (group / "memory.swap.max").write_text(str(GIB))
        daemon = start_daemon("1x4GiB", config=CONFIG, command=with_swap(tmp_path))
        quick_checkpoints(daemon)
        program = start(daemon, "it", "sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        assert daemon.cli("pause", "it").returncode == 0
        assert (group / "memory.swap.max").read_text().strip() == "0"
        daemon.restart()
        assert daemon.cli("resume", "it").returncode == 0
        wait_until(lambda: (group / "memory.swap.max").read_text().strip() == str(GIB), "the limit is what it was")
        ends_right(daemon, program)


def test_the_next_actor_restores_a_groups_swap_limit(start_daemon, tmp_path):
    with group_that_swaps() as group:
        (group / "memory.swap.max").write_text(str(GIB))
        daemon = start_daemon("1x4GiB", config=CONFIG, command=with_swap(tmp_path))
        quick_checkpoints(daemon)
        program = start(daemon, "it", "sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
        assert daemon.cli("pause", "it").returncode == 0
        assert (group / "memory.swap.max").read_text().strip() == "0"
        actor = daemon.child_pid("sublet-actor")
        os.kill(actor, signal.SIGSTOP)  # it obeys no order any more, and the daemon gives it up
        assert daemon.cli("resume", "it").returncode == 0
        wait_until(lambda: (group / "memory.swap.max").read_text().strip() == str(GIB), "the limit is what it was")
        assert daemon.child_pid("sublet-actor") != actor
        ends_right(daemon, program)


@contextlib.contextmanager
def limited_group(limit):
    """A group of the memory controller, version 1 or 2, with that memory limit; returns its cgroup.procs."""
    places = [(V1, "memory.limit_in_bytes")] if V1.is_dir() else [(mount, "memory.max") for mount in unified_mounts()]
    for mount, name in places:
        group = mount / f"sublet-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit))
        except OSError:
            continue
        try:
            yield group / "cgroup.procs"
            return
        finally:
            wait_until(lambda: not (group / "cgroup.procs").read_text(), "nobody is in the group")
            group.rmdir()
    pytest.skip("no memory controller may be written here")


def test_the_tightest_group_of_the_whole_tree_decides(start_daemon):
    '''The main process may use more memory; the process with the VRAM may not.'''
    with limited_group(700 * MIB) as procs:
        daemon = start_daemon("1x4GiB", config=CONFIG)
        quick_checkpoints(daemon)
        child = f"(echo 0 > {procs}; exec simgpu-load --alloc 1GiB --seconds 600 --verify) & wait $!"
        program = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "it", "--", "sh", "-c", child)
        wait_until(lambda: (lease_of(daemon, "it").get("used_bytes") or 0) >= GIB, "it has filled its memory")
        done = daemon.cli("pause", "it")
        assert done.returncode != 0 and "the control group of its program may take" in done.stderr, done.stderr
        assert "raise memory.max" in done.stderr and lease_of(daemon, "it")["state"] == "active"
        ledger = daemon.get("/v1/ledger")
        assert ledger["cgroup_bytes"] < 700 * MIB and ledger["free_bytes"] <= ledger["cgroup_bytes"]
        daemon.cli("stop", "it")
        program.wait(timeout=60)
        until(daemon, "it", "ended")
        wait_until(lambda: not procs.read_text(), "all of it has ended")


def test_files_that_a_program_has_read_do_not_keep_it_from_being_paused(start_daemon, tmp_path):
    """Its pages are charged to the group until another process needs the memory."""
    weights = tmp_path / "weights"
    weights.touch()
    os.truncate(weights, 768 * MIB)
    with limited_group(768 * MIB) as procs:
        daemon = start_daemon("1x4GiB", config=CONFIG)
        quick_checkpoints(daemon)
        reader = f'echo 0 > {procs}; cat {weights} > /dev/null; exec simgpu-load --alloc 400MiB --seconds 600 --verify'
        program = daemon.spawn("sublet", "run", "--vram", "512MiB", "--tag", "it", "--", "sh", "-c", reader)
        wait_until(lambda: (lease_of(daemon, "it").get("used_bytes") or 0) >= 400 * MIB, "it has filled its memory")
        usage = procs.parent / ("memory.usage_in_bytes" if V1.is_dir() else "memory.current")
        cached = int(usage.read_text()) > 384 * MIB
        done = daemon.cli("pause", "it")
        if done.returncode == 0:
            daemon.cli("resume", "it")
        ends_right(daemon, program)
        if not cached:
            pytest.skip("what is read in the directory of this test is not charged as page cache")
        assert done.returncode == 0, done.stderr


# Allocates more at SIGUSR1, and exits with 0 if it can use all of it.
GROWING = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
for size, signals in ((512, [signal.SIGUSR1]), (1200, [signal.SIGTERM])):
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size << 20)) == 0
    signal.sigwait(signals)
assert cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20)) == 0 and cuda.cuCtxSynchronize() == 0
"""


def test_a_program_that_outgrows_its_ledger_entry_runs_on(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + '[ledger]\nlimit = "1536MiB"\n')
    quick_checkpoints(daemon)
    program = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "it", "--", "python3", "-c", GROWING)
    wait_until(lambda: (lease_of(daemon, "it").get("used_bytes") or 0) >= 512 * MIB, "it holds its memory")
    pid = lease_of(daemon, "it")["owner"]["pid"]
    daemon.ctl("fault", "lock-hang", "--pid", pid)
    assert daemon.cli("pause", "it", "--no-wait").returncode == 0
    wait_until(lambda: any(fault["hits"] for fault in daemon.cards()["faults"]), "it is about to be locked")
    assert daemon.get("/v1/ledger")["entries"][0]["bytes"] == GIB
    os.kill(pid, signal.SIGUSR1)
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] >= 1700 * MIB, "it has grown")
    daemon.ctl("clear")
    until(daemon, "it", "active")
    why = str(daemon.get("/v1/leases/it/why")["reasons"])
    assert "the pause is undone" in why and "only 1.5 GiB more may be parked" in why, why
    assert daemon.cards()["calls"].get("cuCheckpointProcessCheckpoint", 0) == 0, "nothing of it was moved"
    assert daemon.get("/v1/ledger")["entries"] == []
    os.kill(pid, signal.SIGTERM)
    assert program.wait(timeout=60) == 0, program.communicate()
