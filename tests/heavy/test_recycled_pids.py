# SPDX-License-Identifier: Apache-2.0
"""No bystander gets a signal in 10,000 rounds, each of which reuses the pid of a judged process."""
import os
import re
import subprocess

import pytest

from tests.support.sublet import BUILD

ROUNDS = 10_000


def test_a_recycled_pid_is_never_signalled():
    if os.geteuid() != 0:
        pytest.skip("only root can choose the pid of a new process")
    done = subprocess.run([BUILD / "test" / "actor_test",
                           "--gtest_filter=Unleased.NeverSignalsAnotherProcessWithTheSamePid"],
                          env=dict(os.environ, SUBLET_ROUNDS=str(ROUNDS)), capture_output=True, text=True)
    if "SKIPPED" in done.stdout:
        pytest.skip("no pid can be chosen here")
    assert done.returncode == 0, done.stdout + done.stderr
    [reused] = re.findall(r"(\d+) of 10000 pids were used again", done.stdout)
    assert int(reused) > ROUNDS * 0.9
