# SPDX-License-Identifier: Apache-2.0
"""Leases on several devices, and leases that take less memory instead of waiting."""
import json
import subprocess

import pytest

from tests.support.keeping import ended, lease, queued
from tests.support.sublet import GIB, wait_until


@pytest.fixture
def cards(start_daemon):
    return start_daemon("3x4GiB", config='[lease]\ngrace = "1s"\nlinger = "1s"\n[gpu]\ninterval_idle = "1s"\n')


def uuids(daemon):
    return [device["uuid"] for device in daemon.json("gpus")["devices"]]


def free(daemon):
    return [device["effective_free_bytes"] for device in daemon.json("gpus")["devices"]]


def test_run_sees_all_its_devices_and_no_other(cards):
    done = cards.cli("run", "--vram", "3GiB", "--gpus", "2", "--tag", "pair", "--", "sh", "-c",
                     "echo $CUDA_VISIBLE_DEVICES $SUBLET_LEASE_BYTES")
    assert done.returncode == 0, done.stderr
    assert "3.0 GiB on each of gpu0 and gpu1" in done.stderr
    seen, size = done.stdout.split()
    assert seen.split(",") == uuids(cards)[:2] == lease(cards, "pair")["devices"]
    assert int(size) == 3 * GIB
    ended(cards, "pair")
    wait_until(lambda: len(set(free(cards))) == 1, "all is given back")


def test_a_lease_on_several_devices_waits_for_all_and_keeps_none(cards):
    first = cards.spawn("sublet", "hold", "--vram", "3GiB", "--gpu", "gpu1", "--tag", "first")
    assert first.stdout.readline().strip()
    gang = cards.spawn("sublet", "run", "--vram", "3GiB", "--gpus", "3", "--tag", "gang", "--", "sh", "-c",
                       "echo $CUDA_VISIBLE_DEVICES")
    waiting = queued(cards, "gang")
    assert waiting["devices"] == [] and waiting["device_count"] == 3
    assert waiting["queue"]["device"] == uuids(cards)[1] and waiting["queue"]["short_bytes"] > 0
    assert "on each of 3 devices" in cards.cli("why", "gang").stdout
    # The other devices stay free for every lease meanwhile.
    assert cards.cli("run", "--vram", "3GiB", "--gpus", "2", "--no-wait", "--", "true").returncode == 0
    first.terminate()
    assert gang.wait(timeout=60) == 0
    assert gang.stdout.read().strip().split(",") == uuids(cards)


def test_an_impossible_size_is_refused_at_once(cards):
    done = cards.cli("run", "--vram", "1GiB", "--gpus", "4", "--", "true")
    assert done.returncode == 125 and "needs 4 devices at once; there are 3" in done.stderr, done.stderr
    done = cards.cli("run", "--vram", "5GiB", "--gpus", "2", "--", "true")
    assert "no 2 devices can ever hold that" in done.stderr
    api = cards.api()
    for body in ({"devices": 0}, {"devices": 2, "device": "gpu0"}, {"min_vram_bytes": 2 * GIB}):
        assert api.post("/v1/leases", {"vram_bytes": GIB, **body}).status == 400, body
    assert api.post("/v1/leases", {"vram_bytes": GIB, "devices": 4}).status == 422
    api.close()


def test_a_lease_on_several_devices_survives_a_restart(cards):
    run = cards.spawn("sublet", "run", "--vram", "2GiB", "--gpus", "2", "--tag", "pair", "--", "sh", "-c",
                      "read go; exit 7", stdin=subprocess.PIPE)
    before = wait_until(lambda: next((x for x in cards.leases() if x["state"] == "active"), None), "it runs")
    cards.kill()
    cards.start()
    after = lease(cards, "pair")
    assert after["devices"] == before["devices"] and after["reserved_bytes"] == 4 * GIB
    run.stdin.write("\n")
    run.stdin.flush()
    assert run.wait(timeout=60) == 7


def test_starts_with_less_rather_than_later(cards):
    for gpu in ("gpu0", "gpu1", "gpu2"):
        hold = cards.spawn("sublet", "hold", "--vram", "2GiB", "--gpu", gpu)
        assert hold.stdout.readline().strip()
    room = max(free(cards))
    assert 0 < room < 2 * GIB
    done = cards.cli("run", "--vram", "3GiB", "--min-vram", "1GiB", "--tag", "small", "--", "sh", "-c",
                     "echo $SUBLET_LEASE_BYTES")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == room and "3.0 GiB" in done.stderr
    small = lease(cards, "small")
    assert small["vram_bytes"] == room and small["asked_vram_bytes"] == 3 * GIB and small["min_vram_bytes"] == GIB
    assert cards.cli("run", "--vram", "3GiB", "--min-vram", "2GiB", "--no-wait", "--", "true").returncode == 75
    assert json.loads(cards.cli("ps", "--all", "--json").stdout)["leases"]


def test_run_without_a_size_tells_its_size(cards):
    def size_of(*arguments):
        done = cards.cli("run", *arguments, "--", "sh", "-c", "echo $SUBLET_LEASE_BYTES")
        assert done.returncode == 0, done.stderr
        return int(done.stdout), done.stderr

    whole, said = size_of("--name", "new")
    assert whole == max(free(cards)) and "'new' has not run before: the whole of gpu0" in said
    assert size_of("--name", "new", "--memory", "1GiB")[0] == GIB
    load = cards.cli("run", "--vram", "3GiB", "--name", "known", "--", "simgpu-load", "--alloc", "1GiB",
                     "--seconds", "2")
    assert load.returncode == 0, load.stderr
    peak = wait_until(lambda: next((row["peak_used_bytes"] for row in cards.get("/v1/consumers")["consumers"]
                                    if row["consumer"] == "known"), None), "its peak is remembered")
    size, said = size_of("--name", "known")
    assert size == peak + peak // 10 and "and a tenth more" in said
    size, said = size_of("--name", "known", "--min-vram", "2GiB")
    assert size == 2 * GIB and "asking for 2.0 GiB: as much as --min-vram; 'known' used at most" in said
    assert "a tenth" not in said
