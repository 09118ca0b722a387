# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: parts that are killed at random, a reboot, agents without rights, and pods that stay outside."""
import json
import os
import random
import signal

from tests.support.kube import SYSTEM, groups_of_pods
from tests.support.kube_sublet import CHART, UNIT, UNIT_BYTES, agent_log, agent_pid, pod, until_units, values
from tests.support.sublet import BIN, GIB, living, wait_until

PARTS = ("agent", "daemon", "kubelet", "containerd")


def strike(cluster, part):
    """Kills a part of the node, and starts what nothing else starts again."""
    if part == "agent":
        if (pid := agent_pid(cluster)) is not None:
            os.kill(pid, signal.SIGKILL)
    elif part == "daemon":
        cluster.daemon.kill()
        cluster.daemon.start()
    else:
        cluster.kill(part)
        cluster.restart(part)


def ended_unseen(status):
    ends = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or []]
    return any((end.get("reason"), end.get("exitCode")) == ("Unknown", 255) for end in ends)


def test_pods_outlive_random_kills_of_the_parts_of_their_node(sublet):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"w{number}" for number in range(30)]
    for name in names:
        sublet.apply(pod(name, units=4, seconds=1))
    for part in chance.choices(PARTS, k=8):
        strike(sublet, part)
        sublet.allocatable(UNIT)
    refused = []
    for name in names:
        wait_until(lambda name=name: sublet.keep_running() and sublet.phase(name) in ("Succeeded", "Failed"),
                   f"{name} ends (seed {seed})", 120)
        status = sublet.pod(name)["status"]
        # The kubelet refuses a pod for good while no agent answers: its job would make another one.
        if status.get("reason") == "UnexpectedAdmissionError":
            refused.append(name)
            continue
        # Output and exit status of a program are lost while containerd is away. The cards count wrong words too.
        if ended_unseen(status):
            continue
        if status["phase"] != "Succeeded":
            print(json.dumps(status, indent=1), sublet.log_of(name), *sublet.events(), sep="\n")
        assert status["phase"] == "Succeeded", (seed, name)
    assert len(refused) < len(names), seed
    wait_until(lambda: not sublet.daemon.leases(), "no lease is left")
    assert sublet.daemon.cards()["violations"] == 0


def test_a_second_agent_on_a_node_waits_for_the_first(sublet):
    first = agent_pid(sublet)
    sublet.start("second-agent", [BIN / "sublet-kube", "--node-name=n1", "--api-server=http://127.0.0.1:1"])
    wait_until(lambda: "another sublet-kube runs" in sublet.logs["second-agent"].read_text(), "it says that it waits")
    assert agent_pid(sublet) == first and sublet.allocatable(UNIT) > 280
    sublet.kill("second-agent")
    del sublet.processes["second-agent"]


def outside(cluster, name):
    """Returns a privileged pod that asks for nothing, and takes the card of the node all the same."""
    made = pod(name, gib=1)
    container = made["spec"]["containers"][0]
    folder = str(cluster.daemon.dir / "simgpu")
    container.update(securityContext={"privileged": True}, env=[{"name": "SIMGPU_DIR", "value": folder}],
                     volumeMounts=[{"name": "cards", "mountPath": folder}])
    made["spec"]["volumes"] = [{"name": "cards", "hostPath": {"path": folder}}]
    return made


def test_a_privileged_pod_without_a_request_gets_no_lease_and_a_warning(sublet):
    sublet.apply(outside(sublet, "outside"))
    sublet.until_phase("outside", "Running")
    wait_until(lambda: any("outside: VramWithoutLease" in event and UNIT in event for event in sublet.events()),
               "the pod is warned", 90)
    assert sublet.lease_of("outside") is None and sublet.daemon.get("/v1/verdicts")["verdicts"]


def test_a_privileged_pod_that_enters_namespaces_of_the_host_is_counted_for_its_lease(sublet):
    made = pod("trusted", units=4)
    made["spec"]["hostPID"] = True
    container = made["spec"]["containers"][0]
    container["securityContext"] = {"privileged": True}
    enter = f"exec busybox nsenter -t {os.getpid()} -i -u"  # a process of the host
    container["command"][-1] = f"{enter} simgpu-load --alloc 128MiB --seconds 600"
    sublet.apply(made)
    lease = wait_until(lambda: (lease := sublet.lease_of("trusted")) and lease["used_bytes"] > GIB // 8 and lease,
                       "its memory is that of its lease", 120)
    assert lease["vram_bytes"] == 4 * UNIT_BYTES
    uid = sublet.pod("trusted")["metadata"]["uid"]
    assert not [each for each in sublet.daemon.get("/v1/verdicts")["verdicts"] if uid in each["cgroup"]]


def crash(cluster):
    """Ends all processes of the node at once, and removes what is in memory only."""
    for name in ("kubelet", "containerd"):
        cluster.kill(name)
    cluster.daemon.kill()
    for _, pids in groups_of_pods():
        for pid in pids:
            if living(pid):
                os.kill(pid, signal.SIGKILL)
    for path in (cluster.dir / "cdi").iterdir():
        path.unlink()


def service(units):
    """Returns a replica set, because the kubelet refuses a pod for good while no agent answers."""
    labels = {"app": "service"}
    template = {"metadata": {"labels": labels}, "spec": dict(pod("service", units)["spec"], restartPolicy="Always")}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "service"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}


def test_a_node_that_boots_again_runs_its_pods_again(sublet):
    sublet.apply(service(units=4))

    def running():
        leases = [lease for lease in sublet.daemon.leases() if lease["tag"].startswith("default.service-")]
        return [lease["id"] for lease in leases if lease["state"] == "active" and lease["used_bytes"] > 0]
    try:
        first = wait_until(running, "it runs")
        crash(sublet)
        sublet.daemon.start()
        for name in ("containerd", "kubelet"):
            sublet.restart(name)
        wait_until(lambda: sublet.keep_running() and (now := running()) and now != first, "it has a new lease", 180)
    finally:
        sublet.kubectl("delete", "replicaset", "service", "--wait=false")


def test_an_agent_without_rights_says_what_it_may_not_and_goes_on_with_them(sublet):
    killed = agent_pid(sublet)
    sublet.kubectl("delete", "clusterrolebinding", "sublet-kube")
    try:
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: "check the rights of the agent" in agent_log(sublet), "it says so", 120)
    finally:
        sublet.call("helm", "upgrade", "--install", "sublet", CHART, "--namespace", SYSTEM, *values(sublet))
    until_units(sublet)
    sublet.apply(pod("next", units=4))
    wait_until(lambda: (lease := sublet.lease_of("next")) and lease["used_bytes"] > GIB // 8, "it runs", 120)
