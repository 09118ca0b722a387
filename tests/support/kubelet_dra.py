# SPDX-License-Identifier: Apache-2.0
"""The kubelet's side of dynamic resource allocation, for the fake kubelet: claims, and a container by its CDI file."""
import contextlib
import json
import os
import pathlib
import uuid

import grpc

from tests.support.kubelet import messages
from tests.support.sublet import BIN, wait_until

DRIVER = "vram.sublet.dev"


class Claim:
    """A claim that the scheduler has given a part of a card of the node."""

    def __init__(self, node, pod, vram, guaranteed="0", device="gpu-0", config=(), name="gpu"):
        self.node, self.pod, self.name, self.uid = node, pod, f"{pod.name}-{name}", str(uuid.uuid4())
        self.path = f"/apis/resource.k8s.io/v1/namespaces/{pod.space}/resourceclaims/{self.name}"
        self.results = [{"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, "shareID": "share-1",
                         "consumedCapacity": {"vram": vram, "guaranteed": guaranteed}}]
        self.config = [{"source": source, "opaque": {"driver": DRIVER, "parameters": {
            "apiVersion": "sublet.dev/v1", "kind": "Lease", **parameters}}} for source, parameters in config]
        self.pods = [pod]
        node.kubelet.add(pod)
        self.put()

    def put(self):
        self.node.api.put(self.path, {
            "metadata": {"namespace": self.pod.space, "name": self.name, "uid": self.uid},
            "status": {"allocation": {"devices": {"results": self.results, "config": self.config}},
                       "reservedFor": [{"resource": "pods", "name": pod.name, "uid": pod.uid} for pod in self.pods]}})

    def call(self, verb, timeout=60):
        dra = messages()["dra"]
        request = getattr(dra, f"Node{verb}ResourcesRequest")()
        request.claims.add(namespace=self.pod.space, name=self.name, uid=self.uid)
        socket = self.node.kubelet.dir / "plugins" / DRIVER / "dra.sock"
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            answer = channel.unary_unary(f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/Node{verb}Resources",
                                         request_serializer=request.SerializeToString,
                                         response_deserializer=getattr(dra, f"Node{verb}ResourcesResponse").FromString)(
                                             request, timeout=timeout, wait_for_ready=True)
        return answer.claims[self.uid]

    def prepare(self):
        """Prepares the claim until it has its memory, and returns its devices. Another refusal is an AssertionError."""
        def prepared():
            answer = self.call("Prepare")
            assert not answer.error or "waits" in answer.error, answer.error
            return list(answer.devices)
        return wait_until(prepared, "the claim is prepared")  # the kubelet repeats it too

    def refusal(self):
        answer = self.call("Prepare")
        assert not answer.devices, answer
        return answer.error

    def unprepare(self):
        assert self.call("Unprepare").error == ""

    @property
    def cdi(self):
        return self.node.daemon.dir / "cdi" / f"{DRIVER}-{self.uid}.json"

    def execute(self, *command):
        """Starts a program in the pod's group, with the edits of the CDI file."""
        edits = json.loads(self.cdi.read_text())["devices"][0]["containerEdits"]
        for mount in edits["mounts"]:
            assert pathlib.Path(mount["hostPath"]).exists(), mount
        env = {**os.environ, **dict(entry.split("=", 1) for entry in edits["env"])}
        env["PATH"] = f"{BIN}:{env['PATH']}"
        env.pop("SUBLET_HOST", None)
        inside = self.pod.group / "container0"
        inside.mkdir(exist_ok=True)
        program = self.node.daemon.spawn("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', inside, *command,
                                         env=env)
        self.pod.programs.append(program)
        return program


def plugin_info(node):
    """Returns what the driver answers to the kubelet that finds its socket, and tells it that it is registered."""
    registration = messages()["registration"]
    with grpc.insecure_channel(f"unix://{node.kubelet.dir}/plugins_registry/{DRIVER}-reg.sock") as channel:
        def call(name, request, answer):
            return channel.unary_unary(f"/pluginregistration.Registration/{name}",
                                       request_serializer=request.SerializeToString,
                                       response_deserializer=answer.FromString)(request, timeout=30,
                                                                                wait_for_ready=True)
        info = call("GetInfo", registration.InfoRequest(), registration.PluginInfo)
        call("NotifyRegistrationStatus", registration.RegistrationStatus(plugin_registered=True),
             registration.RegistrationStatusResponse)
    return info


@contextlib.contextmanager
def health_of_cards(node):
    """Yields a function that waits for the next state of the cards: their health by pool and name."""
    health = messages()["dra_health"]
    with grpc.insecure_channel(f"unix://{node.kubelet.dir}/plugins/{DRIVER}/dra.sock") as channel:
        stream = channel.unary_stream("/v1alpha1.DRAResourceHealth/NodeWatchResources",
                                      request_serializer=health.NodeWatchResourcesRequest.SerializeToString,
                                      response_deserializer=health.NodeWatchResourcesResponse.FromString)(
                                          health.NodeWatchResourcesRequest(), timeout=60, wait_for_ready=True)
        yield lambda: {(one.device.pool_name, one.device.device_name): health.HealthStatus.Name(one.health)
                       for one in next(stream).devices}
        stream.cancel()
