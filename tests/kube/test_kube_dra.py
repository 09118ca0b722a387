# SPDX-License-Identifier: Apache-2.0
"""The driver for dynamic resource allocation of sublet-kube, with a fake kubelet and a fake API server."""
import pytest

from tests.support.kubelet import Pod
from tests.support.kubelet_dra import DRIVER, Claim, health_of_cards, plugin_info
from tests.support.sublet import GIB, MIB, wait_until

SLICE = f"/apis/resource.k8s.io/v1/resourceslices/n1-{DRIVER}"


def load(gib, seconds=600):
    return ["simgpu-load", "--alloc", f"{int(gib * 1024)}MiB", "--seconds", str(seconds), "--verify"]


@pytest.fixture
def node(start_node):
    made = start_node("1x4GiB", "--overcommit", "2")
    wait_until(lambda: (made.kubelet.dir / "plugins_registry" / f"{DRIVER}-reg.sock").exists(), "the driver is there")
    return made


def claimed(node, name, vram, **more):
    spec = {"priorityClassName": more.pop("priority")} if "priority" in more else {}
    pod = Pod(name, annotations=more.pop("annotations", {}), **spec)
    claim = Claim(node, pod, vram, **more)
    pod.group = node.groups.make(f"kubepods/burstable/pod{pod.uid}")  # the sandbox comes after the claim
    return claim


def test_the_kubelet_is_told_the_state_of_the_cards(node):
    with health_of_cards(node) as next_state:
        assert next_state() == {("n1", "gpu-0"): "HEALTHY"}
        node.daemon.cli("gpu", "cordon", "gpu0", "--reason", "repair", check=0)
        wait_until(lambda: next_state() == {("n1", "gpu-0"): "UNHEALTHY"}, "the card is out of service")
        node.daemon.cli("gpu", "uncordon", "gpu0", check=0)
        wait_until(lambda: next_state() == {("n1", "gpu-0"): "HEALTHY"}, "the card is back")
        node.agent.terminate()
        assert node.agent.wait(30) == 0, "an open stream holds up no end"


def begin_sandbox(claim):
    claim.pod.programs.append(claim.node.daemon.spawn("sleep", "600"))
    inside = claim.pod.group / "sandbox"
    inside.mkdir()
    claim.node.groups.move(claim.pod.programs[0].pid, inside)


def test_the_kubelet_finds_the_driver_and_the_scheduler_its_cards(node):
    info = plugin_info(node)
    assert (info.type, info.name, list(info.supported_versions)) == ("DRAPlugin", DRIVER, ["v1.DRAPlugin"])
    assert info.endpoint.endswith("dra.sock")
    spec = node.api.objects[SLICE]["spec"]
    assert (spec["nodeName"], spec["pool"]) == ("n1", {"name": "n1", "generation": 1, "resourceSliceCount": 1})
    device, = spec["devices"]
    card, = node.daemon.get("/v1/devices")["devices"]
    whole = card["capacity_bytes"] // (256 * MIB) * 256
    assert device["name"] == "gpu-0" and device["attributes"]["uuid"] == {"string": card["uuid"]}
    assert device["capacity"]["guaranteed"]["value"] == f"{whole}Mi"
    declared = int(device["capacity"]["vram"]["value"].removesuffix("Mi"))
    assert 2 * whole <= declared <= 2 * whole + 256
    assert device["capacity"]["vram"]["requestPolicy"]["validRange"] == {
        "min": "256Mi", "max": f"{whole}Mi", "step": "256Mi"}


def test_a_slice_changes_with_its_generation_only_when_cards_change(node):
    wait_until(lambda: "ResourceSlice" in node.text(), "the first agent has published the slice")
    node.kill()
    node.start()
    wait_until(lambda: node.text().count("ResourceSlice") == 2, "the second agent has looked")
    assert node.api.objects[SLICE]["spec"]["pool"]["generation"] == 1
    node.kill()
    node.flags = ("--overcommit", "3")
    node.start()
    wait_until(lambda: node.api.objects[SLICE]["spec"]["pool"]["generation"] == 2, "another factor, another generation")


def test_a_claim_becomes_a_lease_and_a_file_for_the_runtime(node):
    claim = claimed(node, "train", "1536Mi", annotations={"sublet.dev/pausable": "driver"})
    device, = claim.prepare()
    assert (device.pool_name, device.device_name, device.share_id) == ("n1", "gpu-0", "share-1")
    assert list(device.cdi_device_ids) == [f"{DRIVER}/claim={claim.uid}"] and list(device.request_names) == ["gpu"]
    begin_sandbox(claim)
    wait_until(lambda: node.lease(claim.pod)["state"] == "active", "the sandbox claims the memory")
    lease = node.lease(claim.pod)
    assert [lease[name] for name in ("vram_bytes", "tenant", "pausable")] == [1536 * MIB, "vision", "driver"], lease
    claim.execute(*load(1))
    wait_until(lambda: node.lease(claim.pod)["used_bytes"] > GIB, "the program's memory is the lease's")
    claim.cdi.unlink()  # the machine was booted
    assert claim.prepare() == [device] and claim.cdi.exists(), "the same again"
    assert node.lease(claim.pod)["id"] == lease["id"]
    claim.unprepare()
    assert not claim.cdi.exists()
    claim.unprepare()


