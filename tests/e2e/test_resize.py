# SPDX-License-Identifier: Apache-2.0
"""Leases that change their size, and memory that is reserved for leases that have waited long."""
import re
import threading

import pytest

from tests.support.keeping import daemon, lease, queued  # noqa: F401
from tests.support.sublet import GIB, wait_until
from tests.support.webhook import webhook


def free_bytes(daemon):
    return daemon.get("/v1/devices")["devices"][0]["effective_free_bytes"]


def token_lease(api, **body):
    return api.post("/v1/leases", {"ttl_seconds": 600, **body})


def test_shrinks_and_grows_at_once(daemon):
    api = daemon.api()
    mine = token_lease(api, vram_bytes=2 * GIB)
    assert daemon.cli("resize", mine["id"], "1GiB").returncode == 0
    assert lease(daemon, mine["id"])["vram_bytes"] == GIB
    done = daemon.cli("resize", mine["id"], "3GiB")
    assert done.returncode == 0 and "has 3.0 GiB" in done.stderr, done.stderr
    now = lease(daemon, mine["id"])
    assert (now["vram_bytes"], now["reserved_bytes"], now["resize"]) == (3 * GIB, 3 * GIB, None)
    assert "grown from 1.0 GiB to 3.0 GiB on gpu0" in daemon.cli("why", mine["id"]).stdout
    api.close()


def test_a_waiting_growth_keeps_its_lease_and_survives_a_restart(daemon):
    api = daemon.api()
    mine, other = token_lease(api, vram_bytes=GIB), token_lease(api, vram_bytes=2 * GIB)
    done = daemon.cli("resize", mine["id"], "3GiB")
    assert done.returncode == 0 and "keeps 1.0 GiB and waits for 3.0 GiB, at place 1" in done.stderr, done.stderr
    reply = api.post(f"/v1/leases/{mine['id']}/resize", {"vram_bytes": 3 * GIB})
    assert reply.status == 202 and reply["resize"]["vram_bytes"] == 3 * GIB and reply["queue"]["place"] == 1
    assert reply["state"] == "active" and reply["vram_bytes"] == GIB
    assert daemon.cli("resize", mine["id"], "3GiB", "--wait", "1s").returncode == 124
    assert [row["id"] for row in api.get("/v1/queue")["queue"]] == [mine["id"]]
    queue = daemon.cli("queue", "--no-header", check=0).stdout.splitlines()
    assert len(queue) == 1 and mine["id"] in queue[0] and re.match(r"\s*1\b", queue[0]), queue
    api.close()
    daemon.kill()
    daemon.start()
    assert lease(daemon, mine["id"])["resize"]["vram_bytes"] == 3 * GIB
    api = daemon.api()
    result = {}
    waiting = daemon.api()
    waiter = threading.Thread(target=lambda: result.update(reply=waiting.post(
        f"/v1/leases/{mine['id']}/resize", {"vram_bytes": 3 * GIB, "wait_seconds": 60})))
    waiter.start()
    assert api.post(f"/v1/leases/{other['id']}/release", {}).status == 200
    waiter.join(timeout=60)
    assert result["reply"].status == 200 and result["reply"]["vram_bytes"] == 3 * GIB
    waiting.close()
    api.close()


