# SPDX-License-Identifier: Apache-2.0
"""What a daemon is made to believe of its machine: what memory that has, and for how long it has slept.

Each `with_…` gives the command to put before the daemon's; the rest says, at any moment, how it is. All are files of
one directory. Where the machine of the test does not allow it, the test is skipped.
"""
import atexit
import functools
import pathlib
import re
import subprocess
import tempfile

import pytest

from tests.support.preload import preloaded, shared_library
from tests.support.sublet import GIB, ROOT


def has_memory(directory, available, swap=0):
    real = pathlib.Path("/proc/meminfo").read_text()
    text = re.sub(r"MemAvailable:.*", f"MemAvailable: {available // 1024} kB", real)
    (directory / "meminfo").write_text(re.sub(r"Swap(Total|Free):.*", rf"Swap\1: {swap // 1024} kB", text))


def has_pressure(directory, percent):
    """For so much of the last ten seconds everybody waited for memory."""
    (directory / "pressure").write_text(f"full avg10={percent:.2f} avg60=0.00 avg300=0.00 total=0\n")


def with_memory(directory):
    """A mount table in which the kernel says of memory what is said here; until then there is plenty, and no swap."""
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
    """Since it was started; and by how much its clock on the wall was set forward, or back."""
    fresh = directory / "asleep.new"
    fresh.write_text(f"{seconds} {moved}")
    fresh.rename(directory / "asleep")


def asleep_environment(directory):
    """Of processes whose machine sleeps as is said here."""
    has_slept(directory, 0)
    return {**preloaded(asleep_library()), "SUBLET_TEST_ASLEEP": str(directory / "asleep")}


def with_sleep(directory):
    return ("env", *(f"{name}={value}" for name, value in asleep_environment(directory).items()))


@functools.cache
def asleep_library():
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    return shared_library(pathlib.Path(directory.name) / "asleep.so", ROOT / "tests" / "support" / "asleep.c")
