# SPDX-License-Identifier: Apache-2.0
"""Programs that the simulated driver pauses. Tests use the fixture by importing it."""
import os
import signal

import pytest

from tests.support.sublet import GIB, MIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "64MiB"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "2s"\n'
          '[pause]\nverify_timeout = "5s"\nyield_timeout = "20s"\ncooldown = "500ms"\nmin_residency = "1500ms"\n'
          'slice_overhead = 1.0\n')


def start_parking(start_daemon, config=""):
    """A private daemon with one small card and short times."""
    daemon = start_daemon("1x4GiB", config=CONFIG + config)
    quick_checkpoints(daemon)
    return daemon


@pytest.fixture
def daemon(start_daemon):
    return start_parking(start_daemon)


def quick_checkpoints(daemon):
    """Sets the driver's fixed times to zero, so that parking and restoring take only the time of the bytes."""
    for key in ("checkpoint_us", "checkpoint_bandwidth", "restore_us", "restore_bandwidth"):
        daemon.ctl("set", key, 0)


def late(daemon, tag, vram, alloc):
    """A spot program that registers as cooperative and fills its memory after a call of goes_on()."""
    gate = daemon.dir / f"{tag}.gate"
    os.mkfifo(gate)
    opened = os.open(gate, os.O_RDWR)  # no process waits to open it
    script = f'read -r _ < "$0"; exec simgpu-load --alloc {alloc} --seconds 600 --verify --json --on-pause honest'
    child = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, "--tier", "spot", "--pausable", "cooperative",
                         "--", "sh", "-c", script, gate)

    def goes_on():
        os.write(opened, b"go\n")
        os.close(opened)
    child.goes_on = goes_on
    return child


def until_filled(daemon, tag, alloc):
    """Waits until the program has a context and that much memory ("512MiB") on the card."""
    wanted = int(float(alloc[:-3]) * {"MiB": MIB, "GiB": GIB}[alloc[-3:]]) + 256 * MIB
    wait_until(lambda: lease_of(daemon, tag).get("used_bytes", 0) >= wanted, f"{tag} has filled its memory")


def lease_of(daemon, tag):
    return daemon.get(f"/v1/leases/{tag}").body


def until(daemon, tag, *states):
    """Returns the lease once it is in one of these states."""
    return wait_until(lambda: (lambda now: now if now.get("state") in states else None)(lease_of(daemon, tag)),
                      f"{tag} is {' or '.join(states)}")


def ends_well(daemon, tag, child):
    """Ends a program that runs until SIGTERM. The program has checked every byte."""
    os.kill(lease_of(daemon, tag)["owner"]["pid"], signal.SIGTERM)
    assert child.wait(timeout=60) == 128 + signal.SIGTERM, f"every byte is as it was: {child.communicate()}"


def used_on_card(daemon):
    """Returns the bytes on the lease's first card."""
    return daemon.get("/v1/devices")["devices"][0]["used_bytes"]


def trace(daemon, pid):
    """Attaches a debugger to the process. The process runs on."""
    tracer = daemon.spawn("python3", "-c", f"""
import ctypes, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, {pid}, 0, 0) == 0, ctypes.get_errno()  # PTRACE_SEIZE: it runs on
print("seized", flush=True)
signal.pause()
""")
    assert tracer.stdout.readline() == "seized\n"
    return tracer
