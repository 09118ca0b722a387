# SPDX-License-Identifier: Apache-2.0
"""Faults of a node: parts that are killed at random, a second agent, and pods that stay outside."""
import json
import os
import random
import signal

from tests.support.kube_sublet import UNIT, agent_pid, pod
from tests.support.sublet import BIN, wait_until

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
        # The program checks its memory. Output that it writes while containerd is away is lost.
        assert status["phase"] == "Succeeded", (seed, name, json.dumps(status), sublet.log_of(name))
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


def test_a_pod_without_a_request_gets_no_lease(sublet):
    sublet.apply(pod("outside"))
    sublet.until_phase("outside", "Running", "Failed", "Succeeded")
    assert sublet.lease_of("outside") is None
