# SPDX-License-Identifier: Apache-2.0
"""A real Kubernetes cluster of one node on this machine, with simulated cards: nothing is installed, and nothing of the
machine outside of a temporary folder and of control groups is changed.

`./dev cluster-build` fetches the programs. All parts run in a mount namespace of their own, because the kubelet,
containerd and device plugins meet at fixed paths.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from . import kube_files, kube_images
from .contract import ROOT
from .kube_api import KubeApi
from .slurm import free_ports
from .sublet import BIN, BUILD, Daemon, wait_until

VERSION = os.environ.get("SUBLET_CLUSTER_VERSION", "1.36.3")
CACHES = os.environ.get("SUBLET_CLUSTER_CACHE") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "sublet-cluster"
CACHE = pathlib.Path(CACHES) / VERSION
FAST = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[lease]\nlinger = "1s"\n' \
    '[pause]\ncooldown = "1s"\nmin_residency = "0s"\n'
PLUGINS = ROOT / "integrations/kubernetes"
SYSTEM = "sublet-system"
FIXED = [pathlib.Path(path) for path in
         ("/var/lib/kubelet", "/var/lib/sublet-kube", "/run/sublet", "/run/cdi", "/run/containerd")]
HIERARCHIES = pathlib.Path("/sys/fs/cgroup")
KINDS = {"pods": "/api/v1/namespaces/{}/pods", "events": "/api/v1/namespaces/{}/events",
         "claims": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"}

# A mount namespace whose mounts end with its last process. Fixed paths of the kubelet, of containerd and of an
# installation of Sublet lead to the cluster's folder.
NAMESPACE = """set -e
mount --make-rshared /
mount --bind {dir}/kubelet /var/lib/kubelet
mount --bind {dir}/agent /var/lib/sublet-kube
mount --bind {daemon} /run/sublet
mount --bind {dir}/cdi /run/cdi
mount -t tmpfs none /run/containerd
mount -t tmpfs none /var/log
mount --bind {dir}/hosts /etc/hosts
{kernel}
echo ready
exec sleep infinity
"""


def missing():
    """Returns why no cluster can run here; "" if it can."""
    if not (CACHE / "complete").exists():
        return f"no programs of Kubernetes in {CACHE}: ./dev cluster-build"
    if os.geteuid() != 0:
        return "only root can run a kubelet"
    absent = [name for name in ("runc", "openssl", "busybox", "nsenter", "unshare") if not shutil.which(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def groups_of_pods():
    """Returns all control groups of pods with their pids. Groups may be removed meanwhile."""
    found = []
    for top in HIERARCHIES.glob("*/kubepods"):
        for folder, _, _ in os.walk(top):
            with contextlib.suppress(OSError):
                pids = (pathlib.Path(folder) / "cgroup.procs").read_text().split()
                found.append((folder, set(map(int, pids))))
    return found


class Kubernetes:
    def __init__(self, cards="1x10GiB,context_bytes=33554432"):
        # The groups of pods have the same names in each cluster, so one runs at a time.
        self.alone = open(pathlib.Path(tempfile.gettempdir()) / "sublet-test-kube.lock", "w")
        fcntl.flock(self.alone, fcntl.LOCK_EX)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kube-", dir=os.environ.get("SUBLET_TEST_TMP")))
        self.dir.chmod(0o755)
        self.processes, self.logs = {}, {}
        self.holder = self.daemon = None
        self.made = [path for path in FIXED if not path.exists()]
        try:
            self._start(cards)
        except BaseException:
            print(self.all_logs())
            self.close()
            raise

    def _start(self, cards):
        self.daemon = Daemon(cards, config=FAST).start()
        self.ports = dict(zip(("api", "etcd", "peer", "kubelet"), free_ports(4)))
        tokens = kube_files.write_files(self.dir, self.ports)
        self.api = KubeApi(self.ports["api"], tokens["admin"], self.dir / "pki/serving.crt")
        self.commands = kube_files.commands(self.dir, self.ports)
        self._hold_namespace()
        for name in ("etcd", "containerd", "apiserver"):
            self.start(name)
        wait_until(self._containerd_answers, "containerd listens")
        for path in kube_images.write_images(self.dir):
            self.call("ctr", "-a", self.dir / "containerd.sock", "-n", "k8s.io", "images", "import", "--local", path)
            path.unlink()
        wait_until(self.is_ready, "the API server is ready", 120)
        for name in ("controller-manager", "scheduler", "kubelet"):
            self.start(name)
        wait_until(lambda: self.condition(self.node(), "Ready") == "True", "the node is ready", 120)
        wait_until(lambda: self.api.get("/api/v1/namespaces/default/serviceaccounts/default"), "pods may be made")

    def _hold_namespace(self):
        for path in self.made:
            path.mkdir(parents=True)
        kernel = "\n".join(f"mount --bind {self.dir}/kernel/{number} /proc/sys/{name}"
                           for number, name in enumerate(kube_files.KERNEL))
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c",
             NAMESPACE.format(dir=self.dir, daemon=self.daemon.dir, kernel=kernel)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True)
        said = self.holder.stdout.readline()
        assert said == "ready\n", f"no mount namespace: {said}"

    # --- processes ---
    def inside(self, *command):
        return ["nsenter", f"--mount=/proc/{self.holder.pid}/ns/mnt", *map(str, command)]

    def env(self, **more):
        path = f"{CACHE}/bin:{CACHE}/root/usr/bin:{BIN}:{PLUGINS}:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "LANG": "C.UTF-8", "HOME": str(self.dir),
                "KUBECONFIG": str(self.dir / "admin.kubeconfig"), **more}

    def start(self, name, command=(), **env):
        """Starts a part of the cluster, also again; a command makes a new part."""
        if command:
            self.commands[name] = command
        self.logs[name] = self.dir / f"{name}.log"
        with open(self.logs[name], "ab") as log:
            self.processes[name] = subprocess.Popen(
                self.inside(*self.commands[name]), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.env(**env), cwd=self.dir, start_new_session=True)

    def restart(self, name):
        """Starts a part again that was killed. A kubelet ends where no containerd listens yet."""
        self.start(name)
        if name == "containerd":
            wait_until(self._containerd_answers, "containerd listens")

    def keep_running(self):
        """Starts each part again that has ended by itself, as a service manager does."""
        for name, process in list(self.processes.items()):
            if process.poll() is not None:
                self.restart(name)
        return True

    def _containerd_answers(self):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.dir / "containerd.sock")) == 0

    def kill(self, name, signal_number=signal.SIGKILL):
        process = self.processes[name]
        process.send_signal(signal_number)
        process.wait(60)

    def call(self, *command, check=True, timeout=120, input=None):
        done = subprocess.run(self.inside(*command), env=self.env(), capture_output=True, text=True, input=input,
                              stdin=None if input else subprocess.DEVNULL, timeout=timeout, cwd=self.dir)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def kubectl(self, *words, **options):
        return self.call("kubectl", *words, **options)

    # --- objects ---
    def is_ready(self):
        try:
            return self.api.call("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def node(self):
        return self.api.get("/api/v1/nodes/n1")

    @staticmethod
    def condition(thing, kind):
        """Returns the status of a condition: "True", "False", "Unknown", or "" without the condition."""
        conditions = ((thing or {}).get("status") or {}).get("conditions") or []
        return next((each["status"] for each in conditions if each["type"] == kind), "")

    def allocatable(self, resource):
        return int(((self.node() or {}).get("status", {}).get("allocatable") or {}).get(resource, 0))

    def apply(self, *documents):
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        return self.kubectl("apply", "-f", "-", input=text)

    def pod(self, name, namespace="default"):
        return self.api.get(f"{KINDS['pods'].format(namespace)}/{name}")

    def phase(self, name, namespace="default"):
        return (self.pod(name, namespace) or {}).get("status", {}).get("phase", "")

    def until_phase(self, name, *phases, namespace="default", timeout=90):
        try:
            return wait_until(lambda: (phase := self.phase(name, namespace)) in phases and phase,
                              f"pod {name} is {phases}", timeout)
        except AssertionError:
            print(json.dumps(self.pod(name, namespace), indent=1), *self.events(namespace), sep="\n")
            raise

    def events(self, namespace="default"):
        return [f"{event['involvedObject'].get('name')}: {event['reason']}: {event.get('message')}"
                for event in self.api.items(KINDS["events"].format(namespace))]

    def log_of(self, name, namespace="default"):
        return "".join(path.read_text(errors="replace") for path in sorted(
            (self.dir / "podlogs").glob(f"{namespace}_{name}_*/*/*.log")))

    def delete_pod(self, name, namespace="default", grace=0):
        self.api.delete(f"{KINDS['pods'].format(namespace)}/{name}", gracePeriodSeconds=grace)
        wait_until(lambda: self.pod(name, namespace) is None, f"pod {name} is gone", 90)

    def processes_of(self, uid):
        """Returns the pids in the control groups of the pod."""
        return {pid for folder, pids in groups_of_pods() if f"/pod{uid}" in folder for pid in pids}

    # --- leases ---
    def lease_of(self, name, namespace="default"):
        """Returns the living lease of the pod, or None."""
        tag = f"{namespace}.{name}"
        return next((lease for lease in self.daemon.leases() if lease["tag"] == tag), None)

    def until_lease(self, name, state, namespace="default", timeout=60):
        try:
            return wait_until(lambda: (lease := self.lease_of(name, namespace)) and lease["state"] == state and lease,
                              f"the lease of {name} is {state}", timeout)
        except AssertionError:
            print(json.dumps(self.daemon.leases(all=True), indent=1), *self.events(namespace),
                  json.dumps(self.pod(name, namespace), indent=1), sep="\n")
            raise

    def clear(self):
        """Starts again what a test has ended, and removes its pods and namespaces, for the next test."""
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        self.keep_running()
        wait_until(self.is_ready, "the API server is ready")
        for space in self.api.items("/api/v1/namespaces"):
            name = space["metadata"]["name"]
            if name.startswith("kube-") or name == SYSTEM:
                continue
            self.api.delete(KINDS["pods"].format(name), gracePeriodSeconds=0)
            self.api.delete(KINDS["claims"].format(name))
            self.api.delete(KINDS["events"].format(name))
            if name != "default":
                self.api.delete(f"/api/v1/namespaces/{name}")
        wait_until(lambda: not [pod for pod in self.api.items("/api/v1/pods")
                                if pod["metadata"]["namespace"] != SYSTEM], "no pod is left", 90)
        for node in self.api.items("/api/v1/nodes"):
            if node["metadata"]["name"] != "n1":  # the agent would be wanted there too
                self.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        for lease in self.daemon.leases():
            if lease["owner"]["kind"] != "group":
                self.daemon.cli("release", lease["id"], "--force")
        wait_until(lambda: not self.daemon.leases(), "no lease is left")
        for tenant in self.daemon.json("tenant", "ls")["tenants"]:  # a quota concerns the leases of all others
            self.daemon.cli("tenant", "rm", tenant["name"], check=0)

    def all_logs(self):
        return "\n".join(f"--- {name}\n{path.read_text(errors='replace')[-3000:]}" for name, path in self.logs.items()
                         if path.exists())

    # --- the end ---
    def _end_pods(self):
        """Ends all containers through containerd, then what is left of their processes by pid."""
        if (process := self.processes.get("kubelet")) is not None and process.poll() is None:
            self.kill("kubelet")
        deadline = time.monotonic() + 30
        while (pids := {pid for _, each in groups_of_pods() for pid in each}) and time.monotonic() < deadline:
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def _end_shims(self):
        mark = os.fsencode(self.dir / "containerd.sock")
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes()
                if b"containerd-shim" in words and mark in words:
                    os.kill(int(path.parent.name), signal.SIGKILL)

    def _remove_groups(self):
        for folder, _ in reversed(groups_of_pods()):
            with contextlib.suppress(OSError):  # a process is still ending there
                os.rmdir(folder)

    def close(self):
        self._end_pods()
        for name in reversed(list(self.processes)):
            process = self.processes[name]
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._end_shims()
        self._end_pods()
        if self.holder:
            self.holder.kill()
            self.holder.wait()
            self.holder.stdout.close()
        if self.daemon:
            self.daemon.close()
        self._remove_groups()
        mounted = pathlib.Path("/proc/self/mountinfo").read_text()
        assert f" {self.dir}" not in mounted, f"a mount below {self.dir} has leaked"
        shutil.rmtree(self.dir, ignore_errors=True)
        for path in self.made:
            with contextlib.suppress(OSError):
                path.rmdir()
        self.alone.close()
