# SPDX-License-Identifier: Apache-2.0
"""The chart, its rights and its policies, at a real API server."""
import json
import os

import pytest

from tests.support.kube import SYSTEM
from tests.support.kube_api import KubeApi
from tests.support.kube_sublet import ACCOUNT, CHART, HEADER, MANIFESTS, UNIT, pod, slice_of

def render(cluster, *flags):
    words = ["helm", "template", "sublet", CHART, "--namespace", SYSTEM, "--kube-version=1.36.0", *flags]
    return cluster.call(*words).stdout


def test_the_manifests_are_those_of_the_chart(bare):
    space = f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {SYSTEM}\n"
    text = HEADER + space + render(bare)
    if os.environ.get("SUBLET_RENDER"):
        MANIFESTS.write_text(text)
    assert MANIFESTS.read_text() == text, "SUBLET_RENDER=1 ./dev test cluster -k manifests renders them again"


def test_the_api_server_takes_the_manifests(bare):
    done = bare.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", MANIFESTS, check=False)
    missing = [line for line in done.stderr.splitlines() if f'namespaces "{SYSTEM}" not found' not in line]
    assert not missing and "created" in done.stdout, done


@pytest.mark.parametrize("flags, has, has_not", [
    (("--set=doors={plugin}",), "sublet-gpu-mem", "DeviceClass"),
    (("--set=doors={dra}",), "DeviceClass", "sublet-gpu-mem"),
    (("--set=unit=1Gi",), "sublet.dev/vram-1024mi", "sublet.dev/vram-512mi"),
    (("--set=gpuMem=false",), "DeviceClass", "MutatingAdmissionPolicy"),
    (("--kube-version=1.33.0",), "--doors=plugin\n", "MutatingAdmissionPolicy"),
    (("--kube-version=1.35.0",), "ValidatingAdmissionPolicy", "DeviceClass"),
    (("--set=interposer=/usr/lib/sublet/libsublet-cuda.so",), "--interposer=/usr/lib", "--probe"),
    (("--set=cgroupRoot=/pods",), "--cgroup-root=/pods", "--interposer"),
])
def test_values_of_the_chart(bare, flags, has, has_not):
    text = render(bare, *flags)
    assert has in text and has_not not in text


@pytest.mark.parametrize("flag", ["unit=0.5Gi", "unit=512M", "overcomit=2", "overcommit=much", "doors=plugin",
                                  "doors={plug}", "image.name=x", "probe=sublet-probe", "gpuMem=maybe"])
def test_wrong_values_of_the_chart_are_refused(bare, flag):
    words = ["helm", "template", "sublet", CHART, "--namespace", SYSTEM, f"--set={flag}"]
    done = bare.call(*words, check=False)
    assert done.returncode != 0 and flag.split("=")[0].split(".")[0] in done.stderr, done


def created(cluster, name, **env):
    """Creates a pod with these variables and returns the limits of its container."""
    made = pod(name)
    made["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in env.items()]
    answer = cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", made)
    return answer["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize("value, units", [("512M", 8), ("512MiB", 8), ("513Mi", 9), ("6GiB", 96), ("6G", 96),
                                          ("8001M", 126)])
def test_gpu_mem_becomes_a_request(charted, cluster, value, units):
    expected = {UNIT: str(units)}
    assert created(cluster, "asks", GPU_MEM=value) == {"limits": expected, "requests": expected}


@pytest.mark.parametrize("env", [{"OTHER": "512M"}, {"GPU_MEM": ""}])
def test_a_pod_without_gpu_mem_is_left_alone(charted, cluster, env):
    assert created(cluster, "plain", **env) == {}


def test_a_request_of_a_pod_counts_more_than_gpu_mem(charted, cluster):
    made = pod("asks", units=3)
    made["spec"]["containers"][0]["env"] = [{"name": "GPU_MEM", "value": "6GiB"}]
    made["spec"]["containers"].append(dict(pod("x")["spec"]["containers"][0], name="second",
                                           env=[{"name": "GPU_MEM", "value": "1G"}]))
    answer = cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", made)
    assert [each["resources"]["limits"][UNIT] for each in answer["spec"]["containers"]] == ["3", "16"]


