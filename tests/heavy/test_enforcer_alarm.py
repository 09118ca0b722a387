# SPDX-License-Identifier: Apache-2.0
"""A program that is started again and again without a lease is ended three times. Then an alarm replaces that."""
import pytest

from tests.support.sublet import Daemon, wait_until

CONFIG = '[enforcer]\ninterval = "1s"\ngrace = "5s"\npolicy = "enforce"\n[gpu]\ninterval_idle = "1s"\n'


@pytest.fixture
def daemon():
    daemon = Daemon("1x4GiB", config=CONFIG).start()
    yield daemon
    daemon.close()


def test_a_respawn_loop_is_ended_three_times_and_then_reported(daemon):
    loop = daemon.spawn("sh", "-c", "while :; do simgpu-load --alloc 256MiB --seconds 600; done")

    def alarm():
        return [warning for warning in daemon.get("/v1/status")["warnings"] if warning["code"] == "enforcer-alarm"]
    wait_until(alarm, "the alarm", 180)
    ended = [row for row in daemon.get("/v1/verdicts?all=true")["verdicts"] if row["outcome"] == "ended"]
    assert len(ended) == 3 and loop.poll() is None
    [now] = daemon.get("/v1/verdicts")["verdicts"]
    seen = now["sightings"]
    wait_until(lambda: daemon.get("/v1/verdicts")["verdicts"][0]["sightings"] > seen + 3, "it is spared for some time")
    assert "is started again without a lease" in daemon.cli("status", check=0).stdout
