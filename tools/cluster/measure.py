#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The agent of Kubernetes, and the real scheduler with units of memory.

bound: a control plane of ./dev cluster-build with 1,000 nodes that are objects only, 320 units on each, kept alive by
their leases as the kubelet does it. 5,000 pods of 64 units fill them to the last unit. The rate is that of the times at
which the scheduler bound the pods.
admit: a fake kubelet admits and starts 200 pods, one after the other: the calls of the device plugin, and the lease.
idle: processor time of the agent with ten pods at rest.

measure.py [bound | admit | idle]...
"""
import collections
import concurrent.futures
import datetime
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support import kube, kube_files  # noqa: E402
from tests.support.groups import Groups  # noqa: E402
from tests.support.kube_api import KubeApi  # noqa: E402
from tests.support.kubelet import Node, Pod  # noqa: E402
from tests.support.slurm import free_ports  # noqa: E402
from tests.support.sublet import Daemon, wait_until  # noqa: E402

UNIT = "sublet.dev/vram-512mi"
NODES, UNITS, PODS, EACH = 1000, 320, 5000, 64
RENEWAL = 10.0  # seconds, as the kubelet's
QUICK = ["--kube-api-qps=2000", "--kube-api-burst=4000"]  # the usual 50 calls a second bind 50 pods a second
TRIES, REST, SECONDS = 200, 10, 60.0
TICKS = os.sysconf("SC_CLK_TCK")


class ControlPlane:
    """etcd, API server, controller manager and scheduler of one machine, without a kubelet."""

    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kube-bench-"))
        self.ports = dict(zip(("api", "etcd", "peer", "kubelet"), free_ports(4)))
        tokens = kube_files.write_files(self.dir, self.ports)
        self.api = KubeApi(self.ports["api"], tokens["admin"], self.dir / "pki/serving.crt")
        self.commands = kube_files.commands(self.dir, self.ports)
        self.processes = []

    def start(self, name, *flags):
        path = f"{kube.CACHE}/bin:{kube.CACHE}/root/usr/bin:/usr/bin:/bin"
        with open(self.dir / f"{name}.log", "ab") as log:
            self.processes.append(subprocess.Popen([*map(str, self.commands[name]), *flags], env={"PATH": path},
                                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.dir))

    def is_ready(self):
        try:
            return self.api.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def close(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run(["rm", "-rf", self.dir], check=True)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def node_of(name):
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", UNIT: str(UNITS)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()[:19] + "Z"}]}}


def lease_of(name):
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}}


def pod_of(number):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{number}"}, "spec": {
        "automountServiceAccountToken": False,
        "containers": [{"name": "work", "image": "none", "resources": {"limits": {UNIT: str(EACH)}}}]}}


def renew(plane, names, end):
    """Renews each lease every ten seconds, evenly."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    while not end.is_set():
        began = time.monotonic()
        for place, name in enumerate(names):
            plane.api.patch(f"{path}/{name}", {"spec": {"renewTime": now()}})
            if end.wait(max(0.0, began + RENEWAL * (place + 1) / len(names) - time.monotonic())):
                return


def each(call, things):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(call, things))


def measure_bound():
    if why := kube.missing():
        print(f"bound: left out: {why}")
        return
    plane, end = ControlPlane(), threading.Event()
    names = [f"n{number}" for number in range(NODES)]
    renewer = threading.Thread(target=renew, args=(plane, names, end))
    try:
        for name in ("etcd", "apiserver"):
            plane.start(name)
        wait_until(plane.is_ready, "the API server is ready", 120)
        plane.start("controller-manager", *QUICK)
        wait_until(lambda: plane.api.get("/api/v1/namespaces/default/serviceaccounts/default"), "pods may be made")
        wait_until(lambda: plane.api.get("/api/v1/namespaces/kube-node-lease"), "leases may be made")
        each(lambda name: plane.api.create("/api/v1/nodes", node_of(name)), names)
        each(lambda name: plane.api.create("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
                                           lease_of(name)), names)
        renewer.start()
        wait_until(lambda: not any(node["spec"].get("taints") for node in plane.api.items("/api/v1/nodes")),
                   "all nodes are ready", 300)
        each(lambda number: plane.api.create("/api/v1/namespaces/default/pods", pod_of(number)), range(PODS))
        plane.start("scheduler", *QUICK)
        waiting = "/api/v1/namespaces/default/pods?limit=1&fieldSelector=spec.nodeName%3D"
        wait_until(lambda: not plane.api.items(waiting), "all pods are bound", 600)
        tell_bound(plane.api.items("/api/v1/namespaces/default/pods"))
    finally:
        end.set()
        if renewer.is_alive():
            renewer.join()
        plane.close()


def tell_bound(pods):
    units, times = collections.Counter(), []
    for pod in pods:
        units[pod["spec"]["nodeName"]] += EACH
        condition, = (each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
        times.append(datetime.datetime.fromisoformat(condition["lastTransitionTime"]))
    assert len(pods) == PODS and max(units.values()) <= UNITS, units.most_common(1)
    seconds = (max(times) - min(times)).total_seconds() + 1  # the times are whole seconds
    print(f"bound: {PODS} pods of {EACH} units on {len(units)} nodes of {UNITS} units within {seconds:.0f} s: "
          f"{PODS / seconds:.0f} a second")


def with_node(measure):
    daemon = Daemon("4x80GiB", config='[gpu]\ninterval_idle = "1s"\n').start()
    tree = Groups("memory")
    node = Node(daemon, tree)
    try:
        measure(node.start())
    finally:
        sys.stdout.flush()
        with open(os.devnull, "w") as silent:
            told, sys.stdout = sys.stdout, silent
            for part in (node, tree, daemon):
                part.close()
            sys.stdout = told


def measure_admit(node):
    took = collections.defaultdict(list)

    def timed(name, call, *arguments):
        began = time.monotonic()
        call(*arguments)
        took[name].append((time.monotonic() - began) * 1e3)

    plain = node.kubelet.call

    def call(name, *arguments, **options):
        began = time.monotonic()
        answer = plain(name, *arguments, **options)
        took[name].append((time.monotonic() - began) * 1e3)
        return answer
    node.kubelet.call = call
    for number in range(TRIES):
        pod = Pod(f"p{number}", 2)
        timed("admission", node.kubelet.admit, pod)
        node.kubelet.make_sandbox(pod)
        node.kubelet.start_container(pod)
        node.kubelet.remove(pod)
    for name in ("GetPreferredAllocation", "Allocate", "PreStartContainer"):
        ordered = sorted(took[name])
        print(f"admit: {name}: median {statistics.median(ordered):.1f} ms, 99 % {ordered[int(TRIES * 0.99)]:.1f} ms")


def measure_idle(node):
    for number in range(REST):
        node.kubelet.run(Pod(f"p{number}", 2), "sleep", "600")

    def ticks():
        fields = pathlib.Path(f"/proc/{node.agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    time.sleep(15)  # conditions are written, one a second
    before, began = ticks(), time.monotonic()
    time.sleep(SECONDS)
    share = (ticks() - before) / TICKS / (time.monotonic() - began)
    print(f"idle: {REST} pods at rest: {share * 100:.2f} % of a core over {SECONDS:.0f} s")


def main(words):
    parts = {"bound": measure_bound, "admit": lambda: with_node(measure_admit), "idle": lambda: with_node(measure_idle)}
    if unknown := set(words) - set(parts):
        print(f"measure: unknown part {', '.join(unknown)}; there are {', '.join(parts)}", file=sys.stderr)
        return 2
    for name in words or parts:
        parts[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
