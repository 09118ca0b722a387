# SPDX-License-Identifier: Apache-2.0
"""A machine that sleeps for hours: the daemon notices, and no deadline passes for it."""
import datetime
import signal
import time

import pytest

from tests.support.machine import asleep_environment, has_slept
from tests.support.parking import until
from tests.support.retrying import Hook
from tests.support.sublet import GIB, living, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\nmax_age = "2s"\n'
          '[queue]\nclaim_window = "6s"\n'
          '[lease]\nlinger = "6s"\nreconnect = "1s"\ngrace = "6s"\n')
HOURS = 3 * 3600


class Machine:
    """Sets how long the machine of all processes that are started here has slept."""

    def __init__(self, directory, monkeypatch):
        self.seconds = self.moved = 0
        self.directory = directory
        for name, value in asleep_environment(directory).items():
            monkeypatch.setenv(name, value)

    def sleep(self, seconds):
        self.seconds += seconds
        has_slept(self.directory, self.seconds, self.moved)

    def set_clock(self, seconds):
        """Sets the wall clock forward or back while the machine runs."""
        self.moved += seconds
        has_slept(self.directory, self.seconds, self.moved)

    def wall(self):
        return time.time() + self.seconds + self.moved


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return Machine(tmp_path, monkeypatch)


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def ends(api, id, reason):
    wait_until(lambda: api.lease(id)["end_reason"] == reason, f"{id} ends: {reason}")


def woke(daemon):
    said = daemon.cli("events", "--no-follow", "--since", "0", "--type", "daemon", "--json", check=0).stdout
    return '"state":"woke"' in said and said


def test_nothing_runs_out_while_the_machine_sleeps(start_daemon, machine):
    daemon = start_daemon("1x24GiB", config=CONFIG)
    api, held = daemon.api(), daemon.api()

    def ask(size=1, by=api, **more):
        return by.post("/v1/leases", {"vram_bytes": size * GIB, **more})["id"]

    long, short = ask(ttl_seconds=2 * 3600), ask(ttl_seconds=60)
    deaf = daemon.spawn("sublet", "run", "--vram", "1GiB", "--", "sh", "-c",
                        "trap '' TERM; echo deaf; while :; do sleep 1; done")
    assert deaf.stdout.readline() == "deaf\n"
    program = next(lease for lease in daemon.leases() if lease["owner"]["pid"])
    lingering = ask(by=held)
    large = ask(18, ttl_seconds=3600)
    offered = ask(18, ttl_seconds=3600)
    assert api.lease(offered)["state"] == "queued"
    # All short deadlines start, and the machine falls asleep.
    assert api.post(f"/v1/leases/{short}/renew", {"ttl_seconds": 8}).status == 200
    api.post(f"/v1/leases/{large}/release")
    api.post(f"/v1/leases/{program['id']}/release", {"stop": True})
    held.close()
    machine.sleep(HOURS)
    told = wait_until(lambda: woke(daemon), "the sleep is noticed")
    # The time between the two readings of the clocks may lower the result below a whole second.
    assert f'"asleep_seconds":{HOURS}' in told or f'"asleep_seconds":{HOURS - 1}' in told
    assert "the machine slept for 3 h" in daemon.log()
    states = {lease["id"]: lease["state"] for lease in api.get("/v1/leases")["leases"]}
    assert states == {long: "active", short: "active", program["id"]: "active", lingering: "active",
                      offered: "offered"}
    assert living(program["owner"]["pid"])
    # Times are wall-clock times, and the remaining durations are unchanged.
    assert machine.wall() + 3600 < at(api.lease(long)["expires_at"]) <= machine.wall() + 2 * 3600
    assert at(api.lease(short)["expires_at"]) < machine.wall() + 10
    assert at(api.lease(offered)["offer_ends_at"]) > machine.wall()
    fresh = api.lease(ask(ttl_seconds=3600))
    assert fresh["state"] == "active" and abs(at(fresh["created_at"]) - machine.wall()) < 60
    # All of them continue.
    assert api.post(f"/v1/leases/{offered}/claim")["state"] == "active"
    ends(api, lingering, "owner_gone")
    ends(api, short, "expired")
    ends(api, program["id"], "released")
    assert deaf.wait(60) == 128 + signal.SIGKILL
    assert api.lease(long)["state"] == "active"