def test_a_container_with_a_claim_gets_no_units(charted, cluster):
    made = pod("claims", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "six-gib"}])
    made["spec"]["containers"][0].update(env=[{"name": "GPU_MEM", "value": "6GiB"}],
                                         resources={"claims": [{"name": "gpu"}]})
    answer = cluster.api.create("/api/v1/namespaces/default/pods?dryRun=All", made)
    assert answer["spec"]["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}


@pytest.mark.parametrize("value", ["much", "-1G", "0.5", "512", "0M"])
def test_gpu_mem_that_is_no_size_is_refused(charted, cluster, value):
    made = pod("wrong")
    made["spec"]["containers"][0]["env"] = [{"name": "GPU_MEM", "value": value}]
    status, answer = cluster.api.call("POST", "/api/v1/namespaces/default/pods", made)
    assert status == 422 and "GPU_MEM" in answer["message"], answer


def claim(kind, **capacity):
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {
        "deviceClassName": "vram.sublet.dev", "capacity": {"requests": capacity}}}]}}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "claim"},
            "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_more_guaranteed_memory_than_memory_is_refused(charted, cluster, kind):
    path = f"/apis/resource.k8s.io/v1/namespaces/default/{kind.lower()}s?dryRun=All"
    for allowed in ({"vram": "6Gi"}, {"vram": "6Gi", "guaranteed": "6Gi"}, {"vram": "6Gi", "guaranteed": "6144Mi"}):
        cluster.api.create(path, claim(kind, **allowed))
    for refused in ({"vram": "6Gi", "guaranteed": "6145Mi"}, {"guaranteed": "1Gi"}):
        status, answer = cluster.api.call("POST", path, claim(kind, **refused))
        assert status == 422 and "at most" in answer["message"], (refused, answer)


def agent_api(cluster, node):
    """Returns a client with the rights of an agent on that node, as the token of its pod has them."""
    if cluster.api.get(f"/api/v1/nodes/{node}") is None:
        cluster.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    uid = cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    answer = cluster.api.create(f"{ACCOUNT}/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}}})
    return KubeApi(cluster.ports["api"], answer["status"]["token"], cluster.dir / "pki/serving.crt")


def resident(status, kind="sublet.dev/Resident"):
    return {"status": {"conditions": [{"type": kind, "status": status, "reason": "Queued", "message": "it waits"}]}}


def test_an_agent_writes_only_its_condition_of_pods_of_its_own_node(charted, cluster):
    made = pod("held")
    made["spec"]["containers"][0].update(command=["/bin/sleep", "600"])
    cluster.apply(made)
    cluster.until_phase("held", "Running")
    path = "/api/v1/namespaces/default/pods/held"
    own, other = agent_api(cluster, "n1"), agent_api(cluster, "n2")
    own.patch(f"{path}/status", resident("False"), kind="strategic")
    assert cluster.condition(cluster.pod("held"), "sublet.dev/Resident") == "False"
    for api, body, said in ((other, resident("True"), "own node"), (own, resident("False", "Ready"), "sublet.dev only"),
                            (own, {"status": {"phase": "Failed"}}, "sublet.dev only")):
        status, answer = api.call("PATCH", f"{path}/status", body, "application/strategic-merge-patch+json")
        assert status == 403 and said in answer["message"], answer
    for method, where in (("PATCH", path), ("DELETE", path), ("POST", "/api/v1/namespaces/default/pods"),
                          ("GET", "/api/v1/namespaces/default/secrets"), ("GET", "/api/v1/pods")):
        assert own.call(method, where, {}, "application/merge-patch+json")[0] == 403, (method, where)
    assert own.call("GET", "/api/v1/namespaces/default/events/none")[0] == 404, "an event's count is read"


def test_an_agent_writes_only_slices_of_its_own_node(charted, cluster):
    own, other, path = agent_api(cluster, "n1"), agent_api(cluster, "n2"), "/apis/resource.k8s.io/v1/resourceslices"
    own.create(path, slice_of("n1"))
    for body in (slice_of("n2"), slice_of("n1", "gpu.nvidia.com")):
        status, answer = own.call("POST", path, body)
        assert status == 403 and "own node" in answer["message"], answer
    status, answer = other.call("DELETE", f"{path}/n1-test")
    assert status == 403 and "own node" in answer["message"], answer
    own.delete(f"{path}/n1-test")


def test_the_agent_has_no_privilege(charted, cluster):
    agent = cluster.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/sublet-kube")["spec"]["template"]["spec"]
    context = agent["containers"][0]["securityContext"]
    assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                       "capabilities": {"drop": ["ALL"]}}, json.dumps(context)