def test_the_resize_command_waits_over_a_restart(daemon):
    api = daemon.api()
    mine, other = token_lease(api, vram_bytes=GIB), token_lease(api, vram_bytes=2 * GIB)
    wish = daemon.spawn("sublet", "resize", mine["id"], "3GiB", "--wait", "2h")
    assert "waits: place 1 · 1.3 GiB short on gpu0" in wish.stderr.readline()
    api.close()
    daemon.kill()
    daemon.start()
    api = daemon.api()
    assert wish.poll() is None
    assert api.post(f"/v1/leases/{other['id']}/release", {}).status == 200
    assert wish.wait(timeout=60) == 0 and f"{mine['id']} has 3.0 GiB" in wish.stderr.read()
    # The client may want another size meanwhile, or none.
    assert api.post(f"/v1/leases/{mine['id']}/resize", {"vram_bytes": GIB}).status == 200
    wait_until(lambda: free_bytes(daemon) >= 2 * GIB, "what was given back is free")
    assert token_lease(api, vram_bytes=2 * GIB)["state"] == "active"
    wish = daemon.spawn("sublet", "resize", mine["id"], "3GiB", "--wait", "1h")
    wish.stderr.readline()
    assert api.post(f"/v1/leases/{mine['id']}/resize", {"vram_bytes": GIB}).status == 200
    assert wish.wait(timeout=60) == 1 and "no longer waits for 3.0 GiB: it keeps 1.0 GiB" in wish.stderr.read()
    done = daemon.cli("resize", mine["id"], "3GiB", "--wait", "300ms")
    assert done.returncode == 124 and "did not get its 3.0 GiB within 300 ms" in done.stderr, done.stderr
    wish = daemon.spawn("sublet", "resize", mine["id"], "3GiB", "--wait", "1s")
    wish.stderr.readline()
    api.close()
    daemon.kill()
    assert wish.wait(timeout=60) == 124, "it waits no longer for a daemon that is away"
    daemon.start()
    api = daemon.api()
    wish = daemon.spawn("sublet", "resize", mine["id"], "3GiB", "--wait", "1h", "--json")
    wait_until(lambda: lease(daemon, mine["id"])["resize"], "it waits")
    assert api.post(f"/v1/leases/{mine['id']}/release", {}).status == 200
    assert wish.wait(timeout=60) == 1 and "has ended: released" in wish.stderr.read()
    api.close()


def test_cancels_and_refuses(daemon):
    api = daemon.api()
    mine, other = token_lease(api, vram_bytes=GIB), token_lease(api, vram_bytes=2 * GIB)
    path = f"/v1/leases/{mine['id']}/resize"
    refused = api.post(path, {"vram_bytes": 3 * GIB, "queue": False})
    assert (refused.status, refused["code"]) == (409, "Memory")
    assert "needs 3.0 GiB instead of 1.0 GiB" in refused["detail"]
    assert refused["numbers"]["asked_bytes"] == 3 * GIB and refused["numbers"]["short_bytes"] > 0
    assert daemon.cli("resize", mine["id"], "3GiB", "--no-wait").returncode == 75
    assert api.post(path, {"vram_bytes": 3 * GIB}).status == 202
    assert api.post(path, {"vram_bytes": GIB})["resize"] is None
    assert api.get("/v1/queue")["queue"] == []
    assert (r := api.post(path, {"vram_bytes": 5 * GIB})).status == 422 and r["code"] == "TooLarge"
    assert (r := api.post(path, {"vram_bytes": GIB, "generation": 99})).status == 409 and r["code"] == "Stale"
    for body in ({}, {"vram_bytes": 0}, {"vram_bytes": GIB, "size": 1}):
        assert api.post(path, body).status == 400, body
    queue = token_lease(api, vram_bytes=3 * GIB)
    assert api.post(f"/v1/leases/{queue['id']}/resize", {"vram_bytes": GIB})["code"] == "Stale"
    assert api.post("/v1/leases/lease-99/resize", {"vram_bytes": GIB}).status == 404
    assert api.post(f"/v1/leases/{other['id']}/release", {}).status == 200
    api.close()


def test_a_resize_keeps_bytes_in_use(daemon):
    load = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "load", "--", "simgpu-load", "--alloc", "1GiB",
                        "--seconds", "60")
    wait_until(lambda: (now := next((x for x in daemon.leases() if x["tag"] == "load"), None)) and
               now["used_bytes"] >= GIB, "it is measured")
    done = daemon.cli("resize", "load", "512MiB")
    assert done.returncode != 0 and "more than 512 MiB" in done.stderr, done.stderr
    assert daemon.cli("resize", "load", "1800MiB").returncode == 0
    load.terminate()
    load.wait(timeout=60)


