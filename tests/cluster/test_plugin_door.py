# SPDX-License-Identifier: Apache-2.0
"""Pods that ask for units of the device plugin, on a real node with a simulated card of 10 GiB, declared twice."""
import os
import re
import signal

from tests.support.kube_sublet import UNIT, UNIT_BYTES, agent_pid, pod, priority_class, until_units
from tests.support.sublet import GIB, wait_until


def restarts(cluster, name):
    return sum(each["restartCount"] for each in cluster.pod(name)["status"]["containerStatuses"])


def until_used(cluster, name, gib, namespace="default"):
    wait_until(lambda: (lease := cluster.lease_of(name, namespace)) and lease["used_bytes"] >= gib * GIB and lease,
               f"{name} has filled its memory")


def test_the_node_declares_its_cards_twice(sublet):
    assert 280 <= sublet.allocatable(UNIT) <= 320, "10 GiB twice, in units of 64 MiB, without the reserve of the card"
    assert UNIT in sublet.kubectl("describe", "node", "n1").stdout


def test_a_pod_of_three_units_has_a_lease_and_sees_its_card(sublet):
    made = pod("three", units=3)
    made["spec"]["containers"][0]["command"][-1] = "env; exec simgpu-load --alloc 128MiB --seconds 600 --verify"
    sublet.apply(made)
    sublet.until_phase("three", "Running")
    lease = sublet.until_lease("three", "active")
    assert (lease["vram_bytes"], lease["tenant"]) == (3 * UNIT_BYTES, "default"), lease
    until_used(sublet, "three", 0.125)
    assert re.search(r"CUDA_VISIBLE_DEVICES=\S*" + re.escape(lease["devices"][0]), sublet.log_of("three"))
    sublet.delete_pod("three")
    wait_until(lambda: sublet.lease_of("three") is None, "the lease ends with its pod")


def test_the_smoke_test_gets_what_it_asks_for_and_can_be_paused(sublet):
    sublet.kubectl("run", "gpu-smoke-test", "--image=gpu-test-image", "--env=GPU_MEM=512M")
    sublet.until_phase("gpu-smoke-test", "Running")
    lease = sublet.until_lease("gpu-smoke-test", "active")
    assert lease["vram_bytes"] == GIB // 2, lease
    wait_until(lambda: "filled 448 MiB" in sublet.log_of("gpu-smoke-test"), "it has its memory")
    sublet.daemon.cli("pause", lease["id"], check=0)
    sublet.until_lease("gpu-smoke-test", "paused")
    assert sublet.phase("gpu-smoke-test") == "Running"
    sublet.daemon.cli("resume", lease["id"], check=0)
    sublet.until_lease("gpu-smoke-test", "active")


def test_a_namespace_has_a_quota_in_bytes(sublet):
    sublet.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-b"}})
    sublet.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "vram", "namespace": "team-b"},
                  "spec": {"hard": {f"requests.{UNIT}": "10"}}})
    wait_until(lambda: sublet.api.get("/api/v1/namespaces/team-b/serviceaccounts/default"), "pods may be made")
    wait_until(lambda: (sublet.api.get("/api/v1/namespaces/team-b/resourcequotas/vram")["status"]).get("used"),
               "the quota is counted")
    sublet.api.create("/api/v1/namespaces/team-b/pods", pod("first", units=8))
    status, answer = sublet.api.call("POST", "/api/v1/namespaces/team-b/pods", pod("second", units=8))
    assert status == 403 and f"requests.{UNIT}=8" in answer["message"] and "limited" in answer["message"], answer
    lease = sublet.until_lease("first", "active", namespace="team-b")
    assert lease["tenant"] == "team-b"


def test_the_labels_of_a_namespace_are_its_tenant(sublet):
    labels = {"sublet.dev/quota": "1Gi", "sublet.dev/weight": "2", "sublet.dev/tier": "batch"}
    sublet.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-c", "labels": labels}})
    wait_until(lambda: sublet.api.get("/api/v1/namespaces/team-c/serviceaccounts/default"), "pods may be made")
    sublet.api.create("/api/v1/namespaces/team-c/pods", pod("first", units=8))
    assert sublet.until_lease("first", "active", namespace="team-c")["tier"] == "batch"
    row, = (row for row in sublet.daemon.json("tenant", "ls")["tenants"] if row["name"] == "team-c")
    assert (row["entry"], row["quota_bytes"], row["weight"]) == (True, GIB, 2), row


