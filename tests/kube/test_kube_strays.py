# SPDX-License-Identifier: Apache-2.0
"""Pods that use a card without a lease, and processes that leave their pods."""
from tests.support.kubelet import Pod
from tests.support.sublet import GIB, wait_until

LOAD = ("simgpu-load", "--alloc", "1GiB", "--seconds", "600")
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'


def privileged_pod(node):
    """Returns a pod that has asked for nothing, sees all cards, and uses one."""
    pod = node.kubelet.add(Pod("hidden"))
    node.kubelet.pods.append(pod)
    node.kubelet.make_sandbox(pod)
    inside = pod.group / "container0"
    inside.mkdir()
    pod.programs.append(node.daemon.spawn("sh", "-c", ENTER, inside, *LOAD))
    return pod


def test_a_warning_that_is_refused_hides_no_other(start_node):
    node = start_node("1x4GiB", agent=False)
    privileged_pod(node)
    node.daemon.spawn("sh", "-c", ENTER, node.groups.make("outside"), *LOAD)
    wait_until(lambda: len(node.daemon.get("/v1/verdicts")["verdicts"]) == 2, "the daemon has both verdicts")
    node.api.refused = ("/api/v1/namespaces/default/", 403)  # there is the event of the node
    node.start()
    wait_until(lambda: any("/events/hidden" in path for path in node.api.objects), "the pod is warned")


def test_a_pod_without_a_lease_gets_a_warning(start_node):
    node = start_node("1x4GiB", agent=False)
    privileged = privileged_pod(node)
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
    program = node.kubelet.run(pod, *LOAD)
    wait_until(lambda: node.lease(pod)["used_bytes"] > GIB, "the pod uses its memory")
    outside = node.groups.make("outside")
    node.groups.move(program.pid, outside)  # with hostPID and rights, nsenter --join-cgroup does so
    stray = node.daemon.spawn("sh", "-c", ENTER, outside, *LOAD)
    events = wait_until(lambda: [body for path, body in node.api.objects.items() if "/events/" in path],
                        "the node is warned")
    assert [(event["reason"], event["metadata"]["namespace"], event["involvedObject"]) for event in events] == [
        ("VramWithoutLease", "default", {"kind": "Node", "name": "n1", "uid": "n1"})], events
    assert f"pid {stray.pid}" in events[0]["message"] and "outside of all pods" in events[0]["message"]
    assert [verdict["pid"] for verdict in node.daemon.get("/v1/verdicts")["verdicts"]] == [stray.pid]
    assert node.lease(pod)["used_bytes"] > GIB, "a process that was seen in its pod stays counted for the pod"
