# SPDX-License-Identifier: Apache-2.0
"""The status of pods by their memory: condition, events, the state in their containers, and their probes."""
import os
import subprocess
import threading
import time

import pytest

from tests.support.kubelet import Pod
from tests.support.sublet import BIN, GIB, wait_until

RESIDENT = "sublet.dev/Resident"


@pytest.fixture
def node(start_node):
    return start_node("1x4GiB", "--overcommit", "2")


def load(gib, seconds=600):
    return ["simgpu-load", "--alloc", f"{int(gib * 1024)}MiB", "--seconds", str(seconds)]


def condition(pod):
    return next((entry for entry in pod.conditions if entry["type"] == RESIDENT), None)


def told(pod):
    found = condition(pod)
    return found and (found["status"], found["reason"])


def state_in(pod):
    """Returns the state that the containers of the pod see."""
    mount = next(mount for mount in pod.handouts[0].mounts if mount.container_path == "/run/sublet/lease")
    assert mount.read_only
    return os.path.join(mount.host_path, "state")


def first_line(path):
    with open(path) as file:
        return file.readline().strip()


def pausing(node):
    """Starts a pod that is paused for another one; returns both."""
    node.api.add_class("urgent", 100000)
    first, second = Pod("train", 6), Pod("chat", 5, priorityClassName="urgent")
    node.kubelet.run(first, *load(2))
    wait_until(lambda: node.lease(first)["used_bytes"] > 2 * GIB, "the first pod uses its memory")
    wait_until(lambda: told(first) == ("True", "Granted"), "the pod has its memory")
    node.kubelet.run(second, *load(2))
    return first, second


def test_a_paused_pod_says_so_and_says_when_it_is_back(node):
    first, second = pausing(node)
    wait_until(lambda: first_line(state_in(first)) == "paused", "its containers see it")
    wait_until(lambda: told(first) == ("False", "Preempted"), "its condition says it")
    message = condition(first)["message"]
    assert node.lease(first)["id"] in message and node.lease(second)["id"] in message, message
    node.kubelet.remove(second)
    wait_until(lambda: told(first) == ("True", "Granted"), "it is back")
    assert first_line(state_in(first)) == "active"
    events = {path.rsplit("/", 1)[1]: body for path, body in node.api.objects.items() if "/events/" in path}
    assert sorted(body["reason"] for body in events.values()) == ["VramBack", "VramParked"]
    assert all(body["involvedObject"]["uid"] == first.uid for body in events.values())
    patches = [body for verb, path, body in node.api.calls if verb == "PATCH" and path.endswith("/train/status")]
    assert len(patches) == 3 and all(body["metadata"]["uid"] == first.uid for body in patches), patches


def test_an_agent_that_starts_again_repeats_nothing(node):
    pod = Pod("train", 2)
    node.kubelet.run(pod, "sleep", "600")
    wait_until(lambda: told(pod) == ("True", "Granted"), "the pod has its memory")
    patches = [call for call in node.api.calls if call[0] == "PATCH"]
    node.kill()
    node.start()
    second = Pod("other", 1)
    node.kubelet.run(second, "sleep", "600")
    wait_until(lambda: told(second) == ("True", "Granted"), "the agent works")
    wait_until(lambda: [call for call in node.api.calls if call[:2] == ("GET", "/api/v1/namespaces/vision/pods/train")],
               "the agent has looked at the first pod")
    assert [call for call in node.api.calls if call[0] == "PATCH" and "train" in call[1]] == patches


def test_an_agent_without_rights_or_api_server_still_starts_pods_that_it_can_read(node):
    pod = Pod("train", 2)
    node.kubelet.run(pod, "sleep", "600")
    wait_until(lambda: told(pod), "the pod has its memory")
    node.api.status = 403
    node.kubelet.admit(other := Pod("other", 2))
    node.kubelet.make_sandbox(other)
    with pytest.raises(Exception, match="check the rights of the agent"):
        node.kubelet.start_container(other)
    node.api.status = 0
    node.kubelet.start_container(other)
    wait_until(lambda: told(other) == ("True", "Granted"), "it is told later")


