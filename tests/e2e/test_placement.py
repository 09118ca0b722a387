# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES of the caller as a wish for devices, and leases of a whole device."""
import json

import pytest

from tests.support.keeping import lease, queued
from tests.support.sublet import GIB, wait_until

SEEN = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


@pytest.fixture
def cards(start_daemon):
    return start_daemon("3x4GiB")


def uuids(daemon):
    return [device["uuid"] for device in daemon.json("gpus")["devices"]]


def run(daemon, wish, *flags, vram="1GiB"):
    return daemon.cli("run", "--vram", vram, *flags, *SEEN, CUDA_VISIBLE_DEVICES=wish)


def test_a_wish_names_the_device(cards):
    all_uuids = uuids(cards)
    for wish in ("1", all_uuids[1], "1,-1"):
        done = run(cards, wish)
        assert done.returncode == 0 and done.stdout.strip() == all_uuids[1], done.stderr
        assert f"CUDA_VISIBLE_DEVICES is '{wish}': asking for gpu1" in done.stderr


def test_a_wish_for_all_devices_restricts_nothing(cards):
    done = run(cards, "2,1,0", "--gpus", "3")
    assert done.stdout.strip().split(",") == uuids(cards)[::-1] and "asking for" not in done.stderr


def test_a_flag_wins_over_the_wish(cards):
    assert run(cards, "1", "--gpu", "gpu2").stdout.strip() == uuids(cards)[2]
    assert run(cards, "nonsense", "--gpu", "any").returncode == 0


@pytest.mark.parametrize("wish, flags, detail, hint", [
    ("9", (), "CUDA_VISIBLE_DEVICES is '9'; '9' names no device", "the devices are 0 (GPU-"),
    ("0,1", ("--gpus", "3"), "fewer than --gpus 3", "name more devices"),
    ("", (), "so that the program may use no device", "unset CUDA_VISIBLE_DEVICES"),
    ("-1", (), "so that the program may use no device", "unset CUDA_VISIBLE_DEVICES"),
    ("NoDevFiles", (), "so that the program may use no device", "unset CUDA_VISIBLE_DEVICES"),
])
def test_a_wish_that_cannot_be_met_is_refused(cards, wish, flags, detail, hint):
    done = run(cards, wish, *flags)
    assert done.returncode == (125 if "names no device" in detail else 2) and done.stdout == ""
    assert detail in done.stderr and hint in done.stderr, done.stderr
    assert cards.get("/v1/leases?all=true")["leases"] == []


def test_the_variable_that_a_lease_set_is_no_wish(cards):
    inner = "sublet run --vram 3GiB -- sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    done = cards.cli("run", "--vram", "1GiB", "--gpu", "gpu0", "--", "sh", "-c", inner)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in uuids(cards) and "asking for gpu0" not in done.stderr


def test_all_is_what_an_empty_device_can_hold(start_daemon):
    daemon = start_daemon("1x4GiB+1x8GiB")
    small, large = sorted(device["capacity_bytes"] for device in daemon.json("gpus")["devices"])
    assert large > small > 3 * GIB
    bytes_of = ("--", "sh", "-c", "echo $SUBLET_LEASE_BYTES")
    for flags, size in (((), large), (("--gpus", "2"), small), (("--gpu", "gpu0"), small)):
        done = daemon.cli("run", "--vram", "all", *flags, *bytes_of, check=0)
        assert int(done.stdout) == size and "the whole of gpu" in done.stderr
    holder = daemon.spawn("sublet", "hold", "--vram", "all", "--tag", "holder", "--gpu", "1")
    assert holder.stdout.readline().startswith("lease-")
    assert daemon.get("/v1/leases/holder")["vram_bytes"] == large
    assert daemon.cli("run", "--vram", "all", "--gpu", "gpu1", "--no-wait", *bytes_of).returncode == 75


def test_a_size_that_never_fits_names_all(cards):
    for flags in ((), ("--gpu", "gpu0")):
        done = run(cards, "0,1,2", *flags, vram="64GiB")
        assert done.returncode == 125 and "or less, or for `--vram all`" in done.stderr


# ------------------------------------------------------------------------------------------------ sets of devices

@pytest.fixture
def four(start_daemon):
    return start_daemon("4x4GiB", config='[gpu]\ninterval_idle = "1s"\n[lease]\nlinger = "1s"\n')


