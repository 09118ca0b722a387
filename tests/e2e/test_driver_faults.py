# SPDX-License-Identifier: Apache-2.0
"""A driver with wrong answers, and clocks that jump: unknown memory is never promised, and no lease ends for it."""
import datetime
import json
import os
import signal

from tests.support.sublet import GIB, MIB, wait_until

QUICK = ('[gpu]\ninterval_idle = "200ms"\ninterval_busy = "100ms"\nmax_age = "2s"\ntimeout = "1s"\n'
         '[device]\nheadroom = "64MiB"\n[lease]\nlinger = "500ms"\nreconnect = "3s"\n')
HOUR_NS = 3600 * 10**9


def card(daemon):
    return daemon.get("/v1/devices")["devices"][0]


def snapshot_after(daemon):
    """Waits until the daemon has read the card twice more, with any result."""
    def questions():
        return daemon.cards()["calls"].get("nvmlDeviceGetMemoryInfo_v2", 0)

    before = questions()
    wait_until(lambda: questions() >= before + 3, "the card is read again")


def load(daemon, vram="1GiB", alloc="900MiB"):
    """A leased program that holds VRAM; returns its keeper and its measured lease."""
    keeper = daemon.spawn("sublet", "run", "--vram", vram, "--", "simgpu-load", "--alloc", alloc, "--seconds", "600")
    at_least = int(alloc.removesuffix("MiB")) * MIB
    lease = wait_until(lambda: next((now for now in daemon.leases() if now["used_bytes"] >= at_least and
                                     now["owner"]["keeper_pid"] == keeper.pid), None), "it runs")
    return keeper, lease


def test_a_process_missing_from_the_list_stays_charged(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    keeper, lease = load(daemon)
    load(daemon, "600MiB", "500MiB")
    before = card(daemon)
    daemon.ctl("fault", "nvml-missing-pid", "--pid", lease["owner"]["pid"])
    snapshot_after(daemon)
    assert card(daemon)["effective_free_bytes"] <= before["effective_free_bytes"]
    assert daemon.get(f"/v1/leases/{lease['id']}")["state"] == "active"
    # The program ends while the driver hides it: its bytes stay charged until the card shows that they are gone.
    keeper.terminate()
    assert keeper.wait(60) == 143
    ended = daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["state"] == "ended"
    daemon.ctl("clear")
    wait_until(lambda: card(daemon)["used_bytes"] < before["used_bytes"], "it is measured gone")
    wait_until(lambda: card(daemon)["effective_free_bytes"] > before["effective_free_bytes"], "its room is free")


def test_old_figures_never_free_a_byte(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    keeper, lease = load(daemon, "3GiB", "2500MiB")
    waiter = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    assert waiter.status == 202
    daemon.ctl("fault", "nvml-late")
    keeper.terminate()
    assert keeper.wait(60) == 143
    ended = daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["state"] == "ended"
    snapshot_after(daemon)
    assert daemon.get(f"/v1/leases/{waiter['id']}")["state"] == "queued", "granted on what nobody has seen go"
    assert daemon.get(f"/v1/leases/{lease['id']}")["settling"]
    assert card(daemon)["effective_free_bytes"] < 3 * GIB
    daemon.ctl("clear")
    wait_until(lambda: daemon.get(f"/v1/leases/{waiter['id']}")["state"] == "offered", "its bytes are gone")


def test_pids_of_another_namespace_end_nobody(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    keeper, lease = load(daemon)
    before = card(daemon)
    daemon.ctl("fault", "nvml-wrong-namespace")
    snapshot_after(daemon)
    now = card(daemon)
    assert now["effective_free_bytes"] <= before["effective_free_bytes"], "the same bytes under another name"
    assert now["state"] == "unknown" and "pid" in now["problem"], now
    assert daemon.get(f"/v1/leases/{lease['id']}")["state"] == "active" and keeper.poll() is None
    daemon.ctl("clear")
    wait_until(lambda: daemon.get(f"/v1/leases/{lease['id']}")["used_bytes"] > 0, "it is known again")
    keeper.terminate()
    assert keeper.wait(60) == 143


def test_a_device_that_is_lost_and_comes_back(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK.replace('max_age = "2s"', 'max_age = "1m"\ncordon_on = []'))
    api = daemon.api()
    lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    waiter = api.post("/v1/leases", {"vram_bytes": 3500 * MIB, "ttl_seconds": 600})
    assert (lease.status, waiter.status) == (201, 202)
    daemon.ctl("fault", "device-lost")
    wait_until(lambda: card(daemon)["state"] == "lost", "it is lost")
    assert any(w["code"].startswith("device") or w["code"] == "gpu" for w in daemon.get("/v1/status")["warnings"])
    refused = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "queue": False})
    assert (refused.status, refused["code"]) == (409, "GpuLost")
    daemon.ctl("clear")
    wait_until(lambda: card(daemon)["state"] == "ok", "it is back")
    assert api.lease(waiter["id"])["state"] == "queued", "who waits keeps its place"
    granted = wait_until(lambda: (r := api.post("/v1/leases", {"vram_bytes": 100 * MIB, "ttl_seconds": 600})).status
                         == 201 and r, "grants go on")
    assert granted["devices"]


def test_an_old_reading_grants_nothing(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK.replace('max_age = "2s"', 'max_age = "1s"'))
    api = daemon.api()
    daemon.ctl("fault", "nvml-hang")
    wait_until(lambda: card(daemon)["state"] == "unknown", "the last reading is too old")
    assert card(daemon)["snapshot_age_ms"] >= 1000 and card(daemon)["effective_free_bytes"] == 0
    refused = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "queue": False})
    assert (refused.status, refused["code"]) == (409, "Unverified")
    waiter = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "wait_seconds": 0})
    assert waiter.status == 202 and waiter["queue"]["eta_seconds"] is None
    wait_until(lambda: "the GPUs cannot be read, no lease is granted: the driver did not answer" in daemon.log(),
               "who reads the log learns of it")
    daemon.ctl("clear")
    wait_until(lambda: api.lease(waiter["id"])["state"] == "offered", "granted once the card is known")
    assert daemon.log().count("cannot be read") == 1 and "the GPUs can be read again" in daemon.log()


