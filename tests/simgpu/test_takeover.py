# SPDX-License-Identifier: Apache-2.0
"""No process of its user can take over `sublet-gpu checkpoint`: the helper keeps the limits of its starter, not theirs.
"""
import errno
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile

import pytest

import helper
import simcards

NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
SEIZES = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
sys.exit(0 if libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0 else ctypes.get_errno())  # PTRACE_SEIZE
"""
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")


def seize(process):
    """Attaches as another process of the same user; returns 0 or the errno of the refusal."""
    return subprocess.run(["python3", "-c", SEIZES, str(process.pid)], **NOBODY).returncode


@pytest.fixture
def place():
    """A folder that any user can read, with the helper and the driver: a checkout may be closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        for source in (helper.PROGRAM, simcards.DRIVER / "libcuda.so.1"):
            shutil.copy(source, folder)
        yield folder


@pytest.fixture
def sleeper():
    """A process of that user, which other processes of the user may trace."""
    process = subprocess.Popen(["sleep", "3600"], **NOBODY)
    try:
        if (refused := seize(process)) != 0:
            pytest.skip(f"nobody traces another process of their own here: {os.strerror(refused)}")
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_parking_helper_is_not_traced(place, sleeper):
    cards = simcards.Cards(place / "cards", "1x1GiB")
    one = helper.Helper(cards, sleeper.pid, program=place / "sublet-gpu", driver=place / "libcuda.so.1", **NOBODY)
    try:
        one("preflight")
        assert seize(one.process) == errno.EPERM
    finally:
        one.kill()
        cards.end()


@pytest.mark.parametrize("mode, refused", [(0o755, 0), (0o711, errno.EPERM)])
def test_a_probe_is_protected_by_its_file_mode_alone(place, sleeper, mode, refused):
    """The file's mode alone protects it: a helper that only reads asks for no more."""
    program = place / "sublet-gpu"
    program.chmod(mode)
    ours, its = socket.socketpair()
    words = [program, "probe", "--fd", str(its.fileno()), "--nvml", "/nowhere/libnvidia-ml.so.1"]
    process = subprocess.Popen(words, pass_fds=[its.fileno()], **NOBODY)
    its.close()
    try:
        ours.sendall(b"snapshot 1\n")
        assert ours.recv(1)
        assert seize(process) == refused
    finally:
        process.kill()
        process.wait()
        ours.close()
