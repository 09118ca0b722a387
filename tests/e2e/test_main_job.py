# SPDX-License-Identifier: Apache-2.0
"""The main job: three unchanged CUDA programs on one GPU that fits two."""
import json
import os
import pathlib
import re
import signal
import stat

import pytest

from tests.support.sublet import GIB, MIB, wait_until

# No lease is paused for another here: the third program starts when one ends (see tests/e2e/test_displacement.py).
IN_ORDER = "[pause]\nautomatic = false\n"
CARD = "1x4GiB"


def load(daemon, name, seconds, *flags, vram="1500MiB", alloc="1GiB", **options):
    """Runs `sublet run` of a program that fills VRAM, computes, and checks every byte at its end."""
    return daemon.spawn("sublet", "run", "--vram", vram, "--name", name, *flags, "--",
                        "simgpu-load", "--alloc", alloc, "--seconds", str(seconds), **options)


def lease_of(daemon, name):
    found = [lease for lease in daemon.leases(all=True) if lease["consumer"] == name]
    return found[0] if found else None


def wait_for(daemon, name, condition, what, timeout=60):
    def look():
        lease = lease_of(daemon, name)
        return lease if lease and condition(lease) else None
    return wait_until(look, f"{name}: {what}", timeout)


def wait_for_state(daemon, name, state, timeout=60):
    return wait_for(daemon, name, lambda lease: lease["state"] == state, state, timeout)


def wait_for_use(daemon, name, least=GIB):
    return wait_for(daemon, name, lambda lease: lease["used_bytes"] >= least, f"uses {least} bytes")


