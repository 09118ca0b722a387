# SPDX-License-Identifier: Apache-2.0
"""The figures of a card that `simgpu-ctl card` and a specification set, as `sublet-gpu` reads them through NVML."""

import json
import subprocess

import pytest

import simcards

FIGURES = {
    "temperature": ("temperature_celsius", 81),
    "power": ("power_milliwatts", 250_000),
    "sm_clock": ("sm_clock_mhz", 1410),
    "memory_clock": ("memory_clock_mhz", 1593),
    "pcie_generation": ("pcie_generation", 3),
    "pcie_lanes": ("pcie_lanes", 8),
    "nvlinks": ("nvlinks", 4),
    "ecc_corrected": ("ecc_corrected", 7),
    "ecc_uncorrected": ("ecc_uncorrected", 2),
    "retirement_pending": ("retirement_pending", 1),
    "remapping_pending": ("remapping_pending", 1),
    "remapping_failed": ("remapping_failed", 1),
}


def conditions(cards):
    command = [simcards.BUILD / "bin/sublet-gpu", "snapshot", "--json", "--nvml", simcards.DRIVER / "libnvidia-ml.so.1"]
    said = subprocess.run(command, env=cards.env(), capture_output=True, text=True, timeout=60, check=True).stdout
    return [device["condition"] for device in json.loads(said)["devices"]]


@pytest.mark.parametrize("key", FIGURES)
def test_a_figure_is_set_and_unsupported(cards, key):
    name, value = FIGURES[key]
    (usual,) = conditions(cards)
    cards.ctl("card", 0, f"{key}={value}")
    (now,) = conditions(cards)
    assert now[name] == value and now == {**usual, **now}
    cards.ctl("card", 0, f"{key}=unsupported")
    (now,) = conditions(cards)
    assert name not in now


def test_cards_of_a_specification_differ(make_cards):
    cards = make_cards("1x4GiB,A100,cc=8.0,nvlinks=4+1x4GiB,cc=7.5")
    first, second = conditions(cards)
    assert (first["compute_capability"], first["nvlinks"]) == (80, 4)
    assert second["compute_capability"] == 75 and "nvlinks" not in second


@pytest.mark.parametrize("words", [(), ("0",), ("1", "power=3"), ("0", "power"), ("0", "power=x"), ("0", "frob=1"),
                                   ("0", "cc=8.0.1"), ("0", "xid=unsupported"), ("x", "power=1")])
def test_wrong_figures_are_refused(cards, words):
    done = cards.ctl("card", *words, check=False)
    assert done.returncode == 2 and done.stderr.startswith("simgpu-ctl: ")
