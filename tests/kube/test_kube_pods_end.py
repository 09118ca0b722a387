# SPDX-License-Identifier: Apache-2.0
"""Pods that end at an odd moment, and a clock that is set while pods run."""
from datetime import datetime, timezone

import pytest

from tests.support.contract import ROOT
from tests.support.kubelet import Pod
from tests.support.preload import preload, shared_library
from tests.support.sublet import GIB, wait_until

DAY = 86_400


def load(gib):
    return ["simgpu-load", "--alloc", f"{int(gib * 1024)}MiB", "--seconds", "600"]


def resident(pod):
    return next((each for each in pod.conditions if each["type"] == "sublet.dev/Resident"), None)


def until_told(pod, status):
    return wait_until(lambda: (found := resident(pod)) and found["status"] == status and found, f"it says {status}")


def until_used(node, pod, gib):
    wait_until(lambda: node.lease(pod)["used_bytes"] > gib * GIB, f"{pod.name} uses its memory")


def test_a_pod_that_is_deleted_while_it_waits(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    first, second = Pod("train", 6, annotations={"sublet.dev/pausable": "no"}), Pod("chat", 5)
    node.kubelet.run(first, *load(1))
    node.kubelet.admit(second)
    node.kubelet.make_sandbox(second)
    with pytest.raises(Exception, match="waits"):
        node.kubelet.start_container(second)
    node.kubelet.remove(second)
    wait_until(lambda: [lease["consumer"] for lease in node.daemon.leases()] == ["train"], "its lease ends")


def test_a_pod_that_is_deleted_while_it_resumes(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    pod, later = Pod("train", 6), Pod("later", 6)
    node.kubelet.run(pod, *load(2))
    until_used(node, pod, 2)
    lease = node.lease(pod)["id"]
    node.daemon.cli("pause", lease, check=0)
    wait_until(lambda: node.lease(pod)["state"] == "paused", "it is paused")
    node.daemon.ctl("fault", "restore-hang")
    node.daemon.spawn("sublet", "resume", lease)
    wait_until(lambda: node.lease(pod)["state"] == "resuming", "it resumes")
    node.kubelet.remove(pod)
    node.daemon.ctl("clear", "restore-hang")
    wait_until(lambda: not node.daemon.leases(), "its lease ends")
    wait_until(lambda: node.daemon.get("/v1/ledger")["parked_bytes"] == 0, "nothing of it is parked")
    node.kubelet.run(later, *load(2))
    until_used(node, later, 2)


def test_a_clock_that_is_set_harms_no_pod(start_node, monkeypatch, tmp_path):
    shift = tmp_path / "shift"
    shift.write_text("0 0")
    monkeypatch.setenv("SUBLET_TEST_ASLEEP", str(shift))
    preload(monkeypatch, shared_library(tmp_path / "shift.so", ROOT / "tests/support/asleep.c"))
    node = start_node("1x4GiB", "--overcommit", "2")
    pod = Pod("train", 4)
    node.kubelet.run(pod, *load(1))
    until_told(pod, "True")
    lease = node.lease(pod)["id"]
    for number, days in enumerate((2, -2)):
        shift.write_text(f"0 {days * DAY}")
        node.daemon.cli("pause", lease, check=0)
        at = datetime.strptime(until_told(pod, "False")["lastTransitionTime"], "%Y-%m-%dT%H:%M:%SZ")
        away = at.replace(tzinfo=timezone.utc) - datetime.now(timezone.utc)
        assert abs(away.total_seconds() - days * DAY) < DAY / 2, "the time of the change is that of the clock"
        other = Pod(f"other-{number}", 1)
        node.kubelet.run(other, *load(0.125))
        until_told(other, "True")
        node.daemon.cli("resume", lease, check=0)
        until_told(pod, "True")
        assert node.lease(pod)["id"] == lease and len(node.daemon.leases()) == 2 + number
