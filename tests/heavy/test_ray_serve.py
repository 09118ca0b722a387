# SPDX-License-Identifier: Apache-2.0
"""A replica of Ray Serve under the hook: Serve finds it healthy while it is paused, and its request is answered later.
"""
import pytest

from tests.support.ray_place import VENV
from tests.support.sublet import GIB, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.xdist_group("ray")]

PROGRAM = """
import os, ray, select, sys
import sublet.ray
from ray import serve
from sublet.ray import gpu
from tests.support.ray_work import Card

path = sys.argv[1]
ray.init(runtime_env={"worker_process_setup_hook": "sublet.ray.setup", "env_vars": {"SUBLET_TIER": "batch"}})
serve.start(proxy_location="Disabled")

@serve.deployment(ray_actor_options={"num_cpus": 0, "resources": {"vram_gib": 16, "node0": 1}},
                  health_check_period_s=0.5, health_check_timeout_s=10)
class Model:
    def __init__(self):
        self.card = Card()
        self.card.write(4711)

    def check_health(self):
        if not sublet.ray.healthy():
            raise RuntimeError("the lease has ended")
        if sublet.ray.paused():
            with open(path, "a") as checks:
                checks.write("x")

    def __call__(self):
        return self.card.read(), os.getpid()

@gpu(vram="16GiB", tier="interactive", num_cpus=0, resources={"node0": 1})
def urgent():  # until Serve has checked the paused replica three times
    card = Card()
    while not os.path.exists(path) or os.path.getsize(path) < 3:
        select.select([], [], [], 0.05)

handle = serve.run(Model.bind(), route_prefix=None)
before = handle.remote().result()
more_urgent = urgent.remote()
while not os.path.exists(path):
    select.select([], [], [], 0.05)
during = handle.remote()
ray.get(more_urgent)
print(before == during.result() == handle.remote().result(), before[0])
serve.shutdown()
"""


def test_a_replica_is_healthy_while_it_is_paused(rays, tmp_path):
    if not list(VENV.glob("lib/python3*/site-packages/fastapi")):
        pytest.skip("Ray Serve is not installed: tools/ray-venv installs it from PyPI")
    assert "True 4711" in rays.python(PROGRAM, str(tmp_path / "checks")).splitlines()
    wait_until(lambda: len(rays.ended()) == 2, "both leases have ended")
    replica, urgent = rays.ended()
    assert replica["consumer"].startswith("ray.ServeReplica:default:Model") and replica["vram_bytes"] == 16 * GIB
    assert (replica["tier"], urgent["tier"], urgent["consumer"]) == ("batch", "interactive", "ray.urgent")
