# SPDX-License-Identifier: Apache-2.0
"""/metrics as a collector reads it, and the contract as the daemon serves it."""
import os
import re
import time

import yaml

from tests.support import contract
from tests.support.contract import ROOT
from tests.support.receiver import NOBODY
from tests.support.sublet import BUILD, GIB, wait_until
from tests.support.webhook import webhook

SAMPLE = re.compile(r'^([A-Za-z_]+)(\{(?:[A-Za-z_]+="(?:[^"\\\n]|\\.)*",?)+\})? (\S+)$')


def scrape(api):
    """Returns {name: {labels: value}}; every line is checked against the text format."""
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
        if not base.startswith("DCGM_"):
            assert (types[base] == "counter") == base.endswith("_total")
        samples = found.setdefault(name, {})
        assert labels not in samples, f"{line} twice"
        samples[labels] = float(value)
    return found


# Every name with its labels: collectors and their alarms depend on them.
NAMES = {
    "sublet_build_info": {"version"}, "sublet_start_time_seconds": set(), "sublet_store_up": set(),
    "sublet_warnings": {"code"}, "sublet_events_total": set(), "sublet_gpu_memory_bytes": {"gpu", "state"},
    "sublet_gpu_memory_total_bytes": {"gpu", "name"}, "sublet_gpu_known": {"gpu"},
    "sublet_gpu_memory_used_bytes": {"gpu"}, "sublet_gpu_utilization_ratio": {"gpu"},
    "sublet_tenant_memory_used_bytes": {"tenant", "user", "gpu"},
    "sublet_gpu_reading_age_seconds": {"gpu"}, "sublet_leases": {"state"}, "sublet_queue_length": {"tier"},
    "sublet_queue_longest_wait_seconds": {"tier"}, "sublet_paused_longest_seconds": set(),
    "sublet_tenant_memory_bytes": {"tenant", "user", "gpu"}, "sublet_ledger_bytes": {"state"},
    "sublet_tenant_leases": {"tenant", "state"}, "sublet_tenant_queue_wait_seconds_sum": {"tenant"},
    "sublet_tenant_queue_wait_seconds_count": {"tenant"},
    "sublet_tenant_quota_bytes": {"tenant"}, "sublet_tenant_limit_bytes": {"tenant"},
    "sublet_tenant_held_bytes": {"tenant"}, "sublet_tenant_borrowed_bytes": {"tenant"},
    "sublet_tenant_weight": {"tenant"}, "sublet_tenant_guarantee_wait_seconds": {"tenant"},
    "sublet_usage_byte_seconds_total": {"user", "tenant"}, "sublet_leases_ended_total": {"reason"},
    "sublet_queue_wait_seconds_bucket": {"le"}, "sublet_queue_wait_seconds_sum": set(),
    "sublet_queue_wait_seconds_count": set(), "sublet_pauses_total": {"method", "result"},
    "sublet_events_delivered_total": {"target", "result"}, "sublet_events_behind": {"target"},
    "sublet_limit_violations_total": {"gpu"}, "sublet_guard_programs": {"state"},
    "sublet_sessions": {"state"},
}
ELSEWHERE = {
    "sublet_stacks": {"state"},  # test_stacks.py: only with stacks
    # test_limit.py: only with programs behind the interposer
    "sublet_interposer_launches_total": {"tenant", "user"}, "sublet_interposer_copied_bytes_total": {"tenant", "user"},
    "sublet_interposer_allocated_bytes_total": {"tenant", "user"},
    "sublet_interposer_busy_seconds_total": {"tenant", "user"},
    "sublet_interposer_waited_seconds_total": {"tenant", "user"}, "sublet_interposer_share_percent": {"tenant", "user"},
    "sublet_interposer_errors_total": {"tenant", "user", "code"}}


def test_every_name_and_label_is_a_promised_one(start_daemon):
    daemon = start_daemon(config='[gpu]\ninterval_idle = "1s"\n' + NOBODY)
    api = daemon.api()
    api.post("/v1/tenants/vision", {"quota_bytes": GIB, "limit_bytes": 2 * GIB})
    api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    ended = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    api.post(f"/v1/leases/{ended['id']}/release", {})
    daemon.ctl("fault", "nvml-error")
    wait_until(lambda: api.get("/v1/status")["warnings"], "something is wrong")
    found = scrape(api)
    labels = {name: {frozenset(re.findall(r'([a-z]+)="', sample or "")) for sample in samples}
              for name, samples in found.items() if name.startswith("sublet_")}
    assert labels == {name: {frozenset(keys)} for name, keys in NAMES.items()}


def test_the_documentation_lists_them_all():
    listed = {}
    for line in (ROOT / "docs" / "api.md").read_text().splitlines():
        cells = [re.findall(r"`([a-z_]+)`", cell) for cell in line.split("|")[1:3]]
        if line.startswith("| `sublet_"):
            listed.update((name, set(cells[1])) for name in cells[0])
    assert listed == {re.sub("_(bucket|sum|count)$", "", name): keys for name, keys in
                      sorted({**NAMES, **ELSEWHERE}.items(), key=lambda entry: "le" in entry[1])}


