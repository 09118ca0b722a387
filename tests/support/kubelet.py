# SPDX-License-Identifier: Apache-2.0
"""A kubelet without containers, and an API server with the objects of a test: what sublet-kube talks to.

The kubelet has real control groups and real sockets. It admits pods as the real one does: preferred units, Allocate,
and PreStartContainer before each start of a container.
"""
import contextlib
import http.server
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from concurrent import futures

import pytest

from tests.support.once import once
from tests.support.sublet import BIN, ROOT, wait_until

try:
    import grpc
except ImportError:
    grpc = None

PROTO = ROOT / "src" / "kube" / "proto"
RESOURCE = "sublet.dev/vram-512mi"


@once
def messages():
    """Returns the modules of the messages: device_plugin, registration, dra, dra_health, pod_resources."""
    into = tempfile.mkdtemp(prefix="sublet-proto-")
    names = ("device_plugin", "registration", "dra", "dra_health", "pod_resources")
    subprocess.run(["protoc", "-I", PROTO, f"--python_out={into}", *(f"{name}.proto" for name in names)], check=True)
    sys.path.insert(0, into)
    found = {name: importlib.import_module(f"{name}_pb2") for name in names}
    sys.path.remove(into)
    shutil.rmtree(into)
    return found


def skip_without_grpc():
    if grpc is None or shutil.which("protoc") is None:
        pytest.skip("needs python3-grpcio and protobuf-compiler")
    if not (BIN / "sublet-kube").exists():
        pytest.skip("this build has no sublet-kube")


class Pod:
    """A pod as its test made it, with the state that the kubelet keeps."""

    def __init__(self, name, units=(), space="vision", **spec):
        self.name, self.space, self.uid = name, space, str(uuid.uuid4())
        self.units = list(units) if isinstance(units, (list, tuple)) else [units]  # for each container
        self.annotations = spec.pop("annotations", {})
        self.init = spec.pop("init", ())  # numbers of the containers that the kubelet does not list
        containers = [{"name": f"c{number}"} for number in range(max(len(self.units), 1))]
        self.spec = {"nodeName": "n1", "containers": containers, **spec}
        self.ids = []       # of each container
        self.handouts = []  # the kubelet's answers of Allocate
        self.conditions, self.group, self.programs = [], None, []
        self.phase = "Running"

    def json(self):
        return {"kind": "Pod", "apiVersion": "v1", "spec": self.spec,
                "metadata": {"name": self.name, "namespace": self.space, "uid": self.uid,
                             "annotations": self.annotations},
                "status": {"phase": self.phase, "conditions": self.conditions}}


class ApiServer:
    """An API server with the objects that a test gives it. Requests are kept in `calls`."""

    def __init__(self):
        self.objects, self.calls, self.status = {}, [], 0  # status: of all answers; 0: the right one
        self.tokens = []
        self.unknown = "/none"  # the beginning of paths that this version does not have
        self.refused = ("/none", 0)  # the beginning of paths that are refused, and the status
        self.patched = threading.Condition()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                size = int(self.headers.get("Content-Length", 0))
                if "Authorization" in self.headers:
                    outer.tokens.append(self.headers["Authorization"])
                body = json.loads(self.rfile.read(size)) if size else None
                status, reply = outer.answer(self.command, self.path, body)
                text = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PATCH = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, method, path, body):
        with self.patched:
            self.calls.append((method, path, body))
            status = self.refused[1] if path.startswith(self.refused[0]) else self.status
            if status:
                return status, {"kind": "Status", "message": "told to refuse"}
            reply = self.change(method, path.split("?")[0], body)
            self.patched.notify_all()
            return reply

    def change(self, method, path, body):
        if path.startswith(self.unknown):
            return 404, {"kind": "Status", "message": "the server could not find the requested resource"}
        if method == "POST":
            name = body["metadata"].get("name") or body["metadata"]["generateName"] + str(len(self.calls))
            if f"{path}/{name}" in self.objects:
                return 409, {"kind": "Status", "message": f"{name} exists"}
            self.objects[f"{path}/{name}"] = body
            body["metadata"].setdefault("resourceVersion", "1")
            return 201, body
        found = self.objects.get(path.removesuffix("/status"))
        if found is None:
            return 404, {"kind": "Status", "message": f"{path} not found"}
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != found["metadata"].get("resourceVersion"):
                return 409, {"kind": "Status", "message": "changed meanwhile"}
            body["metadata"]["resourceVersion"] = str(int(found["metadata"]["resourceVersion"]) + 1)
            self.objects[path] = body
            return 200, body
        if method == "DELETE":
            return 200, self.objects.pop(path)
        if method == "PATCH":
            kept = found.json() if isinstance(found, Pod) else found
            for condition in body.get("status", {}).get("conditions", []):
                conditions = kept["status"].setdefault("conditions", [])
                conditions[:] = [old for old in conditions if old["type"] != condition["type"]] + [condition]
                if isinstance(found, Pod):
                    found.conditions = conditions
        return 200, found.json() if isinstance(found, Pod) else found

    def put(self, path, value):
        with self.patched:
            self.objects[path] = value

    def remove(self, path):
        with self.patched:
            self.objects.pop(path, None)

    def add_class(self, name, value, annotations=None):
        self.put(f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}",
                 {"metadata": {"name": name, "annotations": annotations or {}}, "value": value})

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def method(request, answer, call):
    return grpc.unary_unary_rpc_method_handler(call, request.FromString, answer.SerializeToString)