def test_a_driver_that_hangs_grants_nothing_although_its_last_reading_is_young(start_daemon):
    long = QUICK.replace('max_age = "2s"', 'max_age = "5m"').replace('timeout = "1s"', 'timeout = "5m"')
    daemon = start_daemon("1x4GiB", config=long)
    api = daemon.api()
    lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    assert lease.status == 201
    daemon.ctl("fault", "nvml-hang")
    told = wait_until(lambda: daemon.get("/v1/status")["warnings"], "a reading is late")
    assert [w["code"] for w in told] == ["gpu"] and "has not answered" in told[0]["text"], told
    refused = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "queue": False})
    assert (refused.status, refused["code"]) == (409, "Unverified"), refused
    waiter = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "wait_seconds": 0})
    assert waiter.status == 202 and api.lease(lease["id"])["state"] == "active"
    daemon.ctl("clear")
    wait_until(lambda: api.lease(waiter["id"])["state"] == "offered", "granted once the card is read")
    assert not daemon.get("/v1/status")["warnings"]


def test_one_card_that_errs_ends_no_lease_on_it(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK.replace('max_age = "2s"', 'max_age = "1s"'))
    api = daemon.api()
    leases = [api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600}) for _ in range(2)]
    assert [lease.status for lease in leases] == [201, 201]
    daemon.ctl("fault", "nvml-error", "--device", 1)
    wait_until(lambda: [d["state"] for d in daemon.get("/v1/devices")["devices"]] == ["ok", "unknown"], "one errs")
    # The helper starts NVML anew from time to time, and then cannot even identify the card.
    os.kill(daemon.child_pid("sublet-gpu"), signal.SIGKILL)
    wait_until(lambda: daemon.child_pid("sublet-gpu"), "another helper")
    for _ in range(4):
        snapshot_after(daemon)
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["state"] == "ok", "the other card is read")
    assert [api.lease(lease["id"])["state"] for lease in leases] == ["active", "active"]
    daemon.ctl("clear")
    wait_until(lambda: all(d["state"] == "ok" for d in daemon.get("/v1/devices")["devices"]), "both are known")
    assert [api.lease(lease["id"])["state"] for lease in leases] == ["active", "active"]


# --- clocks ---

def parse_time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def jump(daemon, ns):
    """Shifts stored times as if the wall clock had been set `ns` forward (back if negative) while the daemon was down.
    """
    daemon.kill()
    with daemon.store() as store:
        for id, document in store.execute("SELECT id, document FROM leases").fetchall():
            lease = {name: value - ns if name.endswith("_at") or name == "unheld_since" else value
                     for name, value in json.loads(document).items()}
            store.execute("UPDATE leases SET document = ?, ended_at = ended_at - ? WHERE id = ?",
                          (json.dumps(lease), ns, id))
        store.execute("UPDATE meta SET value = value - ? WHERE key IN ('last_time', 'clock_offset')", (ns,))
    daemon.start()


def test_a_clock_that_was_set_forward_expires_nothing(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    held = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    waiter = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    run = daemon.spawn("sublet", "run", "--vram", "500MiB", "--ttl", "1h", "--", "sleep", "600")
    running = wait_until(lambda: next((now for now in daemon.leases() if now["owner"]["pid"]), None), "it runs")
    jump(daemon, 10 * 365 * 24 * HOUR_NS)
    for _ in range(2):
        now = datetime.datetime.now(datetime.timezone.utc)
        left = parse_time(daemon.api().lease(running["id"])["expires_at"]) - now
        assert datetime.timedelta(minutes=50) < left < datetime.timedelta(minutes=70), left
        daemon.restart()
    assert run.poll() is None
    assert daemon.api().lease(held["id"])["state"] == "active"
    assert daemon.api().lease(waiter["id"])["queue"]["place"] == 1
    assert daemon.api().post(f"/v1/leases/{held['id']}/renew", {"ttl_seconds": 600}).status == 200


def test_a_clock_that_was_set_back_changes_no_order(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    held = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    first = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    jump(daemon, -HOUR_NS)
    second = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    assert (daemon.api().lease(first["id"])["queue"]["place"], second["queue"]["place"]) == (1, 2)
    assert daemon.api().post(f"/v1/leases/{held['id']}/renew", {"ttl_seconds": 1}).status == 200
    ended = daemon.api().get(f"/v1/leases/{held['id']}?wait=30s&since=active")
    assert ended["end_reason"] == "expired", "its second is a second, whatever the clock on the wall says"
    assert ended["ended_at"] > ended["granted_at"]