def test_a_pod_of_a_lower_class_is_paused_and_goes_on_afterwards(sublet):
    sublet.apply(priority_class("low", 10, tier="batch"), priority_class("high", 2000, tier="interactive"))
    sublet.apply(pod("train", units=120, gib=7, priorityClassName="low"))
    sublet.until_lease("train", "active")
    until_used(sublet, "train", 7)
    sublet.apply(pod("chat", units=100, gib=5.5, seconds=5, priorityClassName="high"))
    sublet.until_lease("train", "paused")
    assert sublet.phase("train") == "Running" and restarts(sublet, "train") == 0
    sublet.until_phase("chat", "Succeeded")
    assert "right:" in sublet.log_of("chat"), sublet.log_of("chat")
    sublet.until_lease("train", "active")
    assert sublet.phase("train") == "Running" and restarts(sublet, "train") == 0
    assert sublet.daemon.cards()["violations"] == 0


def full(sublet):
    """Starts a pod that nothing can pause and that leaves little of the card."""
    made = pod("full", units=150, gib=1)
    made["metadata"]["annotations"] = {"sublet.dev/pausable": "no"}
    sublet.apply(made)
    sublet.until_lease("full", "active")


def test_a_pod_that_waits_tells_its_place_and_may_be_deleted(sublet):
    full(sublet)
    sublet.apply(pod("waits", units=100))
    sublet.until_lease("waits", "queued")
    wait_until(lambda: any("waits:" in event and "short" in event for event in sublet.events()),
               "an event of the pod tells what is missing")
    sublet.delete_pod("waits")
    wait_until(lambda: sublet.lease_of("waits") is None, "nothing is left in the queue")
    sublet.apply(pod("waits", units=100))
    sublet.until_lease("waits", "queued")
    sublet.delete_pod("full")
    sublet.until_lease("waits", "active", timeout=120)
    until_used(sublet, "waits", 0.125)


def test_a_pod_may_be_deleted_while_it_is_paused(sublet):
    sublet.apply(pod("paused", units=20, gib=1))
    until_used(sublet, "paused", 1)
    sublet.daemon.cli("pause", sublet.lease_of("paused")["id"], check=0)
    sublet.until_lease("paused", "paused")
    sublet.delete_pod("paused")
    wait_until(lambda: sublet.lease_of("paused") is None, "the lease ends with its pod")


def test_a_killed_agent_ends_no_pod_and_keeps_its_leases(sublet):
    sublet.apply(pod("held", units=4))
    before = sublet.until_lease("held", "active")
    until_used(sublet, "held", 0.125)
    killed = agent_pid(sublet)
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: (pid := agent_pid(sublet)) and pid != killed, "the kubelet starts it again", 90)
    until_units(sublet)
    assert sublet.until_lease("held", "active")["id"] == before["id"] and restarts(sublet, "held") == 0
    sublet.apply(pod("next", units=4))
    until_used(sublet, "next", 0.125)


def test_a_killed_kubelet_ends_no_pod_and_keeps_its_leases(sublet):
    sublet.apply(pod("held", units=4))
    before = sublet.until_lease("held", "active")
    until_used(sublet, "held", 0.125)
    sublet.kill("kubelet")
    sublet.restart("kubelet")
    sublet.apply(pod("next", units=4))
    until_used(sublet, "next", 0.125)
    assert sublet.until_lease("held", "active")["id"] == before["id"] and restarts(sublet, "held") == 0


def test_a_killed_containerd_ends_no_pod(sublet):
    sublet.apply(pod("held", units=4))
    before = sublet.until_lease("held", "active")
    until_used(sublet, "held", 0.125)
    sublet.kill("containerd")
    sublet.restart("containerd")
    sublet.apply(pod("next", units=4))
    until_used(sublet, "next", 0.125)
    assert sublet.until_lease("held", "active")["id"] == before["id"] and restarts(sublet, "held") == 0


def test_a_killed_daemon_ends_no_pod_and_knows_its_leases(sublet):
    sublet.apply(pod("held", units=4))
    before = sublet.until_lease("held", "active")
    until_used(sublet, "held", 0.125)
    sublet.daemon.kill()
    sublet.daemon.start()
    assert sublet.until_lease("held", "active")["id"] == before["id"] and restarts(sublet, "held") == 0
    sublet.apply(pod("next", units=4))
    until_used(sublet, "next", 0.125)
