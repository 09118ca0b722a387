# SPDX-License-Identifier: Apache-2.0
"""Makes a daemon believe in another machine: its memory, its memory pressure, and the time that it has slept.

Each `with_…` function returns the command to put before the daemon's. The other functions set the values at any moment.
The values are in files of one directory. A test is skipped if its machine does not allow this.
"""
import atexit
import pathlib
import re
import subprocess
import tempfile

import pytest

from tests.support.once import once
from tests.support.preload import preloaded, shared_library
from tests.support.sublet import GIB, ROOT


def has_memory(directory, available, swap=0):
    real = pathlib.Path("/proc/meminfo").read_text()
    text = re.sub(r"MemAvailable:.*", f"MemAvailable: {available // 1024} kB", real)
    (directory / "meminfo").write_text(re.sub(r"Swap(Total|Free):.*", rf"Swap\1: {swap // 1024} kB", text))


def has_pressure(directory, percent):
    """Sets the memory pressure: the share of the last ten seconds in which every process waited for memory."""
    (directory / "pressure").write_text(f"full avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")


def with_memory(directory):
    """Returns a command that runs in a mount table with made-up memory files. At first they show plenty of memory and
    no swap.
    """
    has_memory(directory, 64 * GIB)
    has_pressure(directory, 0)
    within = ("unshare", "--mount", "--propagation", "private", "sh", "-c",
              'mount --bind "$0" /proc/meminfo && if [ -e /proc/pressure/memory ]; then '
              'mount --bind "$1" /proc/pressure/memory; fi && shift && exec "$@"',
              str(directory / "meminfo"), str(directory / "pressure"))
    if subprocess.run([*within, "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount: what the kernel says of the machine's memory cannot be staged here")
    return within


def has_slept(directory, seconds, moved=0):
    """Sets the seconds that the machine has slept since the start, and by how much its wall clock was set forward or
    back.
    """
    fresh = directory / "asleep.new"
    fresh.write_text(f"{seconds} {moved}")
    fresh.rename(directory / "asleep")


def asleep_environment(directory):
    """Returns a command whose processes see the sleep that has_slept() sets."""
    has_slept(directory, 0)
    return {**preloaded(asleep_library()), "SUBLET_TEST_ASLEEP": str(directory / "asleep")}


def with_sleep(directory):
    return ("env", *(f"{name}={value}" for name, value in asleep_environment(directory).items()))


@once
def asleep_library():
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return shared_library(pathlib.Path(directory.name) / "asleep.so", ROOT / "tests" / "support" / "asleep.c")
