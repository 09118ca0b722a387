# SPDX-License-Identifier: Apache-2.0
"""Scenarios for leases whose programs leave their place, and for waiting leases that are held back."""
from tests.support.scenarios import scenario
from tests.support.sublet import living, wait_until


def codes(client, lease):
    return [reason["code"] for reason in client.get(f"/v1/leases/{lease}/why")["reasons"]]


@scenario()
def held_back(client):
    first, second = client.ask(3), client.queue(2)
    client.act(second, "pause")
    client.act(first, "release")
    client.until(first, lambda lease: lease["state"] == "ended" and not lease["settling"])
    assert client.get(f"/v1/leases/{second}")["state"] == "queued"
    client.act(second, "resume")
    client.until(second, lambda lease: lease["state"] == "offered")


@scenario()
def keeper_killed(client):
    """A daemon that is killed before it has decided ends nothing: nobody knows when the keeper was killed."""
    keeper, lease = client.run("sleep", "600")
    keeper.kill()
    wait_until(lambda: "keeper_killed" in codes(client, lease["id"]) or client.disturbed(), "its end is noticed")
    client.act(lease["id"], "release", {"stop": True})
    ended = client.until(lease["id"], lambda now: now["state"] == "ended")
    # A slow disk delays no signal: a daemon that is killed before its commit does not know its own signal.
    is_lost = client.disturbed() and "keeper_killed" not in codes(client, lease["id"])
    assert ended["end_reason"] == "released" or (is_lost and ended["end_reason"] == "owner_gone"), ended.body
    wait_until(lambda: not living(lease["owner"]["pid"]), "it is ended")


@scenario(cards="2x4GiB", enforcer_interval="1s")
def stray_use(client):
    """The program was given one card, and fills another one."""
    keeper, lease = client.run("sh", "-c", "case $CUDA_VISIBLE_DEVICES in $0) set -- 1;; *) set -- 0;; esac; "
                               "CUDA_VISIBLE_DEVICES=$1 exec simgpu-load --alloc 256MiB --seconds 600",
                               client.get("/v1/devices")["devices"][0]["uuid"])
    wait_until(lambda: "stray_use" in codes(client, lease["id"]), "its owner is told")
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    client.ended(keeper)