def test_pauses_are_counted_by_result(daemon):
    api = daemon.api()

    def pauses(result):
        return scrape(api)["sublet_pauses_total"][f'{{method="cooperative",result="{result}"}}']

    def lease_with(hook):
        program = daemon.spawn("sleep", "600")
        lease = api.post("/v1/leases", {"vram_bytes": GIB, "owner": {"pid": program.pid}})
        path = f"/v1/leases/{lease['id']}"
        assert api.post(path + "/cooperate", hook).status == 200
        assert api.post(path + "/pause", {}).status == 202
        return path, program

    assert len(scrape(api)["sublet_pauses_total"]) == 6 and set(scrape(api)["sublet_pauses_total"].values()) == {0}
    with webhook() as at_once, webhook(at_once=False) as later:
        lease_with(at_once)
        wait_until(lambda: pauses("paused") == 1, "it is paused")
        path, _ = lease_with(later)
        order = wait_until(lambda: (lambda now: now["number"] if now["order"] == "yield" else None)(
            api.get(path + "/cooperate?wait=1s")), "it is told")
        assert api.post(path + "/cooperate/answer", {"number": order, "answer": "refused"}).status == 200
        wait_until(lambda: pauses("undone") == 1, "it is undone")
        _, program = lease_with(later)
        program.kill()
        program.wait()
        wait_until(lambda: pauses("ended") == 1, "it has ended meanwhile")
    assert (pauses("paused"), pauses("undone"), pauses("ended")) == (1, 1, 1)


def test_paused_and_waiting_leases_in_metrics(daemon):
    api = daemon.api()

    def agrees(*tiers):
        """The waiting metric equals /v1/queue, by tier."""
        rows = [row["tier"] for row in api.get("/v1/queue")["queue"]]
        assert sorted(rows) == sorted(tiers)
        return scrape(api)["sublet_queue_length"] == {
            f'{{tier="{tier}"}}': rows.count(tier) for tier in ("critical", "interactive", "standard", "batch", "spot")}

    def held():
        return sum(scrape(api)["sublet_tenant_memory_bytes"].values())

    with webhook() as at_once:
        ask = {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "tier": "batch"}
        path = f"/v1/leases/{api.post('/v1/leases', ask)['id']}"
        assert held() == 3 * GIB
        assert api.post(path + "/cooperate", dict(at_once, residue_bytes=GIB // 4)).status == 200
        assert api.post(path + "/pause", {}).status == 202
        wait_until(lambda: api.get(path)["state"] == "paused", "it is paused")
        assert held() == GIB // 4 and agrees()
        other = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "pausable": "no"})
        assert api.post("/v1/leases", {"vram_bytes": 2 * GIB, "ttl_seconds": 600, "pausable": "no"}).status == 201
        assert held() == 3 * GIB + GIB // 4 < api.get("/v1/devices")["devices"][0]["total_bytes"]
        assert api.post(path + "/resume", {}).status == 202 and agrees("batch")
        other = f"/v1/leases/{other['id']}"
        assert api.post(other + "/resize", {"vram_bytes": 2 * GIB}).status == 202 and agrees("batch", "standard")
        assert api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "tier": "spot"}).status == 202
        assert agrees("batch", "standard", "spot") and held() == 3 * GIB + GIB // 4
        report = api.get("/v1/report")["total"]
        assert (report["leases"], report["active"], report["waiting"]) == (4, 3, 3)


def test_growth_counts_as_waiting(daemon):
    api = daemon.api()
    ask = {"vram_bytes": GIB, "ttl_seconds": 600}
    mine, other = (f"/v1/leases/{api.post('/v1/leases', dict(ask, vram_bytes=size * GIB))['id']}" for size in (1, 2))

    def waits():
        now = scrape(api)
        return now["sublet_queue_wait_seconds_count"][None], now["sublet_queue_wait_seconds_sum"][None]

    assert waits()[0] == 2
    asked = time.monotonic()
    assert api.post(mine + "/resize", {"vram_bytes": 3 * GIB}).status == 202
    queued = time.monotonic()
    assert "WAITING" in daemon.cli("report", check=0).stdout and waits()[0] == 2
    before = time.monotonic()
    assert api.post(other + "/release", {}).status == 200
    wait_until(lambda: api.get(mine)["vram_bytes"] == 3 * GIB, "it has grown")
    count, waited = waits()
    assert count == 3 and before - queued <= waited < time.monotonic() - asked + 0.1


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
    assert now["sublet_tenant_memory_used_bytes"] == {labels: 0}
    assert list(now["sublet_gpu_memory_used_bytes"].values()) == [device["used_bytes"]]
    assert list(now["sublet_gpu_utilization_ratio"].values()) == [0]
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
    # The label names the process: its number alone may be a part of a card's name or of a count.
    assert "secret" not in text and held["id"] not in text and "pid=" not in text


def test_supervised_programs_are_counted_by_state(daemon):
    api = daemon.api()
    body = {"arguments": ["true"], "directory": "/", "vram_bytes": GIB, "environment": [f"PATH={os.environ['PATH']}"]}
    for tag in ("one", "two"):
        assert api.post("/v1/programs", {"tag": tag, **body}).status == 201
    counts = wait_until(lambda: (now := scrape(api)["sublet_guard_programs"])['{state="exited"}'] == 2 and now,
                        "both have ended")
    assert sum(counts.values()) == 2 and len(counts) == 7


def test_the_daemon_tells_its_contract(daemon):
    reply = daemon.api().get("/v1/openapi.json")
    assert reply.body == contract.served()
    assert reply.body == yaml.safe_load((BUILD / "api/openapi.yaml").read_text()), "the file of a package"
    assert {"/v1/events", "/metrics"} < set(reply["paths"])
