# SPDX-License-Identifier: Apache-2.0
"""Pods that use a card without a lease, and processes that leave their pods."""
from tests.support.kubelet import Pod
from tests.support.sublet import GIB, wait_until

ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def test_a_pod_without_a_lease_gets_a_warning(start_node):
    node = start_node("1x4GiB", agent=False)
    privileged = node.kubelet.add(Pod("hidden"))  # it has asked for nothing, and sees all cards
    node.kubelet.pods.append(privileged)
    node.kubelet.make_sandbox(privileged)
    inside = privileged.group / "container0"
    inside.mkdir()
    privileged.programs.append(node.daemon.spawn(
        "sh", "-c", ENTER, inside, "simgpu-load", "--alloc", "1GiB", "--seconds",
        "600"))
    node.kubelet.pods.append(Pod("gone"))  # its object is deleted already
    wait_until(lambda: node.daemon.get("/v1/verdicts")["verdicts"], "the daemon has a verdict")
    node.start()
    events = wait_until(lambda: [body for path, body in node.api.objects.items() if "/events/" in path],
                        "the pod is warned")
    assert [(event["reason"], event["type"], event["involvedObject"]["uid"]) for event in events] == [
        ("VramWithoutLease", "Warning", privileged.uid)]
    assert not [call for call in node.api.calls if call[1].startswith("/api/v1/pods")], "no pods of other nodes"
    assert "sublet.dev/vram-512mi" in events[0]["message"] and "simgpu-load" in events[0]["message"], events


def test_a_process_outside_of_all_pods_is_a_warning_of_the_node(node):
    pod = Pod("train", 4)
    program = node.kubelet.run(pod, "simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    wait_until(lambda: node.lease(pod)["used_bytes"] > GIB, "the pod uses its memory")
    outside = node.groups.make("outside")
    node.groups.move(program.pid, outside)  # with hostPID and rights, nsenter --join-cgroup does so
    stray = node.daemon.spawn("sh", "-c", ENTER, outside, "simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    events = wait_until(lambda: [body for path, body in node.api.objects.items() if "/events/" in path],
                        "the node is warned")
    assert [(event["reason"], event["metadata"]["namespace"], event["involvedObject"]) for event in events] == [
        ("VramWithoutLease", "default", {"kind": "Node", "name": "n1", "uid": "n1"})], events
    assert f"pid {stray.pid}" in events[0]["message"] and "outside of all pods" in events[0]["message"]
    assert [verdict["pid"] for verdict in node.daemon.get("/v1/verdicts")["verdicts"]] == [stray.pid]
    assert node.lease(pod)["used_bytes"] > GIB, "a process that was seen in its pod stays counted for the pod"
