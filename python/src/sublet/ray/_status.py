# SPDX-License-Identifier: Apache-2.0
"""The leases of Ray's work on all nodes of a cluster."""
from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Tuple
from urllib.parse import quote

from .._http import Call, client_here
from .._wait import waiting_of
from ..errors import SubletError
from ._engine import ray
from ._job import MARK
from ._watch import pause_text


@dataclass(frozen=True)
class Row:
    """One lease of a task, an actor or a gang; or a node without a daemon."""

    node: str  # id of Ray's node
    lease: str  # such as "lease-7"; "": no daemon answers on the node
    name: str  # tag of the lease: name, job and pid
    state: str  # of the lease, or "unavailable"
    vram_bytes: int  # on each device
    devices: Tuple[str, ...]  # UUIDs
    pid: Optional[int]  # of the worker; None: a gang
    job: str  # job, task or actor, namespace and node, as in `sublet ps`
    text: str  # "paused for lease-7, back about 14:05", the place of a waiting lease, or the state

    def __str__(self) -> str:
        return f"{self.node[:8]}  {self.lease:9}  {self.name}  {self.text}"


def status() -> List[Row]:
    """Asks the daemons of all living nodes, by a small task on each. Call it in a driver or a worker."""
    engine = ray()
    near = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    ask = engine.remote(num_cpus=0, max_retries=0)(rows_here)
    nodes = [node["NodeID"] for node in engine.nodes() if node["Alive"]]
    asked = [ask.options(scheduling_strategy=near(node_id=node, soft=False)).remote(node) for node in nodes]
    return [row for rows in engine.get(asked) for row in rows]


def rows_here(node: str) -> List[Row]:
    """Returns the leases of Ray's work that the daemon of this machine knows."""
    try:
        leases = ray_leases()
    except (SubletError, OSError) as problem:
        return [Row(node, "", "", "unavailable", 0, (), None, "", str(problem))]
    return [_row(node, lease) for lease in leases if f"node {node}" in lease["command"]]


def ray_leases() -> List[Mapping[str, Any]]:
    """Returns the living leases of this user's work in Ray."""
    found: List[Mapping[str, Any]] = []
    after = ""
    while True:
        page = client_here().call(Call("GET", f"/v1/leases{after}"))
        found += [lease for lease in page["leases"] if str(lease["command"] or "").startswith(MARK)]
        if page["next"] is None:
            return found
        after = f"?after={quote(page['next'], safe='')}"


def _row(node: str, lease: Mapping[str, Any]) -> Row:
    state = str(lease["state"])
    text = state
    if state == "paused":
        text = pause_text(lease)
    elif state == "queued":
        text = str(waiting_of(lease, 0.0, {}))
    return Row(node, str(lease["id"]), str(lease["tag"] or ""), state, int(lease["vram_bytes"]),
               tuple(lease["devices"]), lease["owner"]["pid"], str(lease["command"]), text)