def test_a_deleted_pod_leaves_nothing_behind(node):
    pod = Pod("train", 2)
    node.kubelet.run(pod, "sleep", "600")
    wait_until(lambda: told(pod), "the pod has its memory")
    state = state_in(pod)
    node.kubelet.remove(pod)
    wait_until(lambda: not os.path.exists(state) and not list((node.state_dir / "pods").iterdir()), "nothing is left",
               90)


def test_the_state_in_containers_and_the_kubelet_do_not_wait_for_the_api_server(node):
    pod = Pod("train", 6)
    node.kubelet.run(pod, *load(1))
    wait_until(lambda: told(pod) == ("True", "Granted"), "the pod has its memory")
    os.utime(state_in(pod), (0, 0))
    wait_until(lambda: os.stat(state_in(pod)).st_mtime > 0, "the state is told again, so that it is known to be new")
    answer, hangs, held = node.api.answer, threading.Event(), threading.Event()

    def hang(*call):
        held.set()
        hangs.wait(60)
        return answer(*call)
    node.api.answer = hang
    try:
        node.daemon.cli("pause", node.lease(pod)["id"], check=0)
        assert held.wait(60), "the agent wants to tell the pause"
        before = node.kubelet.registered
        node.kubelet.restart()
        wait_until(lambda: node.kubelet.registered > before, "the agent registers with the next kubelet")
        wait_until(lambda: first_line(state_in(pod)) == "paused", "its containers see it")
        node.daemon.cli("resume", node.lease(pod)["id"], check=0)
        wait_until(lambda: first_line(state_in(pod)) == "active", "and that it goes on")
    finally:
        hangs.set()


def test_a_pod_whose_probe_would_end_it_is_not_paused(node):
    probe = {"name": "web", "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 2, "failureThreshold": 2}}
    wrapped = {"livenessProbe": {"exec": {"command": ["/run/sublet/sublet-probe", "curl", "localhost"]}}}
    for name, container, annotations, expected in (("strict", probe, {}, "no"), ("wrapped", wrapped, {}, "auto"),
                                                   ("chosen", probe, {"sublet.dev/pausable": "driver"}, "driver")):
        pod = Pod(name, 1, annotations=annotations)
        pod.spec["containers"] = [container]
        node.kubelet.run(pod, "sleep", "600")
        assert node.lease(pod)["pausable"] == expected, name
        told = [body["message"] for path, body in node.api.objects.items() if path.endswith(".notpausable")]
        assert len(told) == 1 and "livenessProbe of web" in told[0] and "sublet-probe" in told[0], (name, told)


def test_a_probe_succeeds_while_the_pod_is_paused(node, tmp_path):
    state = tmp_path / "state"

    def probe(*command):
        return subprocess.run([BIN / "sublet-probe", *command], env={**os.environ, "SUBLET_STATE": str(state)},
                              timeout=60, capture_output=True).returncode

    assert probe("true") == 0 and probe("sh", "-c", "exit 3") == 3, "without a file the command decides"
    assert probe("no-such-program") == 127 and probe() == 2
    state.write_text("active\nlease-1\n")
    assert probe("true") == 0 and probe("false") == 1
    for stands_still in ("pausing", "paused", "resuming", "queued"):
        state.write_text(f"{stands_still}\nlease-1\n")
        assert probe("false") == 0, stands_still
    state.write_text("active\nlease-1\n")
    began = tmp_path / "began"
    for age, status in ((10, 1), (60, 0), (3600, 1)):
        os.utime(state, (time.time() - age,) * 2)
        assert probe("false") == status, f"a state that was told {age} s ago"
    state.write_text("active\nlease-1\n")
    child = node.daemon.spawn(BIN / "sublet-probe", "sh", "-c", f"touch {began}; exec sleep 600",
                              env={**os.environ, "SUBLET_STATE": str(state)})
    wait_until(began.exists, "the command runs")
    state.write_text("paused\nlease-1\n")
    assert child.wait(60) == 0, "a command that began before the pause"
