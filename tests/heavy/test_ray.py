# SPDX-License-Identifier: Apache-2.0
"""sublet.ray with Ray from PyPI: a cluster of two nodes, each with a daemon and a simulated card of 24 GiB."""
import json

import pytest

from tests.support.sublet import GIB, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("ray")]

SEED = """
import ray

@ray.remote
def hello():
    return "hello"

answer = ray.get(hello.remote())
"""
LEASED = SEED.replace("@ray.remote", "from sublet.ray import gpu\n@gpu(vram='6GiB')")
TWELVE = """
from sublet.ray import gpu
from tests.support.ray_work import Card

@gpu(vram="6GiB", num_cpus=0)
def step(number):
    card = Card()
    card.write(number)
    return card.read()

answer = ray.get([step.options(**on(0)).remote(number) for number in range(12)])
"""
# An actor with a number on its card. It answers health checks on a thread of its own.
ACTOR = """
import sublet.ray
from sublet.ray import gpu
from tests.support.ray_work import Card, wait_for

@gpu(vram="16GiB", tier="batch", num_cpus=0, max_concurrency=2)
class Model:
    def __init__(self):
        self.card = Card()

    def write(self, number):
        self.card.write(number)

    def read(self):
        return self.card.read()

    def health(self):
        return sublet.ray.healthy(), sublet.ray.paused(), sublet.ray.held().id

@gpu(vram="16GiB", tier="interactive", num_cpus=0)
def urgent(path):
    card = Card()
    wait_for(path)
    return "done"

"""


def test_the_first_program_of_ray_runs_unchanged_and_under_a_lease(rays):
    assert rays.run(SEED) == "hello"
    assert rays.run(LEASED) == "hello"
    [lease] = rays.ended()
    assert lease["consumer"] == "ray.hello" and lease["vram_bytes"] == 6 * GIB and lease["end_reason"] == "released"


def test_twelve_tasks_of_6_gib_finish_on_24_gib_with_factor_2(rays):
    assert rays.run(TWELVE) == list(range(12))
    assert [lease["end_reason"] for lease in rays.ended()] == 12 * ["released"]


def test_a_paused_actor_makes_way_and_comes_back(rays, tmp_path):
    rays.run(ACTOR + """
model = Model.options(name="model", **on(0)).remote()
ray.get(model.write.remote(4711))
""" + "answer = None\nshared['kept'] = [model]")
    [actor] = rays.leases("active")
    path = str(tmp_path / "end")
    rays.run(ACTOR + "shared['urgent'] = urgent.options(**on(0)).remote(path)", path=path)
    wait_until(lambda: rays.leases("paused") and len(rays.leases("active")) == 1, "the actor makes way")
    [first] = rays.leases("active")
    seen = rays.run("""
[model] = shared["kept"]
shared["reading"] = model.read.remote()
rows = {row.lease: row.text for row in sublet.ray.status()}
answer = [rows, ray.get(model.health.remote(), timeout=60)]
""")
    assert seen[0][first["id"]] == "active"
    assert seen[0][actor["id"]].startswith(f"paused for {first['id']}, back ")
    assert seen[1] == [True, True, actor["id"]], "health checks are answered during a pause"
    why = rays.daemons[0].cli("why", actor["id"], check=0).stdout
    assert "Its work is ray job 0" in why and ", actor model " in why and actor["tag"].startswith("model-0"), why
    wait_until(lambda: f"{actor['id']} ({actor['tag']}) is paused for {first['id']}, back " in rays.log(), "the log")
    open(path, "w").close()
    assert rays.run("""
answer = [ray.get(shared.pop("reading")), ray.get(shared.pop("urgent"))]
""") == [4711, "done"]
    wait_until(lambda: f"{actor['id']} ({actor['tag']}) runs again after" in rays.log(), "the log")
    rays.run("ray.kill(shared.pop('kept')[0])")


