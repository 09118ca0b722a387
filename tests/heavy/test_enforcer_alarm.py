# SPDX-License-Identifier: Apache-2.0
"""A program that is started again and again without a lease is ended three times. Then an alarm replaces that."""
import json

import pytest

from tests.support.sublet import BIN, Daemon, wait_until

CONFIG = ('[enforcer]\ninterval = "1s"\nstart_grace = "3s"\ngrace = "5s"\npolicy = "enforce"\n'
          '[gpu]\ninterval_idle = "1s"\n')


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
    assert "3 processes of " in daemon.cli("status", check=0).stdout


def test_a_loop_with_a_new_path_for_each_run_is_bounded_by_its_parent(daemon, tmp_path):
    loop = daemon.spawn("sh", "-c", f"n=0; while :; do n=$((n+1)); mkdir {tmp_path}/m.$n; "
                        f"cp {BIN}/simgpu-load {tmp_path}/m.$n/app; {tmp_path}/m.$n/app --alloc 256MiB --seconds 600; "
                        "done")

    def alarm():
        return [warning for warning in daemon.get("/v1/status")["warnings"] if warning["code"] == "enforcer-alarm"]
    [warning] = wait_until(alarm, "the alarm", 180)
    assert f"5 processes started by sh (pid {loop.pid})" in warning["text"]
    rows = daemon.get("/v1/verdicts?all=true")["verdicts"]
    assert len([row for row in rows if row["outcome"] == "ended"]) == 5
    [now] = [row for row in rows if row["outcome"] == "open"]
    lines = daemon.cli("events", "--no-follow", "--type", "verdict", "--json", check=0).stdout.splitlines()
    events = [event for event in map(json.loads, lines) if event["verdict"] == now["id"]]
    assert "condemned" not in {event["stage"] for event in events}
