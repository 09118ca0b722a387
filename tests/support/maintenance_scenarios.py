# SPDX-License-Identifier: Apache-2.0
"""Scenarios of devices out of service and of tenants, for tests that interrupt the daemon at each step."""
from tests.support.scenarios import scenario
from tests.support.sublet import GIB, wait_until


def service(client):
    return client.get("/v1/devices")["devices"][0]["service"]


@scenario()
def service_changed(client):
    client.post("/v1/devices/gpu0/cordon", {"reason": "new fan"})
    assert service(client)["state"] == "cordoned"
    client.post("/v1/devices/gpu0/uncordon", {})
    assert service(client) is None


@scenario()
def tenants_changed(client):
    client.post("/v1/tenants/vision", {"quota_bytes": GIB})
    assert client.get("/v1/tenants/vision")["quota_bytes"] == GIB


@scenario()
def draining(client):
    lease = client.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "pausable": "no"})["id"]
    client.post("/v1/devices/gpu0/drain", {"deadline_seconds": 600})
    wait_until(lambda: "draining" in [reason["code"] for reason in client.get(f"/v1/leases/{lease}/why")["reasons"]],
               "it is told")
    assert service(client)["leases"][0]["lease"] == lease
