# SPDX-License-Identifier: Apache-2.0
"""The past of a daemon on other devices (`simulate --from-history`), and leases that nobody has asked for yet (`plan`).
Neither changes anything.
"""
import json

import pytest

from tests.support.sublet import GIB, wait_until

QUICK = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n[placement]\npolicy = "spread"\n'


@pytest.fixture
def daemon(start_daemon):
    return start_daemon("1x4GiB", config=QUICK)


def known(daemon):
    """The leases, which a request could have changed."""
    return [(lease["id"], lease["state"]) for lease in daemon.api().get("/v1/leases?all=true")["leases"]]


def what_if(daemon, *words, check=0):
    done = daemon.cli("simulate", "--from-history", "7d", "--json", *words, check=check)
    return json.loads(done.stdout), done.stderr


def has(figures, size):
    """Whether the simulated devices have so much memory, up to a little that the driver reserves."""
    return size - GIB // 4 < figures["capacity_bytes"] <= size


@pytest.fixture
def past(daemon):
    """Two programs that ended, one that runs, and a request that was withdrawn."""
    for _ in range(2):
        daemon.cli("run", "--vram", "1GiB", "--name", "train", "--", "true", check=0)
    api = daemon.api()
    # The bytes of an ended lease are charged until a reading shows that they are gone.
    wait_until(lambda: all(lease["state"] == "ended" and not lease["settling"]
                           for lease in api.get("/v1/leases?all=true")["leases"]), "the programs are settled")
    holder = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "consumer": "serve"})
    assert holder.status == 201
    waiter = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    assert waiter.status == 202
    assert api.post(f"/v1/leases/{waiter['id']}/release", {}).status == 200
    return daemon


def test_the_past_runs_again_on_the_daemons_own_devices_and_keys(past):
    before = known(past)
    figures, said = what_if(past)
    assert figures["setting"] == "spread" and has(figures, 4 * GIB)
    assert figures["jobs"] == {"done": 3, "refused": 0, "ended": 0, "unfinished": 0}
    notes = figures["history"]["notes"]
    for words in ("nothing is known of the", "1 lease never got memory", "1 lease has not ended"):
        assert any(words in note for note in notes), (words, notes)
        assert words in said
    assert figures["history"]["from"] < figures["history"]["to"] and figures["history"]["gap_seconds"] >= 0
    assert known(past) == before
    table = past.cli("simulate", "--from-history", "7d", check=0).stdout
    assert "jobs done" in table and table.splitlines()[0].split() == ["spread"]


def test_one_more_device_another_key_and_one_user_less(past):
    figures, _ = what_if(past, "--add-gpu", "8GiB", "--add-gpu", "2GiB", "--set", "placement.policy=pack")
    assert has(figures, 14 * GIB) and figures["setting"] == "pack"
    refused = past.cli("simulate", "--from-history", "7d", "--without-user", "rooot", check=1)
    assert "there is no job of this user" in refused.stderr and "root" in refused.stderr
    assert "no job is left" in past.cli("simulate", "--from-history", "7d", "--without-user", "root", check=1).stderr
    assert "--add-gpu huge" in past.cli("simulate", "--from-history", "7d", "--add-gpu", "huge", check=1).stderr
    assert "there is no such key" in past.cli("simulate", "--from-history", "7d", "--set", "a=b", check=78).stderr


def test_without_a_past_or_a_daemon_there_is_nothing_to_simulate(daemon):
    assert "knows of no lease" in daemon.cli("simulate", "--from-history", "7d", check=1).stderr
    daemon.kill()
    assert daemon.cli("simulate", "--from-history", "7d").returncode == 69


def planned(daemon, *words, check=0):
    return json.loads(daemon.cli("plan", "--json", *words, check=check).stdout)["planned"]


def test_a_plan_tells_the_start_of_each_lease_and_who_yields(daemon):
    assert [its["starts_in_ms"] for its in planned(daemon, "--vram", "1GiB", "--count", "3")] == [0, 0, 0]
    run = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tier", "batch", "--name", "train", "--", "simgpu-load",
                       "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: any(lease["used_bytes"] > 2 * GIB for lease in daemon.leases()), "it uses its memory")
    before = known(daemon)
    first, second = planned(daemon, "--vram", "2GiB", "--tier", "interactive", "--count", "2", check=75)
    assert [first["lease"], second["lease"]] == ["lease-2", "lease-3"]
    assert first["starts_in_ms"] > 0 and len(first["devices"]) == 1 and first["basis"]
    assert [(its["lease"], its["consumer"], its["ends"]) for its in first["yields"]] == [("lease-1", "train", False)]
    assert second["starts_in_ms"] is None and second["basis"]
    text = daemon.cli("plan", "--vram", "2GiB", "--tier", "interactive", check=0).stdout
    assert text.startswith("lease-2: starts in about") and "lease-1 (train, root, batch) is paused" in text
    assert known(daemon) == before
    run.terminate()
    run.wait(timeout=60)


def test_a_plan_that_can_never_start_is_refused(daemon):
    refused = daemon.cli("plan", "--vram", "80GiB", "--count", "2")
    assert refused.returncode not in (0, 75) and "80" in refused.stderr
    assert daemon.cli("plan", "--vram", "1GiB", "--count", "0").returncode == 2
    api = daemon.api()
    assert api.post("/v1/leases", {"vram_bytes": GIB, "count": 2}).status == 400, "without dry_run"
    assert api.post("/v1/leases", {"vram_bytes": GIB, "dry_run": True, "count": 101}).status == 400


def test_limits_count_all_leases_of_a_plan(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK + "[limits]\nleases = 2\n")
    assert len(planned(daemon, "--vram", "1GiB", "--count", "2")) == 2
    refused = daemon.cli("plan", "--vram", "1GiB", "--count", "3")
    assert refused.returncode == 75 and "3 more are beyond the limit of 2" in refused.stderr


def test_a_plan_tells_when_a_lease_that_is_ended_has_left(daemon):
    run = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tier", "spot", "--pausable", "no", "--name", "sweep", "--",
                       "simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: any(lease["used_bytes"] > 2 * GIB for lease in daemon.leases()), "it uses its memory")
    its, = planned(daemon, "--vram", "2GiB", "--tier", "interactive")
    assert [(each["lease"], each["ends"], each["frees_in_ms"]) for each in its["yields"]] == [("lease-1", True, 30000)]
    assert its["starts_in_ms"] == 30000 and "(sweep, root) is ended for it, and has its grace time" in its["basis"]
    run.terminate()
    run.wait(timeout=60)
