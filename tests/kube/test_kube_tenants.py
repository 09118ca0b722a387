# SPDX-License-Identifier: Apache-2.0
"""Namespaces as tenants: their labels are quota, limit, weight and highest tier."""
import grpc
import pytest

from tests.support.kubelet import Pod
from tests.support.sublet import GIB

SPACE = "/api/v1/namespaces/vision"


def label(node, **labels):
    node.api.put(SPACE, {"metadata": {"name": "vision", "labels": {
        "kubernetes.io/metadata.name": "vision", **{f"sublet.dev/{key}": value for key, value in labels.items()}}}})


def tenant(node):
    rows = {row["name"]: row for row in node.daemon.json("tenant", "ls")["tenants"]}
    return [rows["vision"][name] for name in ("entry", "quota_bytes", "limit_bytes", "weight")]


def events(node):
    return [body["reason"] for path, body in node.api.objects.items() if "/events/" in path]


def run(node, name, **spec):
    pod = Pod(name, 1, **spec)
    node.kubelet.run(pod, "sleep", "600")
    return pod


def refusal(node, name):
    pod = node.kubelet.admit(Pod(name, 1))
    node.kubelet.make_sandbox(pod)
    with pytest.raises(grpc.RpcError) as refused:
        node.kubelet.start_container(pod)
    node.kubelet.remove(pod)
    return refused.value.details()


def test_the_labels_of_a_namespace_are_its_tenant(node):
    run(node, "before")
    assert tenant(node) == [False, None, None, 1]
    label(node, quota="2Gi", limit="3Gi", weight="2.5")
    run(node, "first")
    assert tenant(node) == [True, 2 * GIB, 3 * GIB, 2.5]
    node.kill()
    node.start()
    label(node, limit="3Gi")
    run(node, "second")
    assert tenant(node) == [True, None, 3 * GIB, 1], "labels that are gone are taken back, also by the next agent"
    node.daemon.cli("tenant", "set", "vision", "live_leases=9", "limit=1GiB", check=0)
    run(node, "third")
    row = node.daemon.get("/v1/tenants/vision")
    assert (row["limit_bytes"], row["live_leases"]) == (3 * GIB, 9), "a label counts more, and all else stays"


def test_the_tier_of_a_namespace_is_the_highest_of_its_pods(node):
    node.api.add_class("urgent", 100000)
    label(node, tier="standard")
    assert node.lease(run(node, "urgent", priorityClassName="urgent"))["tier"] == "standard"
    assert node.lease(run(node, "low", annotations={"sublet.dev/tier": "batch"}))["tier"] == "batch"
    label(node)
    assert node.lease(run(node, "later", priorityClassName="urgent"))["tier"] == "interactive"


def test_a_wrong_label_is_told_to_the_pod(node):
    label(node, weight="much")
    assert "namespace vision has the label sublet.dev/weight=much" in refusal(node, "wrong")
    label(node, wait="2")
    assert "sublet.dev/wait, which is unknown" in refusal(node, "unknown")
    assert not node.daemon.leases()


def test_an_entry_that_the_daemon_refuses_is_a_warning_of_the_pod(node):
    label(node, quota="100Gi")
    for name in ("first", "second"):
        assert node.lease(run(node, name))["state"] == "active"
    assert tenant(node) == [False, None, None, 1]
    assert events(node).count("TenantNotSet") == 1, "once"
    assert "the labels of namespace vision are not in force" in node.text()
