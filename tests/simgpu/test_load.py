# SPDX-License-Identifier: Apache-2.0
"""simgpu-load on simulated cards: it succeeds without faults, and reports every fault."""

import pathlib
import subprocess

import pytest

import simcards
from simcards import GIB, MIB
from tests.support.preload import shared_library

SMALL = ["--alloc", "64MiB", "--step", "16MiB", "--seconds", "100ms"]


def test_a_successful_run_reports_its_work(cards):
    status, said = cards.load(*SMALL, "--seed", 7).end()
    assert status == 0 and said["ok"] and said["error"] is None
    assert said["filled_bytes"] == said["verified_bytes"] == 64 * MIB
    assert said["wrong_words"] == 0 and said["launches"] > 0 and said["longest_stall_ms"] >= 0
    assert said["seed"] == 7 and said["ended_by"] == "time" and said["device"].startswith("Simulated")
    assert said["compute_ms"] >= 100, "--seconds counts from the end of the fill"
    shown = cards.show()
    assert shown["processes"] == [] and shown["devices"][0]["used_bytes"] == 0 and shown["violations"] == 0


def test_the_text_form_is_one_line_on_stdout(cards):
    done = subprocess.run([simcards.LOAD, *SMALL], env=cards.env(), capture_output=True, text=True)
    assert (
        done.returncode == 0
        and done.stdout.count("\n") == 1
        and done.stdout.startswith("right: 64.0 MiB filled on")
    )


def test_verify_checks_while_it_computes(cards):
    status, said = cards.load("--alloc", "32MiB", "--seconds", "300ms", "--verify").end()
    assert status == 0 and said["verified_bytes"] > 32 * MIB


def test_dense_contents_and_odd_sizes_are_right(cards):
    for arguments in (
        ["--dense"],
        ["--alloc", str(5 * MIB + 4096)],
        ["--alloc", "4096"],
        ["--step", str(3 * MIB)],
    ):
        status, said = cards.load(*SMALL, *arguments).end()
        assert status == 0 and said["verified_bytes"] == said["filled_bytes"], arguments


def test_busy_zero_launches_nothing_while_computing(cards):
    launches = [cards.load(*SMALL, "--busy", percent).end()[1]["launches"] for percent in (0, 100)]
    assert launches[0] < launches[1]


def test_rate_holds_the_fill_back(cards):
    _, said = cards.load(*SMALL, "--rate", "256MiB/s").end()
    assert said["fill_ms"] >= 250


@pytest.mark.parametrize("signal, name", [(simcards.SIGTERM, "SIGTERM"), (simcards.SIGINT, "SIGINT")])
def test_a_signal_ends_it_early_checked_and_freed(cards, signal, name):
    status, said = cards.load("--alloc", "64MiB", "--seconds", "1h").wait_filled().end(signal)
    assert status == 128 + signal and said["ok"] and said["ended_by"] == name
    assert said["verified_bytes"] == 64 * MIB
    assert cards.show()["devices"][0]["used_bytes"] == 0


def test_too_much_is_refused_with_the_numbers(cards):
    status, said = cards.load("--alloc", "5GiB", "--seconds", 1).end()
    assert status == 1 and not said["ok"]
    for part in ("256 MiB more", "of 5.0 GiB", "Simulated GPU 4GiB", "free of", "OUT_OF_MEMORY"):
        assert part in said["error"], said["error"]
    assert 0 < said["filled_bytes"] < 4 * GIB
    assert cards.show()["devices"][0]["used_bytes"] == 0


@pytest.fixture(scope="module")
def corrupting_driver(tmp_path_factory):
    library = tmp_path_factory.mktemp("corrupt") / "libcuda.so.1"
    return shared_library(library, pathlib.Path(__file__).with_name("corrupt.c")).parent


@pytest.mark.parametrize("contents", [[], ["--dense"]])
@pytest.mark.parametrize("offset", [0, 2 * MIB - 1, 3 * MIB + 12345, 4 * MIB - 1])
def test_one_flipped_bit_is_found(cards, corrupting_driver, contents, offset):
    load = cards.load(
        "--alloc", "4MiB", "--seconds", 0, "--seed", 5, *contents,
        LD_LIBRARY_PATH=str(corrupting_driver), CORRUPT_DRIVER=str(simcards.DRIVER / "libcuda.so.1"),
        CORRUPT_OFFSET=str(offset),
    )  # fmt: skip
    status, said = load.end()
    assert status == 1 and not said["ok"] and said["error"] is None
    assert said["wrong_words"] == 1 and said["verified_bytes"] == 4 * MIB


@pytest.mark.parametrize("fault", ["alloc-fail", "device-lost", "ecc"])
def test_faults_of_the_driver_end_it_with_an_error(cards, fault):
    load = cards.load("--alloc", "512MiB", "--rate", "512MiB/s", "--step", "16MiB", "--seconds", 5)
    cards.fault(fault)
    status, said = load.end()
    assert status == 1 and "CUDA_ERROR" in said["error"]


def test_without_a_card_or_a_driver_it_says_so(cards, tmp_path):
    status, said = cards.load(*SMALL, CUDA_VISIBLE_DEVICES="").end()
    assert status == 1 and said["error"]
    status, said = cards.load(*SMALL, LD_LIBRARY_PATH=str(tmp_path)).end()
    assert status == 1 and "libcuda.so.1" in said["error"]


@pytest.mark.parametrize(
    "arguments, part",
    [
        ([], "--alloc"),
        (["--alloc", "8Q"], "8Q"),
        (["--alloc", "1GiB", "--on-pause", "sometimes"], "sometimes"),
        (["--alloc", "1GiB", "--retry"], "unknown option"),
    ],
)
def test_wrong_usage_is_refused(cards, arguments, part):
    done = subprocess.run([simcards.LOAD, *arguments], env=cards.env(), capture_output=True, text=True)
    assert done.returncode == 2 and part in done.stderr


def test_twenty_gib_of_sparse_vram_take_little_ram(make_cards):
    cards = make_cards("1x24GiB")
    load = cards.load("--alloc", "20GiB", "--seconds", 0).wait_filled()
    status, said = load.end()
    assert status == 0 and said["filled_bytes"] == said["verified_bytes"] == 20 * GIB
    assert load.max_rss_bytes < 1 * GIB