def seen_by(daemon, *flags, **variables):
    done = daemon.cli("run", "-q", "--vram", "3GiB", *flags, *SEEN, check=0, **variables)
    return done.stdout.strip().split(",")


def test_a_lease_gets_as_many_of_the_named_devices_as_it_wants(four):
    card = uuids(four)
    holder = four.spawn("sublet", "hold", "--vram", "3GiB", "--gpu", "gpu3", "--tag", "holder")
    assert holder.stdout.readline().strip()
    for flags, got in ((["gpu1,gpu3"], [1]), (["3, 1"], [1]), (["gpu0,gpu2,gpu3", "--gpus", "2"], [0, 2]),
                       ([f"{card[3]},{card[2]},1", "--gpus", "2"], [2, 1])):
        assert seen_by(four, "--gpu", *flags) == [card[index] for index in got], flags
    assert seen_by(four, CUDA_VISIBLE_DEVICES="3,1") == [card[1]]
    assert seen_by(four, "--gpus", "2", CUDA_VISIBLE_DEVICES="2,3,0") == [card[2], card[0]]
    done = run(four, "1,3", vram="3GiB")
    assert "CUDA_VISIBLE_DEVICES is '1,3': asking for 1 of gpu1, gpu3" in done.stderr
    # A set of as many devices as the lease wants is waited for as a whole.
    pair = four.spawn("sublet", "run", "--vram", "3GiB", "--gpu", "gpu1,gpu3", "--gpus", "2", "--tag", "pair", *SEEN)
    waiting = queued(four, "pair")
    assert waiting["wanted_device"] is None and waiting["wanted_devices"] == [card[1], card[3]]
    assert waiting["queue"]["device"] == card[3]
    why = four.cli("why", "pair").stdout
    assert "on each of 2 devices among gpu1 and gpu3" in why and "for 3.0 GiB on each of 2 of gpu1 and gpu3" in why
    refused = four.cli("run", "--vram", "3GiB", "--gpu", "gpu3,3", "--no-wait", "--", "true")
    assert refused.returncode == 75 and "is free on gpu3" in refused.stderr
    holder.terminate()
    assert pair.wait(60) == 0 and pair.stdout.read().strip().split(",") == [card[1], card[3]]


def test_previews_holds_sessions_and_programs_take_a_set(four):
    card = uuids(four)
    for index in (1, 3):
        assert four.spawn("sublet", "hold", "--vram", "2GiB", "--gpu", card[index]).stdout.readline().strip()
    told = four.cli("run", "--json", "--vram", "3GiB", "--gpu", "gpu1,gpu2", "--dry-run", "--", "true", check=0)
    preview = json.loads(told.stdout)
    assert preview["would"] == "start" and preview["devices"] == [card[2]]
    would_wait = four.cli("run", "--vram", "3GiB", "--gpu", "gpu1,gpu3", "--dry-run", "--", "true")
    assert would_wait.returncode == 75
    hold = four.spawn("sublet", "hold", "--vram", "3GiB", "--gpu", "gpu3,gpu0", "--tag", "held")
    assert hold.stdout.readline().strip() and lease(four, "held")["devices"] == [card[0]]
    session = four.cli("session", "open", "--vram", "3GiB", "--gpu", "gpu1,gpu2", check=0).stdout.split(":")[0]
    assert four.get(f"/v1/sessions/{session}")["devices"] == ["gpu2"]
    four.cli("session", "close", session, check=0)
    four.cli("run", "--detach", "--vram", "3GiB", "--gpu", "gpu1,gpu2", "--tag", "program", "--", "sleep", "600",
             check=0)
    wait_until(lambda: lease(four, "program")["devices"] == [card[2]], "the program has its device")


@pytest.mark.parametrize("device, detail", [
    ("gpu1,gpu9", "device 'gpu9' does not exist"), ("gpu1,", "is empty"), ("gpu1,any", "'any' stands in a list"),
    ("gpu1,cuda:2", "framework"),
])
def test_a_set_with_a_name_of_no_device_is_refused(cards, device, detail):
    answer = cards.api().post("/v1/leases", {"vram_bytes": GIB, "device": device})
    assert answer.status in (400, 404) and detail in answer.body["detail"], answer.body