def test_a_sleep_while_no_daemon_runs_counts_as_little(start_daemon, machine):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    lease = daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 3600})["id"]
    machine.sleep(HOURS)
    wait_until(lambda: woke(daemon), "the sleep is noticed")
    daemon.kill()
    machine.sleep(HOURS)
    daemon.start()
    now = daemon.api().lease(lease)
    assert now["state"] == "active"
    assert machine.wall() + 3000 < at(now["expires_at"]) <= machine.wall() + 3600


def test_time_asleep_is_held_or_paused_as_any_other(start_daemon, machine):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, hook = daemon.api(), Hook()
    try:
        lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 3600, "tag": "parked"})["id"]
        assert api.post(f"/v1/leases/{lease}/cooperate", {"way": "webhook", "url": hook.url}).status == 200
        machine.sleep(HOURS)
        wait_until(lambda: woke(daemon), "the sleep is noticed")
        assert api.post(f"/v1/leases/{lease}/pause", {}).status in (200, 202)
        until(daemon, "parked", "paused")
        daemon.kill()
        machine.sleep(2 * HOURS)
        daemon.start()
        api = daemon.api()
        paused = api.lease(lease)["paused_seconds"]
        assert 2 * HOURS - 1 <= paused < 2 * HOURS + 300
        assert api.post(f"/v1/leases/{lease}/resume", {}).status in (200, 202)
        until(daemon, "parked", "active")
        row, = daemon.json("report")["rows"]
        assert HOURS - 1 <= row["held_mib_seconds"] / 1024 < HOURS + 300
        assert paused <= row["paused_mib_seconds"] / 1024 < paused + 300
        why = daemon.cli("why", "parked", check=0).stdout
        assert "It has held 1.0 GiB on gpu0 for 3 h" in why and "plus 6 h paused" in why
    finally:
        hook.close()


@pytest.mark.parametrize("hours", [5, -5])
def test_a_set_clock_is_no_sleep(start_daemon, machine, hours):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api = daemon.api()
    kept = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 3600})["id"]
    over = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 3})["id"]
    before = api.lease(kept)["expires_at"]
    machine.set_clock(hours * 3600)
    ends(api, over, "expired")  # after its three seconds, not before and not in five hours
    assert at(api.lease(over)["ended_at"]) - at(api.lease(over)["created_at"]) < 60
    assert (api.lease(kept)["state"], api.lease(kept)["expires_at"]) == ("active", before)
    assert not woke(daemon) and "slept" not in daemon.log()
    daemon.restart()
    left = at(daemon.api().lease(kept)["expires_at"]) - max(machine.wall(), machine.wall() - hours * 3600)
    assert daemon.api().lease(kept)["state"] == "active" and 3000 < left <= 3600


@pytest.mark.parametrize("hours", [30, -30])
def test_a_set_clock_ends_no_parked_lease(start_daemon, machine, hours):
    """A jump longer than the time after which a lease counts as orphaned."""
    daemon = start_daemon("1x4GiB", config=CONFIG)
    api, hook = daemon.api(), Hook()
    try:
        lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 3600, "tag": "parked"})["id"]
        assert api.post(f"/v1/leases/{lease}/cooperate", {"way": "webhook", "url": hook.url}).status == 200
        assert api.post(f"/v1/leases/{lease}/pause", {}).status in (200, 202)
        until(daemon, "parked", "paused")
        machine.set_clock(hours * 3600)
        for again in (False, True):
            if again:
                daemon.restart()
                api = daemon.api()
            over = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 1})["id"]
            ends(api, over, "expired")
            assert api.lease(lease)["state"] == "paused"
        assert api.post(f"/v1/leases/{lease}/resume", {}).status in (200, 202)
        until(daemon, "parked", "active")
        assert not woke(daemon)
    finally:
        hook.close()
