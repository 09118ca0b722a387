# SPDX-License-Identifier: Apache-2.0
"""A driver of Ray with a cluster of two nodes, for tests/heavy/test_ray.py. It runs in .venv-ray.

Each line of its input is a JSON object with Python code. Each line on the file descriptor of its first argument is the
answer: the value of `answer` after the code, or the error. The second argument has the environment of each node.
"""
import json
import os
import sys
import traceback

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import sublet
import sublet.ray


def start_node(cluster, number, env, resources):
    """Adds a node with an address of its own. 127.0.0.1 does not work for clusters."""
    arguments = {"num_cpus": 2, "num_gpus": 0, "resources": resources, "env_vars": env,
                 "node_ip_address": f"127.0.0.{number + 2}", "object_store_memory": 100 << 20}
    return cluster.add_node(**arguments, **({"include_dashboard": False} if number == 0 else {}))


def main():
    answers = os.fdopen(int(sys.argv[1]), "w")
    nodes = json.loads(sys.argv[2])
    cluster = Cluster(initialize_head=False)
    started = [start_node(cluster, number, node["env"], node["resources"]) for number, node in enumerate(nodes)]
    ray.init(address=cluster.address, _node_ip_address="127.0.0.2", namespace="tests")
    ids = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes()}
    shared = {"ray": ray, "sublet": sublet, "cluster": cluster, "start_node": start_node, "nodes": nodes,
              "started": started, "node_ids": [ids[f"127.0.0.{number + 2}"] for number in range(len(nodes))]}

    shared["shared"] = shared  # one snippet leaves values for the next one here

    def on(number):
        """Returns the option for work on this node only."""
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(shared["node_ids"][number], soft=False)}

    def say(**answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say(answer=cluster.address)
    for line in sys.stdin:
        names = dict(shared, on=on, __name__="__main__")
        try:
            exec(compile(json.loads(line)["code"], "<test>", "exec"), names)
            say(answer=names.get("answer"))
        except BaseException as problem:
            say(error=f"{type(problem).__name__}: {problem}", trace=traceback.format_exc())
        del names
    cluster.shutdown()


main()