def test_more_urgent_claims_pause_others(node):
    node.api.add_class("urgent", 5, {"sublet.dev/tier": "interactive"})
    first = claimed(node, "train", "3Gi")
    first.prepare()
    begin_sandbox(first)
    held = first.execute(*load(2, 3))
    wait_until(lambda: node.lease(first.pod)["used_bytes"] > 2 * GIB, "the first pod uses its memory")
    second = claimed(node, "chat", "2560Mi", priority="urgent")
    second.prepare()
    begin_sandbox(second)
    assert node.lease(first.pod)["state"] == "paused"
    node.kubelet.remove(second.pod)
    second.unprepare()
    out, _ = held.communicate(timeout=60)
    assert held.returncode == 0 and " 0 wrong words" in out, out


def test_a_claim_that_waits_is_refused_with_its_place_and_prepared_later(node):
    first = claimed(node, "train", "3Gi", guaranteed="3Gi")
    first.prepare()
    begin_sandbox(first)
    assert node.lease(first.pod)["pausable"] == "no", "all of it is guaranteed"
    second = claimed(node, "chat", "3Gi")
    refusal = second.refusal()
    assert "waits" in refusal and "gpu0" in refusal, refusal
    node.kubelet.remove(first.pod)
    first.unprepare()
    second.prepare()


def test_parameters_of_claim_and_class(node):
    claim = claimed(node, "train", "1Gi", config=[("FromClass", {"tier": "interactive"}),
                                                  ("FromClaim", {"tier": "batch", "pausable": "no"})])
    claim.prepare()
    assert [node.lease(claim.pod)[name] for name in ("tier", "pausable")] == ["batch", "no"]
    for parameters, word in (({"tier": "urgent"}, "tier 'urgent'"), ({"tyer": "batch"}, "did you mean 'tier'"),
                             ({"pausable": 7}, "pausable '7'"), ({"share": 0}, "share '0' is no percentage"),
                             ({"share": 30}, "no interposer"),
                             ({"kind": "Other"}, "no Lease"), ({"apiVersion": "v2"}, "no Lease")):
        wrong = claimed(node, "wrong", "1Gi", config=[("FromClaim", parameters)])
        assert word in wrong.refusal(), parameters
        node.groups.remove(wrong.pod.group)


def test_claims_that_cannot_become_a_lease_are_refused_with_the_reason(node):
    for more, word in (({"guaranteed": "1Gi"}, "guaranteed is 1.0 GiB of 2.0 GiB"), ({"device": "gpu-7"}, "gpu-7")):
        wrong = claimed(node, "wrong", "2Gi", **more)
        assert word in wrong.refusal()
        node.groups.remove(wrong.pod.group)
    shared = claimed(node, "shared", "1Gi")
    shared.pods.append(Pod("other"))
    shared.put()
    assert "is for 2 pods" in shared.refusal()
    first = claimed(node, "twice", "1Gi")
    first.prepare()
    assert "one lease" in Claim(node, first.pod, "1Gi", name="more").refusal()
    replaced = claimed(node, "replaced", "1Gi")
    replaced.pod.uid = "11111111-2222"
    assert "pod vision/replaced was replaced" in replaced.refusal()
    elsewhere = claimed(node, "elsewhere", "1Gi")
    elsewhere.results[0]["pool"] = "n2"
    elsewhere.put()
    assert "on node n1" in elsewhere.refusal()
    elsewhere.uid = "11111111-2222"
    assert "replaced" in elsewhere.refusal()
    elsewhere.unprepare()  # a claim that nobody knows is no error


def test_a_claim_whose_offer_lapsed_gets_another_lease(node):
    claim = claimed(node, "slow", "1Gi")
    claim.prepare()
    lease = node.lease(claim.pod)
    node.daemon.cli("release", lease["id"], "--force", check=0)
    node.kill()
    node.start()  # looks at its claims
    wait_until(lambda: node.lease(claim.pod), "another lease of the pod")
    node.kubelet.remove(claim.pod)
    node.api.remove(claim.path)
    node.daemon.cli("release", node.daemon.leases()[0]["id"], "--force", check=0)
    node.kill()
    node.start()
    wait_until(lambda: not claim.cdi.exists(), "the files of a claim that is gone are removed")


def test_a_claim_whose_file_cannot_be_written_takes_no_lease(node):
    claim = claimed(node, "train", "1Gi")
    claim.cdi.mkdir(parents=True)
    assert "cannot be written" in claim.refusal()
    assert not node.daemon.leases() and list(claim.cdi.parent.iterdir()) == [claim.cdi]
    claim.cdi.rmdir()
    claim.prepare()


def test_a_claim_of_a_killed_pod_is_released_while_its_lease_is_paused(node):
    claim = claimed(node, "train", "1Gi")
    claim.prepare()
    begin_sandbox(claim)
    claim.execute(*load(0.5))
    wait_until(lambda: node.lease(claim.pod)["used_bytes"] > GIB / 2, "the pod uses its memory")
    node.daemon.cli("pause", node.lease(claim.pod)["id"], check=0)
    wait_until(lambda: node.lease(claim.pod)["state"] == "paused", "the pod is paused")
    claim.unprepare()  # refused by the daemon, which has not seen the end of the pod yet
    node.kubelet.remove(claim.pod)
    wait_until(lambda: not node.daemon.leases(), "the lease ends with the pod")


def test_unprepare_does_not_hang_without_a_daemon(node):
    claim = claimed(node, "train", "1Gi")
    claim.prepare()
    node.daemon.kill()
    claim.unprepare()
    assert not claim.cdi.exists()
    assert "does not answer" in claim.refusal() or "daemon" in claim.refusal()
