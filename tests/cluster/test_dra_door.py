# SPDX-License-Identifier: Apache-2.0
"""Pods whose claims the real scheduler allocates by the two capacities of each card."""
import pytest

from tests.support.kube_sublet import pod
from tests.support.sublet import GIB, wait_until

CLASS = "vram.sublet.dev"


def claim(name, parameters=None, **capacity):
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS,
                                                        "capacity": {"requests": capacity}}}]}
    if parameters:
        devices["config"] = [{"opaque": {"driver": CLASS, "parameters": {
            "apiVersion": "sublet.dev/v1", "kind": "Lease", **parameters}}}]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": devices}}


def with_claim(name, gib=0.125, seconds=600):
    made = pod(name, gib=gib, seconds=seconds, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])
    made["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return made


@pytest.fixture(name="dra")
def dra_fixture(sublet):
    def published():
        slices = sublet.api.items("/apis/resource.k8s.io/v1/resourceslices")
        return [each for each in slices if each["spec"]["driver"] == CLASS and each["spec"].get("devices")]
    wait_until(published, "the node publishes its cards")
    yield sublet


def test_a_slice_has_two_capacities_of_each_card(dra):
    found, = (each for each in dra.api.items("/apis/resource.k8s.io/v1/resourceslices")
              if each["spec"]["driver"] == CLASS)
    card, = found["spec"]["devices"]
    assert set(card["capacity"]) == {"vram", "guaranteed"} and card["allowMultipleAllocations"] is True
    assert found["spec"]["nodeName"] == "n1"


def healths(cluster, name):
    """Returns the states of the devices in the status of the pod's container."""
    container, = cluster.pod(name)["status"].get("containerStatuses") or [{}]
    return [each["health"] for claimed in container.get("allocatedResourcesStatus") or []
            for each in claimed["resources"]]


def test_a_pod_with_a_claim_has_a_lease(dra):
    dra.apply(claim("six", vram="6Gi"), with_claim("six", gib=1))
    dra.until_phase("six", "Running")
    lease = dra.until_lease("six", "active")
    assert lease["vram_bytes"] == 6 * GIB, lease
    wait_until(lambda: "filled 1.0 GiB" in dra.log_of("six"), "it fills its memory")
    wait_until(lambda: healths(dra, "six") == ["Healthy"], "its status has the state of its card")
    assert "Error receiving from WatchResources" not in dra.logs["kubelet"].read_text()
    dra.delete_pod("six")
    wait_until(lambda: dra.lease_of("six") is None, "the lease ends with its pod")


def test_a_claim_of_a_lower_tier_is_paused_and_goes_on_afterwards(dra):
    dra.apply(claim("train", {"tier": "batch"}, vram="7680Mi"), with_claim("train", gib=7))
    wait_until(lambda: (lease := dra.lease_of("train")) and lease["used_bytes"] > 7 * GIB, "it fills its memory")
    dra.apply(claim("chat", {"tier": "interactive"}, vram="6Gi"), with_claim("chat", gib=5.5, seconds=5))
    dra.until_lease("train", "paused")
    dra.until_phase("chat", "Succeeded")
    assert "right:" in dra.log_of("chat"), dra.log_of("chat")
    dra.until_lease("train", "active")
    assert dra.phase("train") == "Running"


def test_guaranteed_memory_is_never_given_twice(dra):
    dra.apply(claim("first", vram="6Gi", guaranteed="6Gi"), with_claim("first"))
    dra.until_lease("first", "active")
    dra.apply(claim("second", vram="6Gi", guaranteed="6Gi"), with_claim("second"))
    wait_until(lambda: dra.condition(dra.pod("second"), "PodScheduled") == "False", "it is not placed")
    dra.apply(claim("third", vram="2Gi"), with_claim("third"))
    dra.until_phase("third", "Running")
    assert dra.phase("second") == "Pending" and dra.lease_of("second") is None


def test_wrong_parameters_are_told_to_the_pod(dra):
    dra.apply(claim("wrong", {"tier": "urgent"}, vram="1Gi"), with_claim("wrong"))
    wait_until(lambda: any("wrong:" in event and "urgent" in event for event in dra.events()),
               "an event of the pod tells the wrong tier")
    assert dra.lease_of("wrong") is None