def test_a_namespace_or_a_runtime_environment_names_the_tenant(rays):
    assert rays.run(LEASED) == "hello"
    assert rays.run(LEASED.replace("6GiB'", "6GiB', runtime_env={'env_vars': {'SUBLET_TENANT': 'vision'}}")) == "hello"
    assert [lease["tenant"] for lease in rays.ended()] == ["tests", "vision"]


UNCHANGED = """
import json, os, ray, sublet.ray
from sublet.ray import gpu
ray.init(log_to_driver=False)

@ray.remote(resources={"vram_gib": 6}, num_cpus=0)
def step():
    return os.environ.get("SUBLET_LEASE")

@ray.remote(resources={"vram_gib": 4}, num_cpus=0)
class Model:
    def lease(self):
        return os.environ.get("SUBLET_LEASE")

@ray.remote(num_cpus=0)
def other():
    return os.environ.get("SUBLET_LEASE")

@gpu(vram="2GiB", tier="interactive", num_cpus=0)
def own():
    return sublet.current().vram_bytes

@gpu(vram="1GiB", tier="spot", num_cpus=0)
class Own:
    def size(self):
        return sublet.ray.held().vram_bytes

model, mine = Model.remote(), Own.remote()
assert ray.get(own.remote()) == 2 << 30 and ray.get(mine.size.remote()) == 1 << 30
print(json.dumps(ray.get([step.remote(), model.lease.remote(), other.remote()])))
"""


def test_unchanged_code_gets_leases_by_the_hook(rays):
    found = json.loads(rays.python(UNCHANGED, RAY_RUNTIME_ENV_HOOK="sublet.ray.environment"))
    assert found[2] is None and found[0] and found[1]
    wait_until(lambda: len(rays.ended()) == 4, "all leases have ended")
    leases = {lease["consumer"]: (lease["vram_bytes"], lease["tier"]) for lease in rays.ended()}
    assert leases == {"ray.step": (6 * GIB, "standard"), "ray.Model": (4 * GIB, "standard"),
                      "ray.own": (2 * GIB, "interactive"), "ray.Own": (GIB, "spot")}, "the decorator decides"


def test_a_generator_keeps_its_lease_and_sees_the_card_by_its_index(rays):
    assert rays.run("""
import os
from sublet.ray import gpu

@gpu(vram="2GiB", num_cpus=0, visible="index")
def numbers():
    for number in range(2):
        yield number, os.environ["CUDA_VISIBLE_DEVICES"], sublet.current().refresh()["state"]

answer = [ray.get(each) for each in numbers.options(**on(0)).remote()]
""") == [[0, "0", "active"], [1, "0", "active"]]


def test_work_that_is_too_large_for_a_card_fails_with_the_numbers(rays):
    with pytest.raises(AssertionError, match="TooLarge.*30.0 GiB") as caught:
        rays.run(LEASED.replace("6GiB", "30GiB"))
    assert "hello" in str(caught.value)


def test_work_without_a_lease_sees_no_card_and_gets_a_verdict_if_it_takes_one(rays, tmp_path):
    path = str(tmp_path / "end")
    rays.send("""
from tests.support.ray_work import Card, wait_for

@ray.remote(num_cpus=0)
def hidden():
    try:
        Card()
    except RuntimeError as problem:
        return str(problem)

@ray.remote(num_cpus=0, max_retries=0)
def thief(path):
    import os
    del os.environ["CUDA_VISIBLE_DEVICES"]
    card = Card()
    wait_for(path)
    return os.getpid()

shared["thief"] = thief.options(**on(0)).remote(path)
answer = ray.get(hidden.options(**on(0)).remote())
""", path=path)
    assert rays.result() == "cuInit: 100"
    daemon = rays.daemons[0]
    wait_until(lambda: daemon.get("/v1/verdicts")["verdicts"], "a verdict")
    [verdict] = daemon.get("/v1/verdicts")["verdicts"]
    open(path, "w").close()
    assert rays.run("answer = ray.get(shared.pop('thief'))") == verdict["pid"]
