# SPDX-License-Identifier: Apache-2.0
"""The device plugin of sublet-kube, with a fake kubelet."""
import grpc
import pytest

from tests.support.kubelet import Pod
from tests.support.sublet import GIB, MIB, wait_until


def load(gib, seconds=600):
    return ["simgpu-load", "--alloc", f"{int(gib * 1024)}MiB", "--seconds", str(seconds), "--verify"]


def test_a_pod_gets_a_lease_of_its_units(node):
    pod = Pod("smoke", 3, annotations={"sublet.dev/pausable": "driver"})
    program = node.kubelet.run(pod, *load(1))
    lease = node.lease(pod)
    assert [lease[name] for name in ("state", "vram_bytes", "tenant", "tag", "consumer", "tier", "pausable")] == [
        "active", 3 * 512 * MIB, "vision", "vision.smoke", "smoke", "standard", "driver"], lease
    wait_until(lambda: node.lease(pod)["used_bytes"] > GIB, "the program's memory is the lease's")
    assert node.daemon.get("/v1/status")["unleased_processes"] == []
    assert not any("SUBLET_HOST" in handout.envs for handout in pod.handouts), "no way to the daemon"
    node.kubelet.remove(pod)
    assert program.wait(60) != 0
    wait_until(lambda: not node.daemon.leases(), "the lease ends with the pod")


def test_an_init_container_gets_the_lease_of_the_pod(node):
    asked = {"name": "fetch", "resources": {"limits": {"sublet.dev/vram-512mi": "3"}}}
    pod, other = (Pod(name, 3, init=[0], initContainers=[asked]) for name in ("train", "chat"))
    pod.phase = other.phase = "Pending"
    node.kubelet.admit(pod)
    node.kubelet.make_sandbox(pod)
    node.kubelet.pods.append(node.kubelet.add(other))
    with pytest.raises(grpc.RpcError, match="lists no pod"):  # two pods can be meant
        node.kubelet.start_container(pod)
    other.phase = "Running"
    node.kubelet.start_container(pod)
    assert node.lease(pod)["vram_bytes"] == 3 * 512 * MIB


def test_units_follow_the_factor_and_the_cards(start_node):
    node = start_node("2x4GiB", "--overcommit", "2")
    cards = node.daemon.get("/v1/devices")["devices"]
    expected = {card["uuid"]: int(card["capacity_bytes"] * 2 / (512 * MIB)) for card in cards}
    units = [id.split("::")[0] for id in node.kubelet.healthy()]
    assert {uuid: units.count(uuid) for uuid in units} == expected


def test_more_urgent_pods_pause_others(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    node.api.add_class("urgent", 100000)
    first, second = Pod("train", 6), Pod("chat", 5, priorityClassName="urgent")
    held = node.kubelet.run(first, *load(2, 3))
    wait_until(lambda: node.lease(first)["used_bytes"] > 2 * GIB, "the first pod uses its memory")
    urgent = node.kubelet.run(second, *load(2))
    assert node.lease(second)["tier"] == "interactive"
    assert node.lease(first)["state"] == "paused" and held.poll() is None
    node.kubelet.remove(second)
    assert urgent.wait(60) != 0
    out, _ = held.communicate(timeout=60)
    assert held.returncode == 0 and " 0 wrong words" in out, out


def test_a_pod_that_waits_is_told_so_and_starts_later(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    first, second = Pod("train", 6, annotations={"sublet.dev/pausable": "no"}), Pod("chat", 6)
    node.kubelet.run(first, *load(2))
    node.kubelet.admit(second)
    node.kubelet.make_sandbox(second)
    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.start_container(second)
    assert "waits" in refused.value.details() and "gpu0" in refused.value.details(), refused.value.details()
    waiting = node.lease(second)
    assert waiting["state"] == "queued", waiting
    node.kubelet.remove(first)
    node.kubelet.started(second)
    assert node.lease(second)["id"] == waiting["id"], "the place in the queue was kept"


def test_a_pod_that_is_deleted_while_it_waits_leaves_the_queue(start_node):
    node = start_node("1x4GiB", "--overcommit", "2")
    first, second = Pod("train", 6, annotations={"sublet.dev/pausable": "no"}), Pod("chat", 6)
    node.kubelet.run(first, *load(2))
    node.kubelet.admit(second)
    node.kubelet.make_sandbox(second)
    with pytest.raises(grpc.RpcError):
        node.kubelet.start_container(second)
    node.kubelet.remove(second)
    wait_until(lambda: len(node.daemon.leases()) == 1, "the second lease ends")