def alive(pid):
    """Tells whether the process runs; a zombie does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def simulated_memory(daemon):
    """Bytes of RAM behind the simulated cards: the shared table, and the memory that its programs have touched."""
    total = sum(entry.stat().st_blocks * 512 for entry in (daemon.dir / "simgpu").rglob("*")
                if stat.S_ISREG(entry.stat().st_mode))
    mark = f"SIMGPU_DIR={daemon.dir}/simgpu".encode()
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                total += int(re.search(r"^Pss:\s+(\d+) kB", (entry / "smaps_rollup").read_text(), re.M)[1]) * 1024
        except (OSError, TypeError):
            continue
    return total


def test_two_programs_run_and_the_third_waits(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    first = load(daemon, "first", 600)
    second = load(daemon, "second", 600)
    for name in ("first", "second"):
        wait_for_use(daemon, name)
    third = load(daemon, "third", 0)
    waiting = wait_for_state(daemon, "third", "queued")
    queue = waiting["queue"]
    assert queue["place"] == 1
    free = daemon.json("gpus")["devices"][0]["effective_free_bytes"]
    assert queue["short_bytes"] == 1500 * MIB - free
    assert {lease_of(daemon, "first")["id"], lease_of(daemon, "second")["id"]} <= {h["lease"] for h in queue["holders"]}
    assert queue["eta_seconds"] is None and "no known end" in queue["basis"]
    assert simulated_memory(daemon) < GIB

    first.send_signal(signal.SIGTERM)  # goes through the keeper to the program, which checks its bytes and ends
    assert first.wait(60) == 143
    assert third.wait(60) == 0, third.stderr.read()
    ended = wait_for_state(daemon, "third", "ended")
    assert (ended["end_reason"], ended["exit_status"]) == ("released", 0)
    ended = wait_for_state(daemon, "first", "ended")
    assert ended["exit_status"] == 143

    # The output for waiting in a pipe: one line per change, each with place, missing bytes, holders, estimate.
    said = third.stderr.read()
    assert re.search(r"place 1.*short.*unknown.*(first|second)", said), said
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 143
    wait_until(lambda: daemon.json("gpus")["devices"][0]["leased_bytes"] == 0, "all bytes are given back")


def test_an_estimate_has_a_basis(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    for _ in range(3):  # three earlier runs for the estimate
        assert load(daemon, "known", 0).wait(60) == 0
    holder = daemon.spawn("sublet", "run", "--vram", "3GiB", "--ttl", "1h", "--name", "holder", "--", "sleep", "600")
    wait_for_state(daemon, "holder", "active")
    load(daemon, "waiter", 0)
    queue = wait_for_state(daemon, "waiter", "queued")["queue"]
    assert 3000 < queue["eta_seconds"] <= 3600 and "time limit" in queue["basis"]
    holder.terminate()
    assert holder.wait(60) == 143


def test_a_generic_name_is_no_basis_for_an_estimate(daemon):
    api = daemon.api()
    ask = {"vram_bytes": 3 * GIB, "ttl_seconds": 3600}
    silent = ({}, {"consumer": "hold", "remember": False})
    for more in silent * 2:
        lease = api.post("/v1/leases", {**ask, **more})
        assert lease.status == 201 and not lease["remembered"]
        assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    assert daemon.cli("run", "--vram", "1GiB", "--", "sh", "-c", "true").returncode == 0
    assert daemon.get("/v1/consumers")["consumers"] == []
    for more in silent:
        holder = api.post("/v1/leases", {**ask, **more})
        waiter = api.post("/v1/leases", {**ask, "consumer": "waiter", "owner": {"connection": True}})
        queue = api.get(f"/v1/leases/{waiter['id']}")["queue"]
        assert queue["eta_seconds"] is None and "its owner may renew it" in queue["basis"], queue
        assert "its name says nothing of what runs" in queue["basis"]
        for lease in (waiter, holder):
            assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    assert daemon.cli("run", "--vram", "1GiB", "--name", "sh", "--", "sh", "-c", "true").returncode == 0
    assert [row["consumer"] for row in daemon.get("/v1/consumers")["consumers"]] == ["sh"], "whoever says it means it"
    refused = api.post("/v1/leases", {**ask, "remember": True})
    assert refused.status == 400 and "no consumer" in refused["detail"]


def test_the_default_size_leaves_out_what_unleased_processes_hold_for_long(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    daemon.spawn("simgpu-load", "--alloc", "512MiB", "--seconds", "600")

    def card(key):
        device = daemon.json("gpus")["devices"][0]
        return device if device[key] >= 512 * MIB else None
    young = wait_until(lambda: card("other_bytes"), "it is seen")
    assert young["other_lasting_bytes"] == 0
    told = daemon.cli("run", "--name", "new", "--dry-run", "--", "true")
    assert told.returncode == 75 and "--min-vram accepts a smaller lease" in told.stdout, told.stdout
    whole = daemon.spawn("sublet", "run", "--name", "new", "--", "true")
    assert "asking for 3.6 GiB" in whole.stderr.readline() and "--vram 2." in whole.stderr.readline()
    whole.kill()
    daemon.kill()
    daemon.start()  # all bytes of its first reading count
    device = wait_until(lambda: card("other_lasting_bytes"), "it is seen at once")
    done = daemon.cli("run", "--name", "new", "--no-wait", "--", "sh", "-c", "echo $SUBLET_LEASE_BYTES", check=0)
    assert int(done.stdout) == device["capacity_bytes"] - device["other_lasting_bytes"], done.stderr
    assert "MiB of unleased processes" in done.stderr


def test_an_unleased_process_is_seen_named_and_subtracted(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    stranger = daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    device = wait_until(lambda: (d := daemon.json("gpus")["devices"][0])["other_bytes"] >= 2 * GIB and d, "it is seen")
    assert device["effective_free_bytes"] <= 4 * GIB - 2 * GIB - 256 * MIB
    row = next(p for p in daemon.json("proclist")["processes"] if p["pid"] == stranger.pid)
    assert row["lease"] is None and row["link"] == "none" and row["used_bytes"] >= 2 * GIB
    assert "simgpu-load" in row["command"]
    assert str(stranger.pid) in daemon.cli("status").stdout

    waiter = load(daemon, "waiter", 0, vram="2GiB")
    holders = wait_for_state(daemon, "waiter", "queued")["queue"]["holders"]
    assert any(h["lease"] is None and str(stranger.pid) in h["what"] for h in holders)
    stranger.kill()
    assert waiter.wait(60) == 0


def test_use_beyond_the_lease_is_named_and_counted(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)

    def warned():
        return [w for w in daemon.get("/v1/status")["warnings"] if w["code"] == "over-lease"]

    def violations():
        return re.search(r"^sublet_limit_violations_total\{gpu=.*\} (\d+)$", daemon.get("/metrics").body, re.M).group(1)

    honest = load(daemon, "honest", 600, vram="1GiB", alloc="512MiB")
    wait_for_use(daemon, "honest", 512 * MIB)
    assert not warned() and violations() == "0" and lease_of(daemon, "honest")["over_bytes"] == 0
    greedy = load(daemon, "greedy", 600, vram="1GiB", alloc="2GiB")
    lease = wait_for_use(daemon, "greedy", 2 * GIB)
    assert lease["over_bytes"] == lease["used_bytes"] - GIB
    row = next(line for line in daemon.cli("ps", check=0).stdout.splitlines() if "greedy" in line)
    assert re.search(r"uses 1\.\d GiB more than it leased$", row.strip()), row
    assert "GiB more than it leased." in daemon.cli("why", lease["id"], check=0).stdout
    warning, = wait_until(warned, "it is warned of")
    assert lease["id"] in warning["text"] and "greedy" in warning["text"] and "1.0 GiB" in warning["text"]
    assert "! over-lease: " in daemon.cli("status", check=0).stdout
    assert violations() == "1"
    greedy.terminate()
    assert greedy.wait(60) == 143
    wait_until(lambda: not warned(), "it is over")
    def states():
        told = daemon.cli("events", "--no-follow", "--type", "warning", "--json", check=0).stdout.splitlines()
        return [event["state"] for event in map(json.loads, told) if event["code"] == "over-lease"]
    wait_until(lambda: states() == ["begun", "ended"], "the events say so, once while it lasts")
    assert violations() == "1"
    honest.terminate()
    assert honest.wait(60) == 143


def test_subletd_and_sublet_gpu_are_killed_and_nothing_is_lost(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    first = load(daemon, "first", 600)
    second = load(daemon, "second", 600)
    for name in ("first", "second"):
        wait_for_use(daemon, name)
    third = load(daemon, "third", 0)
    before = {name: wait_for(daemon, name, lambda lease: True, "is there")["id"]
              for name in ("first", "second", "third")}

    helper = daemon.child_pid("sublet-gpu")
    os.kill(helper, signal.SIGKILL)
    wait_until(lambda: daemon.child_pid("sublet-gpu") not in (None, helper), "another helper")
    daemon.restart()
    assert {name: lease_of(daemon, name)["id"] for name in before} == before
    assert lease_of(daemon, "third")["state"] == "queued"
    wait_for_use(daemon, "first")  # measured again, by the new daemon
    assert first.poll() is None and second.poll() is None and third.poll() is None

    # One program ends while the daemon is away: its keeper reports the status when the daemon is back.
    daemon.kill()
    first.send_signal(signal.SIGTERM)
    wait_until(lambda: len(daemon.cards()["processes"]) == 1, "the first has ended")
    assert first.poll() is None  # its keeper has not reported the status yet
    daemon.start()
    assert first.wait(60) == 143
    assert wait_for_state(daemon, "first", "ended")["exit_status"] == 143
    assert third.wait(60) == 0
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 143


def test_a_killed_keeper_ends_nothing_if_its_program_keeps_running(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    keeper = load(daemon, "orphan", 3, "--keep-running")
    lease = wait_for_use(daemon, "orphan")
    program = lease["owner"]["pid"]
    assert lease["owner"]["keeper_pid"] == keeper.pid
    keeper.kill()
    keeper.wait()
    assert lease_of(daemon, "orphan")["state"] == "active"
    assert alive(program)
    ended = wait_for_state(daemon, "orphan", "ended")
    assert ended["exit_status"] is None and ended["end_reason"] == "owner_gone"
    wait_until(lambda: not alive(program), "it is gone")


def test_a_keeper_killed_while_the_daemon_is_away(start_daemon):
    daemon = start_daemon(CARD, config=IN_ORDER)
    keeper = load(daemon, "orphan", 600)
    program = wait_for_use(daemon, "orphan")["owner"]["pid"]
    daemon.kill()
    keeper.kill()
    keeper.wait()
    daemon.start()
    lease = wait_for_use(daemon, "orphan")
    assert (lease["state"], lease["owner"]["pid"]) == ("active", program)
    os.kill(program, signal.SIGKILL)
    assert wait_for_state(daemon, "orphan", "ended")["exit_status"] is None
    wait_until(lambda: daemon.json("gpus")["devices"][0]["leased_bytes"] == 0, "its bytes are given back")


@pytest.mark.parametrize("kill", [False, True])
def test_the_cli_that_is_gone_loses_its_place(start_daemon, kill):
    daemon = start_daemon(CARD, config=IN_ORDER)
    holder = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--name", "holder")
    wait_for_state(daemon, "holder", "active")
    waiter = load(daemon, "waiter", 0)
    wait_for_state(daemon, "waiter", "queued")
    waiter.send_signal(signal.SIGKILL if kill else signal.SIGINT)
    assert waiter.wait(30) == (-9 if kill else 130)
    assert wait_for_state(daemon, "waiter", "ended")["end_reason"] == "cancelled"
    holder.terminate()
    holder.wait(30)