def test_the_order_of_resizes_is_told_in_every_state(daemon):
    """A lease with a program is never asked to shrink for another lease."""
    api = daemon.api()

    def hint(path, state):
        wait_until(lambda: api.get(path)["state"] == state, state)
        refused = api.post(path + "/resize", {"vram_bytes": 2 * GIB})
        assert (refused.status, refused["code"]) == (409, "Stale") and f"is {state}" in refused["detail"], refused
        return refused["hint"]

    mine = token_lease(api, vram_bytes=GIB)
    path, name = f"/v1/leases/{mine['id']}", mine["id"]
    with webhook(at_once=False) as hook:
        def say(answer):
            order = wait_until(lambda: (lambda now: now if now["order"] != "none" else None)(
                api.get(path + "/cooperate?wait=1s")), "it is told")
            assert api.post(path + "/cooperate/answer", {"number": order["number"], "answer": answer}).status == 200

        assert api.post(path + "/cooperate", hook).status == 200
        assert api.post(path + "/pause", {}).status == 202
        assert f"sublet resume {name}" in hint(path, "pausing")
        say("yielded")
        assert f"sublet resume {name}" in hint(path, "paused")
        assert api.post(path + "/resume", {}).status == 202
        assert f"sublet why {name}" in hint(path, "resuming")
        say("resumed")
        wait_until(lambda: api.get(path)["state"] == "active", "it is back")
    waiting = token_lease(api, vram_bytes=3 * GIB)["id"]
    assert "it has nothing yet: release it" in hint(f"/v1/leases/{waiting}", "queued")
    assert api.post(path + "/release", {}).status == 200
    assert f"sublet claim {waiting}" in hint(f"/v1/leases/{waiting}", "offered")
    gone = api.post(path + "/resize", {"vram_bytes": GIB})
    assert (gone["code"], gone["hint"]) == ("Stale", "ask for a new lease")
    assert api.post(f"/v1/leases/{waiting}/release", {}).status == 200

    daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "unlucky", "--", "simgpu-load", "--alloc", "64MiB",
                 "--seconds", "600")
    wait_until(lambda: api.get("/v1/leases/unlucky").body.get("used_bytes"), "it runs")
    assert daemon.cli("pause", "unlucky").returncode == 0
    daemon.ctl("fault", "restore-fail")
    assert daemon.cli("resume", "unlucky").returncode == 1
    said = hint("/v1/leases/unlucky", "poisoned")
    assert "sublet why" in said and "how to end it" in said
    api.close()


@pytest.fixture
def patient(start_daemon):
    return start_daemon("1x4GiB", config='[lease]\nlinger = "1s"\n[gpu]\ninterval_idle = "1s"\n'
                                         '[queue]\nreserve_after = "1s"\n')


def test_memory_is_reserved_for_a_long_wait(patient):
    api = patient.api()
    holder = token_lease(api, vram_bytes=2 * GIB)
    large = token_lease(api, vram_bytes=3 * GIB)
    assert large["state"] == "queued" and large["queue"]["reserved_devices"] == []
    # Small leases do not get free memory for ever: soon it is reserved.
    held = wait_until(lambda: lease(patient, large["id"])["queue"]["reserved_devices"], "room to be held")
    assert held == [patient.json("gpus")["devices"][0]["uuid"]]
    small = token_lease(api, vram_bytes=GIB)
    assert small["state"] == "queued" and small["queue"]["reserved_for"] == large["id"]
    why = patient.cli("why", small["id"]).stdout
    assert f"is reserved for {large['id']}" in why, why
    assert "reserved for the lease" in patient.cli("why", large["id"]).stdout
    refused = patient.cli("run", "--vram", "1GiB", "--no-wait", "--", "true")
    assert refused.returncode == 75 and f"reserved for {large['id']}" in refused.stderr, refused.stderr
    assert api.post(f"/v1/leases/{holder['id']}/release", {}).status == 200
    assert wait_until(lambda: lease(patient, large["id"])["state"] != "queued", "the large one's turn")
    api.close()
