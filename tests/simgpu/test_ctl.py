# SPDX-License-Identifier: Apache-2.0
"""simgpu-ctl: making, showing and controlling the cards, and its refusals."""

import re
import subprocess

import pytest

import simcards


def test_create_is_idempotent_and_refuses_other_cards_by_name(make_cards):
    cards = make_cards("2x4GiB,Toy")
    before = cards.show()
    cards.ctl("create", "2x4GiB,Toy")
    assert cards.show()["devices"] == before["devices"]
    done = cards.ctl("create", "1x8GiB", check=False)
    assert done.returncode == 1
    assert "2x4GiB,Simulated Toy" in done.stderr and "1x8GiB" in done.stderr
    assert cards.show()["devices"] == before["devices"]


def test_create_compares_the_settings_that_it_names(make_cards):
    cards = make_cards("1x4GiB,context_bytes=64MiB")
    cards.ctl("create", "1x4GiB,context_bytes=64MiB")
    assert cards.ctl("create", "1x4GiB,context_bytes=32MiB", check=False).returncode == 1


@pytest.mark.parametrize(
    "spec", ["", "0x4GiB", "4GiB", "1x", "1x1", "17x4GiB", "1x4GiB,frob=1", "1x4GiB,reserve=8GiB"]
)
def test_create_refuses_a_wrong_specification(tmp_path, spec):
    done = subprocess.run([simcards.CTL, "--dir", tmp_path, "create", spec], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("simgpu-ctl: ")
    assert not (tmp_path / "simgpu/cards").exists()


def test_show_has_every_part(cards):
    shown = cards.show()
    assert set(shown) == {
        "dir",
        "devices",
        "processes",
        "violations",
        "violations_by_kind",
        "calls",
        "settings",
        "faults",
    }
    (device,) = shown["devices"]
    assert device["name"].startswith("Simulated") and device["uuid"].startswith("GPU-")
    assert device["total_bytes"] == 4 * simcards.GIB and device["used_bytes"] == 0
    assert device["free_bytes"] == device["total_bytes"] - device["driver_reserved_bytes"]
    assert shown["processes"] == [] and shown["violations"] == 0
    text = cards.ctl("show").stdout
    assert device["uuid"] in text and "0 violations" in text


def test_settings_are_set_shown_and_checked(cards):
    cards.ctl("set", "link_bandwidth", "1GiB/s")
    assert cards.show()["settings"]["link_bandwidth"] == simcards.GIB
    done = cards.ctl("set", "link_bandwith", "1", check=False)
    assert done.returncode == 2 and "link_bandwidth" in done.stderr
    for key, value in [
        ("copy_engines", "3"),
        ("driver_version", "9"),
        ("multiprocessors", "-1"),
        ("call_ns", "x"),
    ]:
        done = cards.ctl("set", key, value, check=False)
        assert done.returncode == 2 and value in done.stderr, (key, value)


def test_help_has_a_line_for_each_fault_of_the_closed_list():
    text = subprocess.run([simcards.CTL, "--help"], capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"^  ([a-z-]+) {2,}\S", text.split("Faults:\n")[1].split("\nSettings:")[0], re.M)
    assert listed == simcards.closed_list_of_faults()


def test_faults_are_set_shown_and_cleared(cards):
    cards.fault("alloc-fail", "--device", 0, "--pid", 77, "--nth", 3)
    cards.fault("bandwidth", "--bandwidth", "1GiB/s")
    cards.fault("nvml-missing-pid", "--pid", 99)
    shown = {fault["name"]: fault for fault in cards.show()["faults"]}
    assert {key: shown["alloc-fail"][key] for key in ("device", "pid", "nth")} == {
        "device": 0,
        "pid": 77,
        "nth": 3,
    }
    assert shown["bandwidth"]["argument"] == simcards.GIB
    assert shown["nvml-missing-pid"]["argument"] == 99 and shown["nvml-missing-pid"]["pid"] is None
    cards.ctl("clear", "bandwidth")
    assert {fault["name"] for fault in cards.show()["faults"]} == {"alloc-fail", "nvml-missing-pid"}
    cards.ctl("clear")
    assert cards.show()["faults"] == []


def test_a_fault_with_a_duration_ends_by_itself(cards):
    cards.fault("alloc-fail", "--duration", "1ms")
    while cards.show()["faults"]:
        pass


@pytest.mark.parametrize(
    "arguments, nearest",
    [
        (["frob"], ""),
        (["shwo"], "show"),
        (["fault"], "--help"),
        (["fault", "nvml-eror"], "nvml-error"),
        (["fault", "alloc-fail", "--devcie", "0"], "--device"),
        (["fault", "alloc-fail", "--device"], "--device"),
        (["fault", "alloc-fail", "--device", "99"], "99"),
        (["fault", "alloc-fail", "--nth", "-1"], "-1"),
        (["fault", "alloc-fail", "--duration", "0"], "--duration"),
        (["fault", "bandwidth"], "--bandwidth"),
        (["fault", "alloc-fail", "--code", "3"], "nvml-error"),
        (["clear", "eec"], "ecc"),
        (["clear", "ecc", "x"], "x"),
        (["set", "call_ns"], "VALUE"),
        (["show", "--jsno"], "--json"),
        (["create"], "2x24GiB"),
        ([], "create"),
    ],
)
def test_wrong_usage_is_refused_with_the_right_form(cards, arguments, nearest):
    done = cards.ctl(*arguments, check=False)
    assert done.returncode == 2 and not done.stdout
    assert nearest in done.stderr


def test_a_failure_midway_tells_the_progress(cards):
    cards.fault("checkpoint-fail", "--after", 50, "--code", 2)
    (fault,) = cards.show()["faults"]
    assert fault["after"] == 50 and fault["argument"] == 2
    for wrong in (["alloc-fail", "--after", 5], ["restore-fail", "--after", 101]):
        done = cards.ctl("fault", *wrong, check=False)
        assert done.returncode == 2 and "--after" in done.stderr


def test_cards_are_found_by_the_environment_and_by_nothing_else(cards, tmp_path):
    shown = subprocess.run([simcards.CTL, "show"], env=cards.env(), capture_output=True, text=True)
    assert shown.returncode == 0 and cards.show()["devices"][0]["uuid"] in shown.stdout
    environment = {key: value for key, value in cards.env().items() if key != "SIMGPU_DIR"}
    nowhere = subprocess.run([simcards.CTL, "show"], env=environment, capture_output=True, text=True)
    assert nowhere.returncode == 2 and "SIMGPU_DIR" in nowhere.stderr
    empty = subprocess.run(
        [simcards.CTL, "--dir", tmp_path / "empty", "show"], capture_output=True, text=True
    )
    assert empty.returncode == 1 and "create" in empty.stderr


def test_concurrent_creates_make_one_set_of_cards(tmp_path):
    racers = [
        subprocess.Popen(
            [simcards.CTL, "--dir", tmp_path, "create", "1x4GiB"], stderr=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]
    for racer in racers:
        assert racer.wait() == 0, racer.stderr.read()
        racer.stderr.close()
