# SPDX-License-Identifier: Apache-2.0
"""Leases that are paused and resumed: each transition, and each failure."""
import os
import signal

from tests.support.parking import quick_checkpoints
from tests.support.scenarios import scenario
from tests.support.sublet import GIB, living, wait_until

LOAD = ("simgpu-load", "--seconds", "600", "--alloc")


def loaded(client, *more, alloc=64):
    """Starts a program with that many MiB on the card."""
    quick_checkpoints(client.daemon)
    keeper, lease = client.run(*LOAD, f"{alloc}MiB", *more)
    if "--on-pause" in more:
        wait_until(lambda: client.get(f"/v1/leases/{lease['id']}/cooperate")["registered"], "it has registered")
    client.until(lease["id"], lambda now: now["used_bytes"] > alloc << 20)
    return keeper, lease


def end(client, keeper, lease):
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    assert client.ended(keeper) == 128 + signal.SIGTERM


def parked(client):
    keeper, lease = loaded(client, "--verify", alloc=256)
    client.pause(lease["id"])
    return keeper, lease


# --- a program that is parked by the driver ---

@scenario("pausing", "lock_intent", "paused", "resuming", "resumed")
def parked_and_back(client):
    keeper, lease = parked(client)
    now = client.resume(lease["id"])
    assert now["pause"] is None and client.get("/v1/ledger")["entries"] == []
    end(client, keeper, lease)


@scenario()
def poisoned(client):
    keeper, lease = parked(client)
    client.daemon.ctl("fault", "restore-fail")
    client.act(lease["id"], "resume")
    client.until(lease["id"], lambda now: now["state"] == "poisoned")
    assert living(lease["owner"]["pid"]), "it is kept, not killed"
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    client.ends(lease["id"], "owner_gone")
    assert client.ended(keeper) == 128 + signal.SIGKILL


@scenario()
def blocked(client):
    keeper, lease = parked(client)
    unleased = client.daemon.spawn("simgpu-load", "--alloc", "3500MiB", "--seconds", "600")
    wait_until(lambda: client.get("/v1/devices")["devices"][0]["other_bytes"] > 3 * GIB,
               "an unleased process took its place")
    client.act(lease["id"], "resume")
    now = client.until(lease["id"], lambda now: now["blocked"])
    assert now["state"] == "paused" and now["blocked"]["unleased_processes"][0]["pid"] == unleased.pid
    unleased.kill()
    unleased.wait()
    client.until(lease["id"], lambda now: now["state"] == "active")
    end(client, keeper, lease)


@scenario("deferred", "resumed_to_end", grace="30s")  # the program checks its bytes first
def ended_while_parked(client):
    keeper, lease = parked(client)
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    assert client.ended(keeper) == 128 + signal.SIGTERM, keeper.communicate()


# --- cooperative programs, honest and not ---

@scenario()
def next_method(client):
    keeper, lease = loaded(client, "--on-pause", "liar")
    client.pause(lease["id"])
    client.resume(lease["id"])
    end(client, keeper, lease)


@scenario("allocated_while_paused")
def holding_again(client):
    keeper, lease = loaded(client, "--on-pause", "again-at-usr1")
    client.act(lease["id"], "pause")
    client.holds_again(lease["id"])
    wait_until(lambda: client.disturbed() or "allocated_while_paused" in [reason["code"] for reason in client.get(
        f"/v1/leases/{lease['id']}/why")["reasons"]], "it is told")
    client.resume(lease["id"])
    end(client, keeper, lease)


# --- by a webhook, with nothing on the card ---

@scenario()
def undone(client):
    lease, hook = client.hooked()
    hook.refuses = {"yield"}
    client.act(lease, "pause")
    client.says(lease, "resuming", "the pause is undone")
    client.until(lease, lambda now: now["state"] == "active")


@scenario()
def unverified(client):
    """The program reports that it has yielded while the card cannot be read."""
    lease, _ = client.hooked()
    client.cards_known = False
    client.daemon.ctl("fault", "nvml-error")

    def told():
        client.act(lease, "pause")  # again, if a crash in between has undone the pause
        return "unverified" in [reason["code"] for reason in client.get(f"/v1/leases/{lease}/why")["reasons"]]
    wait_until(told, "nobody can tell")
    client.daemon.ctl("clear")
    client.cards_known = True
    client.pause(lease)
    client.resume(lease)


@scenario("not_yet", "tried_again")
def not_yet(client):
    lease, hook = client.hooked()
    client.pause(lease)
    hook.refuses = {"resume"}
    client.act(lease, "resume")
    client.says(lease, "resuming", "its program does not run yet")
    hook.refuses = set()
    client.until(lease, lambda now: now["state"] == "active")


@scenario()
def resume_requested_early(client):
    lease, hook = client.hooked()
    hook.may_answer.clear()
    assert client.act(lease, "pause")["state"] in ("pausing", "active")
    client.act(lease, "resume")
    hook.may_answer.set()
    client.until(lease, lambda now: now["state"] == "active")


@scenario()
def resume_queued(client):
    lease, _ = client.hooked(3)
    client.pause(lease)
    other = client.ask(3)
    client.act(lease, "resume")
    assert client.get(f"/v1/leases/{lease}")["queue"]
    client.act(other, "release")
    client.until(lease, lambda now: now["state"] == "active")


@scenario()
def stays_paused(client):
    lease, _ = client.hooked(3)
    client.pause(lease)
    other = client.ask(3)
    client.act(lease, "resume")
    client.act(lease, "pause")
    assert client.get(f"/v1/leases/{lease}")["queue"] is None
    client.act(other, "release")
    assert client.get(f"/v1/leases/{lease}")["state"] == "paused"
    client.resume(lease)


@scenario("liveness_changed", "orphaned", orphan_after="1s")
def orphaned(client):
    lease, _ = client.hooked()
    client.pause(lease)
    client.ends(lease, "expired")


@scenario()
def cooperates(client):
    lease, hook = client.hooked()
    assert client.get(f"/v1/leases/{lease}/cooperate")["registered"]["url"] == hook.url


@scenario()
def cooperation_withdrawn(client):
    lease, _ = client.hooked()
    client.delete(f"/v1/leases/{lease}/cooperate")
    assert client.get(f"/v1/leases/{lease}/cooperate")["registered"] is None


# --- memory for other leases ---

@scenario("preemption_requested", "request_kept", "plan_changed")
def room_on_a_word(client):
    victim, _ = client.hooked(3)
    waiter = client.queue(2)
    # After a crash the request is refused until the card was read.
    wait_until(lambda: client.post("/v1/preempt", {"lease": waiter}).status in (200, 202), "room is made")
    client.until(waiter, lambda now: now["state"] != "queued")
    client.act(waiter, "claim")
    assert client.get(f"/v1/leases/{victim}")["state"] == "paused"
    client.act(waiter, "release")
    client.until(victim, lambda now: now["state"] == "active")


@scenario()
def spot_ended(client):
    spot = client.ask(3, tier="spot", pausable="no")
    above = client.ask(2)
    client.ends(spot, "revoked")
    assert client.get(f"/v1/leases/{above}")["state"] == "active"


GRANT = "/v1/consumers/train/grant"


def granted_consumers(client):
    return [grant["consumer"] for grant in client.get("/v1/consumers")["grants"]]


@scenario()
def grant_given(client):
    client.post(GRANT, {})
    assert granted_consumers(client) == ["train"]


@scenario()
def grant_removed(client):
    client.post(GRANT, {})
    client.delete(GRANT)
    assert granted_consumers(client) == []
