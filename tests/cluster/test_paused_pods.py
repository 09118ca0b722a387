# SPDX-License-Identifier: Apache-2.0
"""Pods that are paused on a real node: their status, their probes, and the service that they belong to."""
from tests.support.kube_sublet import UNIT, agent_pid, pod, priority_class
from tests.support.sublet import GIB, wait_until

RESIDENT = "sublet.dev/Resident"
PROBE = {"periodSeconds": 1, "failureThreshold": 2, "timeoutSeconds": 1}


def resident(cluster, name):
    """Returns the condition of the pod: its status and its reason."""
    conditions = (cluster.pod(name) or {}).get("status", {}).get("conditions") or []
    return next(((each["status"], each["reason"]) for each in conditions if each["type"] == RESIDENT), None)


def until_resident(cluster, name, status, *reasons):
    wait_until(lambda: (now := resident(cluster, name)) and now[0] == status and (not reasons or now[1] in reasons),
               f"{name} says {status} {reasons}", 60)


def container_of(cluster, name):
    return cluster.pod(name)["status"]["containerStatuses"][0]


def training(cluster, **spec):
    """Returns a pod of a low class, and makes the classes."""
    cluster.apply(priority_class("low", 10, tier="batch"), priority_class("high", 2000, tier="interactive"))
    return pod("train", units=120, gib=7, priorityClassName="low", **spec)


def pause_training(cluster):
    """Starts a pod of a higher class, which stays."""
    wait_until(lambda: (lease := cluster.lease_of("train")) and lease["used_bytes"] > 7 * GIB, "it fills its memory")
    cluster.apply(pod("chat", units=100, gib=5.5, priorityClassName="high"))
    cluster.until_lease("train", "paused")


def test_the_status_and_the_events_of_a_pod_tell_a_pause(sublet):
    sublet.apply(training(sublet))
    until_resident(sublet, "train", "True", "Granted")
    pause_training(sublet)
    until_resident(sublet, "train", "False", "Preempted")
    wait_until(lambda: any("train: VramParked" in event for event in sublet.events()), "an event tells the pause")
    assert sublet.phase("train") == "Running"
    table = sublet.kubectl("sublet", "ps").stdout
    assert "train" in table and "Preempted" in table, table
    why = sublet.kubectl("sublet", "why", "train").stdout
    assert "Preempted" in why and "is paused" in why, why
    sublet.delete_pod("chat")
    until_resident(sublet, "train", "True", "Granted")
    wait_until(lambda: any("train: VramBack" in event for event in sublet.events()), "an event tells its end")
    assert container_of(sublet, "train")["restartCount"] == 0


def test_a_pod_with_the_readiness_gate_leaves_its_service_while_it_is_paused(sublet):
    sublet.apply(training(sublet, readinessGates=[{"conditionType": RESIDENT}]))
    wait_until(lambda: sublet.condition(sublet.pod("train"), "Ready") == "True", "it is ready")
    pause_training(sublet)
    wait_until(lambda: sublet.condition(sublet.pod("train"), "Ready") == "False", "it is not ready while it is paused")
    assert container_of(sublet, "train")["ready"] is True, "the container itself is left alone"
    sublet.delete_pod("chat")
    wait_until(lambda: sublet.condition(sublet.pod("train"), "Ready") == "True", "it is ready again")


def test_a_pod_that_its_liveness_probe_would_end_is_not_paused(sublet):
    made = training(sublet)
    made["spec"]["containers"][0]["livenessProbe"] = {"exec": {"command": ["/bin/true"]}, **PROBE}
    sublet.apply(made)
    wait_until(lambda: (lease := sublet.lease_of("train")) and lease["used_bytes"] > 7 * GIB, "it fills its memory")
    assert sublet.lease_of("train")["pausable"] == "no"
    sublet.apply(pod("chat", units=100, priorityClassName="high"))
    sublet.until_lease("chat", "queued")
    assert sublet.lease_of("train")["state"] == "active"


def test_a_pod_whose_probe_answers_for_it_outlives_a_pause(sublet):
    made = training(sublet)
    # The command of the probe fails while the program stands still, as that of a server does.
    failing = ["/run/sublet/sublet-probe", "/bin/grep", "-q", "active", "/run/sublet/lease/state"]
    made["spec"]["containers"][0]["livenessProbe"] = {"exec": {"command": failing}, **PROBE}
    sublet.apply(made)
    pause_training(sublet)
    until_resident(sublet, "train", "False")
    sublet.apply(pod("later", units=1))  # the kubelet has looked at the probes meanwhile
    sublet.until_phase("later", "Running")
    assert container_of(sublet, "train")["restartCount"] == 0
    sublet.delete_pod("chat")
    until_resident(sublet, "train", "True")
    assert container_of(sublet, "train")["restartCount"] == 0


def test_a_waiting_pod_says_so(sublet):
    made = pod("full", units=150, gib=1)
    made["metadata"]["annotations"] = {"sublet.dev/pausable": "no"}
    sublet.apply(made)
    sublet.until_lease("full", "active")
    sublet.apply(pod("waits", units=100))
    until_resident(sublet, "waits", "False", "Queued")
    why = sublet.kubectl("sublet", "why", "waits").stdout
    assert "place 1" in why and "short" in why, why
    assert agent_pid(sublet) and sublet.allocatable(UNIT)
