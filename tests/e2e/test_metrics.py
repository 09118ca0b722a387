# SPDX-License-Identifier: Apache-2.0
"""/metrics as a collector reads it, and the contract as the daemon tells it."""
import re

import yaml

from tests.support.contract import ROOT
from tests.support.sublet import GIB

SAMPLE = re.compile(r'^([a-z_]+)(\{(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+\})? (\S+)$')


def scrape(api):
    """{name: {labels: value}}; every line is checked for the text form."""
    reply = api.get("/metrics")
    assert reply.status == 200 and reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert reply.body.endswith("\n")
    found, types, helped = {}, {}, set()
    for line in reply.body.splitlines():
        if line.startswith("# HELP "):
            helped.add(line.split(" ")[2])
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name in helped and name not in types
            types[name] = kind
            continue
        name, labels, value = SAMPLE.match(line).groups()
        base = name if name in types else re.sub("_(bucket|sum|count)$", "", name)
        assert base in types, f"{name} has no type"
        assert (types[base] == "counter") == base.endswith("_total")
        samples = found.setdefault(name, {})
        assert labels not in samples, f"{line} twice"
        samples[labels] = float(value)
    return found


def test_the_figures_are_those_of_the_tables(daemon):
    api = daemon.api()
    before = scrape(api)
    held = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "command": "secret.py"})
    waiting = api.post("/v1/leases", {"vram_bytes": 2 * GIB, "ttl_seconds": 600, "tier": "batch"})
    now = scrape(api)
    device = api.get("/v1/devices")["devices"][0]
    gpu = now["sublet_gpu_memory_bytes"]
    assert gpu[f'{{gpu="{device["uuid"]}",state="leased"}}'] == 3 * GIB
    assert gpu[f'{{gpu="{device["uuid"]}",state="free"}}'] == device["effective_free_bytes"]
    assert set(now["sublet_gpu_known"].values()) == {1}
    assert now["sublet_leases"]['{state="active"}'] == 1 and now["sublet_leases"]['{state="queued"}'] == 1
    assert now["sublet_queue_length"]['{tier="batch"}'] == 1 and now["sublet_queue_length"]['{tier="spot"}'] == 0
    labels = f'{{tenant="{held["tenant"]}",user="{held["user"]}",gpu="{device["uuid"]}"}}'
    assert now["sublet_tenant_memory_bytes"] == {labels: 3 * GIB}
    assert now["sublet_queue_wait_seconds_count"][None] == before["sublet_queue_wait_seconds_count"][None] + 1
    buckets = list(now["sublet_queue_wait_seconds_bucket"].values())
    assert buckets == sorted(buckets) and buckets[-1] == now["sublet_queue_wait_seconds_count"][None]
    for lease in (held, waiting):
        api.post(f"/v1/leases/{lease['id']}/release", {})
    after = scrape(api)
    assert after["sublet_leases_ended_total"] == {'{reason="released"}': 1, '{reason="cancelled"}': 1}
    (used,) = after["sublet_usage_byte_seconds_total"].values()
    assert 0 < used < 3 * GIB * 600
    text = api.get("/metrics").body
    assert "secret" not in text and held["id"] not in text and str(daemon.process.pid) not in text


def test_the_daemon_tells_its_contract(daemon):
    reply = daemon.api().get("/v1/openapi.json")
    assert reply.body == yaml.safe_load((ROOT / "api" / "openapi.yaml").read_text())
    assert {"/v1/events", "/metrics"} < set(reply["paths"])
