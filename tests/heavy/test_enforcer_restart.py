# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed between SIGTERM and SIGKILL sends SIGKILL after its restart, once."""
import sys

import pytest

from tests.support.sublet import Daemon, living, wait_until

CONFIG = ('[enforcer]\ninterval = "1s"\nstart_grace = "3s"\ngrace = "5s"\npolicy = "enforce"\n'
          '[gpu]\ninterval_idle = "1s"\n')

STUBBORN = """
import ctypes, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
cuda = ctypes.CDLL("libcuda.so.1")
handle, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(handle), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(256 << 20)) == 0
time.sleep(600)
"""


@pytest.fixture
def daemon():
    daemon = Daemon("1x4GiB", config=CONFIG).start()
    yield daemon
    daemon.close()


def test_a_daemon_killed_in_the_grace_sends_sigkill_later(daemon):
    stubborn = daemon.spawn(sys.executable, "-c", STUBBORN)

    def reaches(stage):
        def row():
            rows = daemon.get(f"/v1/verdicts?pid={stubborn.pid}")["verdicts"]
            return rows[0] if rows and rows[0]["stage"] == stage else None
        return wait_until(row, f"it is {stage}", 120)
    reaches("terminating")
    daemon.restart()
    row = reaches("closed")
    steps = [step["what"] for step in daemon.get(f"/v1/verdicts/{row['id']}")["steps"]]
    assert row["outcome"] == "ended" and not living(stubborn.pid)
    assert steps.count("SIGKILL") == 1 and steps.index("SIGTERM") < steps.index("SIGKILL")
