# SPDX-License-Identifier: Apache-2.0
"""Thirty pods while agent, daemon and kubelet are killed at random."""
import random
import time

import grpc

from tests.support.kubelet import Pod
from tests.support.sublet import MIB, wait_until

PODS, KILLS = 30, 12


def start_again_and_again(node, pod):
    """Admits and starts a pod as a kubelet does: each step until it succeeds."""
    def admits():
        try:
            return node.kubelet.channel is not None and node.kubelet.healthy() and node.kubelet.admit(pod)
        except (grpc.RpcError, ValueError, AttributeError):
            pod.ids.clear(), pod.handouts.clear()
            return False

    def starts():
        try:
            node.kubelet.start_container(pod, timeout=30)
        except (grpc.RpcError, ValueError, AttributeError):
            return False
        return True

    wait_until(admits, f"{pod.name} is admitted")
    node.kubelet.make_sandbox(pod)
    wait_until(starts, f"{pod.name} starts")


def kill_one(node, chance):
    victim = chance.choice(["agent", "daemon", "kubelet"])
    if victim == "agent":
        node.kill()
        node.start(wait=False)
    elif victim == "daemon":
        node.daemon.kill()
        node.daemon.restart(wait_for_cards=False)
    else:
        node.kubelet.restart()
    return victim


def test_thirty_pods_while_all_parts_are_killed(start_node):
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    chance = random.Random(seed)
    node = start_node("2x24GiB")
    living, kills = [], set(chance.sample(range(PODS), KILLS))
    for number in range(PODS):
        if number in kills:
            print(f"before pod {number}: {kill_one(node, chance)}")
        pod = Pod(f"pod-{number}", chance.randint(1, 2))
        start_again_and_again(node, pod)
        living.append(pod)
        if chance.random() < 0.3:
            node.kubelet.remove(living.pop(chance.randrange(len(living))))

    def sizes():
        return sorted((lease["tag"], lease["state"], lease["vram_bytes"]) for lease in node.daemon.leases())

    wanted = sorted((f"vision.{pod.name}", "active", pod.units[0] * 512 * MIB) for pod in living)
    wait_until(lambda: sizes() == wanted, f"each pod has its lease, and no other one lives: {wanted}")
    for pod in living:
        assert node.lease(pod) and pod.programs[0].poll() is None, pod.name
    wait_until(lambda: all(condition["status"] == "True" for pod in living for condition in pod.conditions) and
               all(pod.conditions for pod in living), "each pod says that it has its memory", 120)
