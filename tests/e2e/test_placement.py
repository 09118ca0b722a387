# SPDX-License-Identifier: Apache-2.0
"""CUDA_VISIBLE_DEVICES of the caller as a wish for devices, and leases of a whole device."""
import pytest

from tests.support.sublet import GIB

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
    assert done.stdout.strip().split(",") == uuids(cards) and "asking for" not in done.stderr


def test_a_flag_wins_over_the_wish(cards):
    assert run(cards, "1", "--gpu", "gpu2").stdout.strip() == uuids(cards)[2]
    assert run(cards, "nonsense", "--gpu", "any").returncode == 0


@pytest.mark.parametrize("wish, flags, detail, hint", [
    ("9", (), "CUDA_VISIBLE_DEVICES is '9'; '9' names no device", "the devices are 0 (GPU-"),
    ("0,1", (), "2 of 3 devices", "name one device by --gpu, or unset CUDA_VISIBLE_DEVICES"),
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
