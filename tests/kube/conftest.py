# SPDX-License-Identifier: Apache-2.0
"""Nodes without containers: a daemon with simulated cards, the agent, a fake kubelet and a fake API server."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.support.groups import Groups  # noqa: E402
from tests.support.kubelet import Node, skip_without_grpc  # noqa: E402
from tests.support.sublet import Daemon  # noqa: E402

CONFIG = ('[lease]\nlinger = "1s"\n[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[pause]\ncooldown = "1s"\nmin_residency = "0s"\n')


@pytest.fixture
def start_node():
    """Starts a node: start_node("1x4GiB", *flags of the agent). All ends with the test."""
    skip_without_grpc()
    made = []

    def start(cards, *flags, groups="memory", agent=True, config=CONFIG):
        daemon = Daemon(cards, config=config)
        made.append(daemon)
        daemon.start()
        tree = Groups(groups)
        made.append(tree)
        node = Node(daemon, tree, *flags)
        made.append(node)
        return node.start() if agent else node

    yield start
    for part in reversed(made):
        if isinstance(part, Daemon):
            print(f"--- log of {part.dir}\n{part.log()}")
        part.close()


@pytest.fixture
def node(start_node):
    return start_node("1x4GiB")
