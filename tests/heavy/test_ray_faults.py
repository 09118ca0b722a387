# SPDX-License-Identifier: Apache-2.0
"""Kills and cancellations in a cluster of Ray: no lease is left behind, and work that Ray repeats gets a new lease."""
import os
import signal

import pytest

from tests.support.sublet import GIB, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("ray")]

# Tasks that hold a number on the card until the file is there.
WORK = """
import os
from sublet.ray import gpu
from tests.support.ray_work import Card, wait_for

@gpu(vram="16GiB", tier="batch", num_cpus=0, max_retries=3)
def hold(path):
    card = Card()
    card.write(4711)
    wait_for(path)
    return card.read()

@gpu(vram="16GiB", tier="interactive", num_cpus=0)
def urgent(path):
    card = Card()
    wait_for(path)
    return "done"

def start(node, function=hold):
    shared["work"] = function.options(**on(node)).remote(path)

"""
FINISH = "answer = ray.get(shared.pop('work'), timeout=100)"


@pytest.fixture(name="path")
def path_fixture(tmp_path):
    path = tmp_path / "end"
    yield str(path)
    path.touch()


def finish(rays, path, code=FINISH):
    open(path, "w").close()
    return rays.run(code)


def active(rays, node=0, but=""):
    """Waits for the only active lease of a node whose program has memory on the card."""
    def found():
        leases = [lease for lease in rays.leases("active", node=node) if lease["id"] != but]
        return leases if len(leases) == 1 and leases[0]["used_bytes"] > 0 else None

    return wait_until(found, "one lease has memory")[0]


def test_a_killed_worker_is_repeated_under_a_new_lease(rays, path):
    rays.run(WORK + "start(0)", path=path)
    first = active(rays)
    os.kill(first["owner"]["pid"], signal.SIGKILL)
    second = active(rays, but=first["id"])
    assert second["owner"]["pid"] != first["owner"]["pid"]
    assert finish(rays, path) == 4711
    assert [lease["id"] for lease in rays.ended()] == [first["id"], second["id"]]


def test_a_killed_raylet_ends_the_leases_of_its_workers(rays, path):
    """The work runs again on the node that is left, which is of the same kind."""
    rays.run(WORK + """
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
node = start_node(cluster, 2, nodes[1]["env"], {**nodes[1]["resources"], "third": 1})
third = [row["NodeID"] for row in ray.nodes() if row["NodeManagerAddress"] == "127.0.0.4"][0]
soft = NodeAffinitySchedulingStrategy(third, soft=True)
shared["work"] = hold.options(scheduling_strategy=soft).remote(path)
shared["third"] = node
""", path=path)
    first = active(rays, node=1)
    rays.run("""
raylet = shared["third"].all_processes["raylet"][0].process
raylet.kill()
raylet.wait()  # for its workers, a zombie is a living raylet
""")
    wait_until(lambda: [lease["id"] for lease in rays.ended()] == [first["id"]], "its lease has ended")
    wait_until(lambda: rays.leases("active") or rays.leases("active", node=1), "the task runs again")
    assert finish(rays, path) == 4711
    rays.run("cluster.remove_node(shared.pop('third'), allow_graceful=False)")


def test_a_killed_daemon_keeps_the_lease_of_a_task(rays, path):
    rays.run(WORK + "start(0)", path=path)
    before = active(rays)
    rays.daemons[0].restart()
    after = active(rays)
    assert (after["id"], after["owner"]) == (before["id"], before["owner"])
    assert finish(rays, path) == 4711
    assert [lease["end_reason"] for lease in rays.ended()] == ["released"]


def test_a_daemon_that_is_away_is_looked_for_and_then_the_task_fails(rays, path):
    daemon = rays.daemons[0]
    daemon.kill()
    log = len(rays.log())
    code = WORK.replace('max_retries=3', 'max_retries=3, daemon_wait="{}"') + "start(0)\n"
    with pytest.raises(AssertionError, match="DaemonUnavailable.*no daemon answers at unix://"):
        rays.run(code.format("1s") + FINISH, path=path)
    rays.run(code.format("90s"), path=path)
    wait_until(lambda: "it is looked for, for 90 s" in rays.log()[log:], "the worker looks for the daemon")
    daemon.start()
    assert finish(rays, path) == 4711


def test_a_task_is_cancelled_while_it_waits(rays, path):
    with rays.hold(0, "20GiB", "critical"):
        rays.run(WORK + "start(0)", path=path)
        [waiting] = wait_until(lambda: rays.leases("queued"), "the task waits")
        wait_until(lambda: f"{waiting['id']} waits: place 1" in rays.log(), "the log of the worker shows the wait")
        assert rays.run("""
ray.cancel(shared["work"])
try:
    ray.get(shared.pop("work"), timeout=60)
except ray.exceptions.TaskCancelledError:
    answer = "cancelled"
""") == "cancelled"
        wait_until(lambda: not rays.leases("queued"), "the request is withdrawn")
    [ended] = [lease for lease in rays.ended() if lease["id"] == waiting["id"]]
    assert ended["end_reason"] == "cancelled" and ended["granted_at"] is None


def test_a_task_is_cancelled_while_it_is_paused(rays, path):
    rays.run(WORK + "start(0)", path=path)
    first = active(rays)
    rays.run(WORK + "shared['urgent'] = urgent.options(**on(0)).remote(path)", path=path)
    wait_until(lambda: [lease["id"] for lease in rays.leases("paused")] == [first["id"]], "it is paused")
    assert rays.run("""
ray.cancel(shared["work"], force=True)
try:
    ray.get(shared.pop("work"), timeout=60)
except (ray.exceptions.TaskCancelledError, ray.exceptions.WorkerCrashedError) as problem:
    answer = type(problem).__name__
""") == "TaskCancelledError"
    wait_until(lambda: not rays.leases("paused", "resuming"), "its lease has ended")
    assert finish(rays, path, "answer = ray.get(shared.pop('urgent'))") == "done"
    free = rays.daemons[0].get("/v1/devices")["devices"][0]
    wait_until(lambda: rays.free(0) == free["capacity_bytes"], "all memory is free again")


def test_a_factor_too_small_for_what_is_leased_is_refused(rays, path):
    rays.run(WORK + "start(0)", path=path)
    active(rays)
    refused = rays.ray_start(0, "--factor", "0.5")
    assert refused.returncode == 1 and refused.stdout == ""
    assert "work of Ray on this machine has leased 16.0 GiB, and the factor declares 11.0 GiB" in refused.stderr
    assert "give --factor 0.69 or more" in refused.stderr
    assert rays.leases()[0]["vram_bytes"] == 16 * GIB
    assert finish(rays, path) == 4711
