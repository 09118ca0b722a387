# SPDX-License-Identifier: Apache-2.0
"""Scenarios of supervised programs, ceilings and idle rules, for tests that interrupt the daemon at each step."""
from tests.support.scenarios import scenario
from tests.support.sublet import GIB, MIB, wait_until


def manifest(client, tag, *arguments, **fields):
    return {"tag": tag, "arguments": list(arguments), "directory": "/", "vram_bytes": GIB,
            "environment": [f"PATH={client.daemon.env()['PATH']}"], **fields}


def program(client, tag):
    return client.get(f"/v1/programs/{tag}")


def reaches(client, tag, state):
    wait_until(lambda: program(client, tag)["state"] == state, f"{tag} is {state}")


@scenario()
def program_added(client):
    client.post("/v1/programs", manifest(client, "job", "simgpu-load", "--alloc", "64MiB", "--seconds", "0"))
    reaches(client, "job", "exited")
    assert program(client, "job")["exit_status"] == 0


@scenario()
def program_changed(client):
    client.post("/v1/programs", manifest(client, "job", "true"))
    reaches(client, "job", "exited")
    client.post("/v1/programs/job/update", {"restart": "on-failure"})
    assert program(client, "job")["restart"] == "on-failure"


@scenario()
def program_removed(client):
    client.post("/v1/programs", manifest(client, "job", "true"))
    reaches(client, "job", "exited")
    client.post("/v1/programs/job/remove", {})
    wait_until(lambda: client.get("/v1/programs")["programs"] == [], "it is forgotten")


@scenario()
def session_changed(client):
    opened = client.post("/v1/sessions", {"vram_bytes": GIB, "ttl_seconds": 600})
    where = f"/v1/sessions/{opened['id']}"
    client.post(f"{where}/touch", {})
    client.post(f"{where}/close", {})
    wait_until(lambda: client.get(where)["state"] == "closed", "it is closed")


@scenario("amended", "over_soft_limit")
def limited(client):
    client.post("/v1/programs", manifest(client, "serve", "simgpu-load", "--alloc", "512MiB", "--seconds", "600"))
    wait_until(lambda: program(client, "serve")["used_bytes"] > 256 * MIB, "it has its memory")
    client.post("/v1/programs/serve/update", {"soft_bytes": 128 * MIB})
    lease = program(client, "serve")["lease"]
    wait_until(lambda: "over_soft_limit" in [reason["code"] for reason in
                                                 client.get(f"/v1/leases/{lease}/why")["reasons"]], "it is warned")


@scenario("memory_kept")
def kept(client):
    client.post("/v1/programs", manifest(client, "serve", "simgpu-load", "--alloc", "64MiB", "--seconds", "0",
                                         restart="always"))
    seen = set()

    def is_kept():
        seen.add(program(client, "serve")["lease"])
        reasons = [client.get(f"/v1/leases/{lease}/why")["reasons"] for lease in seen if lease]
        return any(reason["code"] == "memory_kept" for each in reasons for reason in each)

    wait_until(is_kept, "the memory of an earlier start is kept")


@scenario()
def over_limit(client):
    client.post("/v1/programs", manifest(client, "leak", "simgpu-load", "--alloc", "3GiB", "--seconds", "600",
                                         memory_bytes=GIB))
    reaches(client, "leak", "failed")
    failed = program(client, "leak")
    reasons = client.get(f"/v1/leases/{failed['lease']}/why")["reasons"]
    # A slow disk delays no signal: a daemon that is killed before its commit does not know its own signal.
    ends = "owner_gone", "released"
    is_lost = client.disturbed() and not [reason for reason in reasons if "ceiling" in reason["text"]]
    assert failed["end_reason"] == "over_limit" or (is_lost and failed["end_reason"] in ends), failed


@scenario()
def short_of_memory(client):
    # The remark follows the end of the program, and may be lost between the two.
    for attempt in range(3):
        good, greedy = f"good-{attempt}", f"greedy-{attempt}"
        taken = client.daemon.dir / f"taken-{attempt}"
        wants = f"until [ -e {taken} ]; do sleep 0.1; done; exec simgpu-load --alloc 1500MiB"
        client.post("/v1/programs", manifest(client, good, "sh", "-c", wants, vram_bytes=2 * GIB, pausable="no"))
        reaches(client, good, "running")
        client.post("/v1/programs", manifest(client, greedy, "simgpu-load", "--alloc", "2900MiB", "--seconds", "600",
                                             pausable="no"))
        wait_until(lambda tag=greedy: program(client, tag)["used_bytes"] >= 2900 * MIB, f"{greedy} has all of it")
        taken.touch()
        reaches(client, good, "failed")
        lease = program(client, good)["lease"]
        if "short_of_memory" in [reason["code"] for reason in client.get(f"/v1/leases/{lease}/why")["reasons"]]:
            return
        client.post(f"/v1/programs/{greedy}/remove", {})
        wait_until(lambda tag=greedy: tag not in [row["tag"] for row in client.get("/v1/programs")["programs"]],
                   f"{greedy} is removed")
    raise AssertionError("nobody was named")


@scenario("idle_warned")
def warned_of_idleness(client):
    lease = client.ask(1, idle={"warn_seconds": 1})  # it has to wait until the card was read
    wait_until(lambda: "idle_warned" in [reason["code"] for reason in
                                         client.get(f"/v1/leases/{lease}/why")["reasons"]], "it is warned")
