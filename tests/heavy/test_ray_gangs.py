# SPDX-License-Identifier: Apache-2.0
"""Placement groups of Ray: the members on one node are paused together, and a gang over two nodes is never paused."""
import pytest

from tests.support.sublet import GIB, MIB, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("ray")]

GANG = """
import os
from ray.util import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from sublet.ray import bundle, gpu
from tests.support.ray_work import Card, wait_for

@gpu(vram="6GiB", tier="batch", num_cpus=0, gang=gang)
class Part:
    def __init__(self, number):
        self.card = Card()
        self.card.write(number)

    def read(self):
        return self.card.read()

    def device(self):
        return os.environ["CUDA_VISIBLE_DEVICES"]

@gpu(vram="16GiB", tier="interactive", num_cpus=0)
def urgent(path):
    card = Card()
    wait_for(path)
    return "done"

def start(strategy, **resources):
    group = placement_group([bundle(vram="6GiB", cpus=0, **resources)] * 2, strategy=strategy)
    ray.get(group.ready(), timeout=60)
    parts = [Part.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote(index + 10)
             for index in range(2)]
    return group, parts, ray.get([part.read.remote() for part in parts])

"""
END = """
from ray.util import remove_placement_group
group, parts, _ = shared.pop("gang")
[ray.kill(part) for part in parts]
remove_placement_group(group)
"""


def gang_of(rays, code, gang="auto"):
    """Starts a gang, and returns the numbers that its members read from their cards."""
    return rays.run(GANG + f"shared['gang'] = {code}\nanswer = shared['gang'][2]", gang=gang)


def test_the_members_on_one_node_are_paused_together(rays, tmp_path):
    path = str(tmp_path / "end")
    assert gang_of(rays, "start('STRICT_PACK', node0=1)") == [10, 11]
    [gang] = rays.leases()
    assert gang["vram_bytes"] == 12 * GIB and gang["owner"]["kind"] == "connection" and gang["pausable"] == "auto"
    wait_until(lambda: rays.leases()[0]["used_bytes"] >= 128 * MIB, "the memory of both members is seen")
    rays.run(GANG + "shared['urgent'] = urgent.options(**on(0)).remote(path)", path=path, gang="auto")
    wait_until(lambda: [lease["id"] for lease in rays.leases("paused")] == [gang["id"]] and rays.leases("active"),
               "the gang makes way")
    assert rays.leases("paused")[0]["used_bytes"] == 0
    open(path, "w").close()
    assert rays.run("""
answer = [ray.get(shared.pop("urgent")), ray.get([part.read.remote() for part in shared["gang"][1]])]
""") == ["done", [10, 11]]
    rays.run(END)


def test_a_gang_can_have_a_card_for_each_member(rays):
    assert gang_of(rays, "start('STRICT_PACK', node1=1)", gang="spread") == [10, 11]
    [gang] = rays.leases(node=1)
    assert (gang["vram_bytes"], gang["device_count"]) == (6 * GIB, 2)
    seen = rays.run("answer = ray.get([part.device.remote() for part in shared['gang'][1]])")
    assert sorted(seen) == sorted(gang["devices"])
    rays.run(END)


def test_a_killed_member_leaves_the_lease_to_the_others(rays):
    assert gang_of(rays, "start('STRICT_PACK', node0=1)") == [10, 11]
    [gang] = rays.leases()
    assert rays.run("""
ray.kill(shared["gang"][1][0])
answer = ray.get(shared["gang"][1][1].read.remote())
""") == 11
    assert [(lease["id"], lease["state"]) for lease in rays.leases()] == [(gang["id"], "active")]
    rays.run(END)


def test_a_gang_over_two_nodes_is_never_paused(rays):
    assert gang_of(rays, "start('STRICT_SPREAD')") == [10, 11]
    parts = [lease for node in (0, 1) for lease in rays.leases(node=node)]
    assert [(lease["vram_bytes"], lease["pausable"]) for lease in parts] == 2 * [(6 * GIB, "no")]
    rays.run(END)