class Kubelet:
    """Serves the sockets of a kubelet and starts pods."""

    def __init__(self, daemon, groups, api):
        self.daemon, self.groups, self.api = daemon, groups, api
        self.dir = daemon.dir / "kubelet"
        self.pods, self.devices, self.registered, self.resource = [], {}, 0, RESOURCE
        self.server = self.channel = None
        self.changed = threading.Condition()
        self.start()

    # --- the sockets ---
    def start(self):
        plugin, lists = messages()["device_plugin"], messages()["pod_resources"]
        (self.dir / "device-plugins").mkdir(parents=True, exist_ok=True)
        (self.dir / "pod-resources").mkdir(exist_ok=True)
        for old in (self.dir / "device-plugins").iterdir():  # the real one does that too
            old.unlink()
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler("v1beta1.Registration", {
                "Register": method(plugin.RegisterRequest, plugin.Empty, self.register)}),
            grpc.method_handlers_generic_handler("v1.PodResourcesLister", {
                "List": method(lists.ListPodResourcesRequest, lists.ListPodResourcesResponse, self.list)})))
        self.server.add_insecure_port(f"unix://{self.dir}/pod-resources/kubelet.sock")
        self.server.add_insecure_port(f"unix://{self.dir}/device-plugins/kubelet.sock")
        self.server.start()

    def stop(self):
        self.server.stop(0).wait()
        if self.channel:
            self.channel.close()
        self.channel = None

    def restart(self):
        self.stop()
        with self.changed:
            self.devices = {}
        self.start()

    def register(self, request, _):
        assert (request.version, request.resource_name) == ("v1beta1", self.resource), request
        assert request.options.pre_start_required and request.options.get_preferred_allocation_available
        socket = self.dir / "device-plugins" / request.endpoint
        if self.channel:
            self.channel.close()
        self.channel = grpc.insecure_channel(f"unix://{socket}", [("grpc.max_receive_message_length", 4 << 20)])
        threading.Thread(target=self.watch, args=(self.channel,), daemon=True).start()
        with self.changed:
            self.registered += 1
            self.changed.notify_all()
        return messages()["device_plugin"].Empty()

    def watch(self, channel):
        plugin = messages()["device_plugin"]
        stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch",
                                      request_serializer=plugin.Empty.SerializeToString,
                                      response_deserializer=plugin.ListAndWatchResponse.FromString)
        with contextlib.suppress(grpc.RpcError, ValueError):
            for answer in stream(plugin.Empty(), wait_for_ready=True):
                with self.changed:
                    self.devices = {device.ID: device.health for device in answer.devices}
                    self.changed.notify_all()
        with self.changed:
            if channel is self.channel:
                self.devices = {}

    def list(self, request, _):
        answer = messages()["pod_resources"].ListPodResourcesResponse()
        for pod in list(self.pods):
            listed = answer.pod_resources.add(name=pod.name, namespace=pod.space)
            for number, ids in enumerate(pod.ids):
                if number in pod.init:
                    continue
                listed.containers.add(name=f"c{number}").devices.add(resource_name=self.resource, device_ids=ids)
        return answer

    def call(self, name, request, answer, timeout=60):
        plugin = messages()["device_plugin"]
        return self.channel.unary_unary(f"/v1beta1.DevicePlugin/{name}",
                                        request_serializer=request.SerializeToString,
                                        response_deserializer=getattr(plugin, answer).FromString)(
                                            request, timeout=timeout, wait_for_ready=True)

    def healthy(self):
        return [id for id, health in self.devices.items() if health == "Healthy"]

    # --- pods ---
    def add(self, pod):
        """Makes the object of the pod."""
        self.api.put(f"/api/v1/namespaces/{pod.space}/pods/{pod.name}", pod)
        if "priorityClassName" in pod.spec:
            found = self.api.objects.get(f"/apis/scheduling.k8s.io/v1/priorityclasses/{pod.spec['priorityClassName']}")
            pod.spec["priority"] = found["value"]
        return pod

    def admit(self, pod):
        """Gives each container its units, as at the admission of the pod."""
        plugin = messages()["device_plugin"]
        taken = {id for other in self.pods for ids in other.ids for id in ids}
        self.add(pod)
        for count in filter(None, pod.units):
            free = [id for id in self.healthy() if id not in taken]
            assert len(free) >= count, f"{len(free)} units are free, and {pod.name} asks for {count}"
            asked = plugin.PreferredAllocationRequest()
            asked.container_requests.add(available_deviceIDs=free, allocation_size=count)
            ids = list(self.call("GetPreferredAllocation", asked, "PreferredAllocationResponse")
                       .container_responses[0].deviceIDs)
            assert len(ids) == count and set(ids) <= set(free), ids
            request = plugin.AllocateRequest()
            request.container_requests.add(devices_ids=ids)
            pod.handouts.append(self.call("Allocate", request, "AllocateResponse").container_responses[0])
            pod.ids.append(ids)
            taken.update(ids)
        self.pods.append(pod)
        return pod

    def make_sandbox(self, pod, cgroup="kubepods/burstable/pod{uid}"):
        pod.group = self.groups.make(cgroup.format(uid=pod.uid, slice=pod.uid.replace("-", "_")))
        inside = pod.group / "sandbox"
        inside.mkdir()
        pod.programs.append(self.daemon.spawn("sleep", "600"))
        self.groups.move(pod.programs[0].pid, inside)

    def start_container(self, pod, number=0, timeout=60):
        """Calls PreStartContainer; raises grpc.RpcError if the plugin refuses."""
        request = messages()["device_plugin"].PreStartContainerRequest(devices_ids=pod.ids[number])
        self.call("PreStartContainer", request, "PreStartContainerResponse", timeout)

    def started(self, pod):
        """Calls PreStartContainer until the pod has its memory, as the kubelet does."""
        def starts():
            try:
                self.start_container(pod)
            except grpc.RpcError as refused:
                if "waits" in refused.details():
                    return False
                raise
            return True
        wait_until(starts, f"{pod.name} has its memory")

    def execute(self, pod, *command, number=0, **variables):
        """Starts a program in the container, with what Allocate has handed out, and with more variables."""
        inside = pod.group / f"container{number}"
        inside.mkdir(exist_ok=True)
        given = dict(pod.handouts[number].envs)
        for mount in pod.handouts[number].mounts:
            assert pathlib.Path(mount.host_path).exists(), mount
        env = {**os.environ, **given, "PATH": f"{BIN}:{os.environ['PATH']}", **variables}
        env.pop("SUBLET_HOST", None)
        program = self.daemon.spawn("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', inside, *command, env=env)
        pod.programs.append(program)
        return program

    def run(self, pod, *command):
        """Admits and starts the pod with one program."""
        self.admit(pod)
        self.make_sandbox(pod)
        self.started(pod)
        return self.execute(pod, *command)

    def remove(self, pod):
        """Deletes the pod: its processes, its group, its object."""
        for program in pod.programs:  # one that is not waited for stays in its group
            program.kill()
            program.wait()
        if pod.group:
            self.groups.remove(pod.group)
        if pod in self.pods:
            self.pods.remove(pod)
        self.api.remove(f"/api/v1/namespaces/{pod.space}/pods/{pod.name}")


class Node:
    """A daemon, a kubelet, an API server and the agent between them."""

    def __init__(self, daemon, groups, *flags):
        skip_without_grpc()
        self.daemon, self.groups, self.flags = daemon, groups, flags
        self.api = ApiServer()
        self.kubelet = Kubelet(daemon, groups, self.api)
        self.state_dir, self.log = daemon.dir / "kube", daemon.dir / "kube.log"
        self.agent = None

    def command(self, *flags):
        return [BIN / "sublet-kube", "--node-name", "n1", "--socket", self.daemon.socket, "--kubelet-dir",
                self.kubelet.dir, "--cdi-dir", self.daemon.dir / "cdi", "--state-dir", self.state_dir, "--cgroup-root",
                f"/{self.groups.top.name}", "--api-server", self.api.url, "--token-file", "/dev/null",
                "--start-wait", "2s", *self.flags, *flags]

    def start(self, wait=True):
        before = self.kubelet.registered
        with open(self.log, "ab") as log:
            self.agent = self.daemon.spawn(*self.command(), stdout=log, stderr=log)
        if wait:
            wait_until(lambda: self.kubelet.registered > before and self.kubelet.devices, "the agent registers")
        return self

    def kill(self):
        self.agent.kill()
        self.agent.wait()

    def text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def lease(self, pod):
        """Returns the living lease of the pod, or None."""
        found = [lease for lease in self.daemon.get("/v1/leases")["leases"]
                 if (lease["owner"].get("cgroup") or "").endswith(re.sub(r".*/kubepods", "/kubepods", str(pod.group)))]
        assert len(found) <= 1, found
        return found[0] if found else None

    def close(self):
        print(f"--- log of sublet-kube\n{self.text()}")
        if self.agent and self.agent.poll() is None:
            self.agent.terminate()
            self.agent.wait(30)
        self.kubelet.stop()
        self.api.close()
