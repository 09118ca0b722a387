# SPDX-License-Identifier: Apache-2.0
"""Sublet in a cluster of the tests: installed by Helm from the chart, and pods that ask for memory."""
import json
import pathlib

from .contract import ROOT
from .kube import SYSTEM
from .sublet import BIN, wait_until

CHART = ROOT / "packaging/kubernetes/chart"
MANIFESTS = ROOT / "packaging/kubernetes/manifests/sublet.yaml"
ACCOUNT = f"/api/v1/namespaces/{SYSTEM}/serviceaccounts/sublet-kube"
UNIT = "sublet.dev/vram-64mi"  # the card of 10 GiB has 160 of them
UNIT_BYTES = 64 << 20
HEADER = "# SPDX-License-Identifier: Apache-2.0\n" \
    "# Rendered from the chart by SUBLET_RENDER=1 ./dev test cluster -k manifests.\n"
# A simulated card knows processes by the pids of the host, and its image is only on this machine.
SIMULATED = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
             "metadata": {"name": "simulated-card"},
             "spec": {"reinvocationPolicy": "IfNeeded", "failurePolicy": "Fail",
                      "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                                                              "operations": ["CREATE"], "resources": ["pods"]}]},
                      "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression":
                                     "Object{spec: Object.spec{hostPID: true, containers: object.spec.containers.map(c,"
                                     " Object.spec.containers{name: c.name, imagePullPolicy: 'IfNotPresent'})}}"}}]}}
BINDING = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
           "metadata": {"name": "simulated-card"}, "spec": {"policyName": "simulated-card"}}


def values(cluster, **more):
    """Returns the chart's values for the cluster, as flags of Helm."""
    given = {"apiServer.host": "127.0.0.1", "apiServer.port": cluster.ports["api"], "overcommit": "2.0",
             "unit": "64Mi", "logLevel": "debug", "probe": BIN / "sublet-probe", **more}
    return [f"--set-string={name}={value}" for name, value in given.items()]


def install(cluster, **more):
    cluster.apply(SIMULATED, BINDING)
    cluster.call("helm", "upgrade", "--install", "sublet", CHART, "--namespace", SYSTEM, "--create-namespace",
                 *values(cluster, **more))
    until_policies(cluster)


def until_units(cluster):
    """Waits until the agent has registered and the node has units."""
    try:
        wait_until(lambda: cluster.allocatable(UNIT) > 0, "the node has units", 120)
    except AssertionError:
        print(agent_log(cluster), *cluster.events(SYSTEM), json.dumps(agents(cluster), indent=1), sep="\n")
        raise


def slice_of(node, driver="vram.sublet.dev"):
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-test"},
            "spec": {"driver": driver, "nodeName": node, "pool": {"name": f"test-{node}", "generation": 1,
                                                                  "resourceSliceCount": 1}, "devices": []}}


def until_policies(cluster):
    """Waits until the API server has read the policies, which it does some time after it has taken them."""
    agent = {"Impersonate-User": f"system:serviceaccount:{SYSTEM}:sublet-kube"}
    asks = pod("asks")
    asks["spec"]["containers"][0]["env"] = [{"name": "GPU_MEM", "value": "1G"}]

    def are_read():
        status, changed = cluster.api.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", asks)
        slices = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"
        refused = cluster.api.call("POST", slices, slice_of("n1"), **agent)
        return status == 201 and changed["spec"]["containers"][0].get("resources") and "own node" in str(refused)
    wait_until(are_read, "the policies are in force")


def has_agent():
    return pathlib.Path(BIN / "sublet-kube").exists()


def agents(cluster):
    return cluster.api.items(f"/api/v1/namespaces/{SYSTEM}/pods")


def agent_log(cluster):
    return "".join(path.read_text(errors="replace") for path in sorted(
        (cluster.dir / "podlogs").glob(f"{SYSTEM}_sublet-kube-*/*/*.log")))


def agent_pid(cluster):
    """Returns the pid of the agent's process, or None."""
    for pod in agents(cluster):
        for pid in cluster.processes_of(pod["metadata"]["uid"]):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"sublet-kube"):
                return pid
    return None


def pod(name, units=0, gib=0.125, seconds=600, **spec):
    """Returns a pod that fills so much memory. `units` of 0: it asks for nothing."""
    container = {"name": "work", "image": "gpu-test-image", "command": [
        "/bin/sh", "-c", f"exec simgpu-load --alloc {int(gib * 1024)}MiB --seconds {seconds} --verify"]}
    if units:
        container["resources"] = {"limits": {UNIT: str(units)}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec}}


def priority_class(name, value, **annotations):
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value,
            "metadata": {"name": name, "annotations": {f"sublet.dev/{key}": text for key, text in annotations.items()}}}
