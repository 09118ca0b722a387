# SPDX-License-Identifier: Apache-2.0
"""The links between cards: read from the driver, shown, and preferred by leases on several cards."""
import pytest

from tests.support.keeping import lease

SPEC = "1x4GiB,numa=0+2x4GiB,nvlink=0,numa=1+2x4GiB,switch=3,numa=2"


@pytest.fixture
def cards(start_daemon):
    return start_daemon(SPEC)


def linked(daemon, way):
    return [device["links"][way] for device in daemon.get("/v1/devices")["devices"]]


def test_the_links_are_those_of_the_driver(cards):
    assert linked(cards, "nvlink") == [[], ["gpu2"], ["gpu1"], [], []]
    assert linked(cards, "pcie_switch") == [[], [], [], ["gpu4"], ["gpu3"]]
    assert linked(cards, "numa") == [[], ["gpu2"], ["gpu1"], ["gpu4"], ["gpu3"]]
    table = cards.cli("gpus", "-o", "gpu,nvlink,switch,numa")
    assert table.returncode == 0, table.stderr
    rows = [line.split()[1:] for line in table.stdout.splitlines()]
    assert rows[2:4] == [["gpu2", "-", "gpu2"], ["gpu1", "-", "gpu1"]]


def test_a_lease_on_several_cards_prefers_linked_ones(cards):
    for tag, size, devices, way in [("first", "3GiB", ["gpu1", "gpu2"], "NVLink"),
                                    ("second", "3GiB", ["gpu3", "gpu4"], "a PCIe switch")]:
        held = cards.spawn("sublet", "hold", "--vram", size, "--gpus", "2", "--tag", tag)
        assert held.stdout.readline().strip()
        uuids = {device["uuid"]: device["id"] for device in cards.get("/v1/devices")["devices"]}
        assert [uuids[uuid] for uuid in lease(cards, tag)["devices"]] == devices
        why = cards.cli("why", lease(cards, tag)["id"]).stdout
        assert f"linked by {way}" in why


def test_cards_without_a_word_of_links_are_of_one_node(start_daemon):
    daemon = start_daemon("2x4GiB")
    assert linked(daemon, "nvlink") == linked(daemon, "pcie_switch") == [[], []]
    assert linked(daemon, "numa") == [["gpu1"], ["gpu0"]]
