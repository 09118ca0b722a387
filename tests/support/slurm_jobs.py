# SPDX-License-Identifier: Apache-2.0
"""A cluster of Slurm for each file of tests, and the programs of its jobs."""
import pytest

from . import slurm
from .sublet import GIB

HOLD = "simgpu-load --alloc 1GiB --seconds 600 --verify"


@pytest.fixture(name="slurm_cluster", scope="module")
def slurm_cluster_fixture():
    if why := slurm.missing():
        pytest.skip(why)
    made = slurm.Cluster()
    yield made
    made.close()


@pytest.fixture(name="cluster")
def cluster_fixture(slurm_cluster, request):
    yield slurm_cluster
    failed = getattr(request.node, "call_failed", False)
    if failed:
        print(slurm_cluster.all_logs())
    slurm_cluster.clear()


def load(gib, seconds="600"):
    return f"simgpu-load --alloc {gib}GiB --seconds {seconds} --verify"


def not_drained(cluster):
    assert all(state in ("idle", "mixed", "allocated", "completing") for state in cluster.states().values())


def urgent(cluster, gib, node="n1"):
    """Returns a connection that holds a lease of a higher tier."""
    api = cluster.daemons[node].api()
    lease = api.post("/v1/leases", {"vram_bytes": gib * GIB, "tier": "interactive", "pausable": "no", "tag": "urgent",
                                    "owner": {"connection": True}, "wait_seconds": 60})
    assert lease.status in (201, 202), lease
    if lease["state"] != "active":
        assert api.post(f"/v1/leases/{lease['id']}/claim", {}).status == 200, lease
    return api
