# SPDX-License-Identifier: Apache-2.0
"""Devices without memory of their own (GB10, Jetson): total and use are those of the machine."""
import json
import re
import subprocess

import pytest

from tests.support.keeping import ended, queued
from tests.support.parking import CONFIG, ends_well, lease_of, quick_checkpoints, until
from tests.support.sublet import GIB, MIB, ROOT, wait_until

SIM = "1x16GiB,unified"


def machine(start_daemon, sim=SIM, config=CONFIG):
    daemon = start_daemon(sim, config=config)
    quick_checkpoints(daemon)
    return daemon


def device(daemon, id="gpu0"):
    return next(device for device in daemon.get("/v1/devices")["devices"] if device["id"] == id)


def load(daemon, tag, vram, alloc, *more, options=()):
    child = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *more, "--", "simgpu-load", "--alloc", alloc,
                         "--seconds", "600", "--verify", "--json", *options)
    wait_until(lambda: lease_of(daemon, tag).get("used_bytes", 0) >= GIB, f"{tag} has filled its memory")
    return child


def test_the_machine_tells_total_and_use(start_daemon):
    daemon = machine(start_daemon)
    one = device(daemon)
    assert one["unified"] is True and one["total_bytes"] == 16 * GIB and one["driver_reserved_bytes"] == 0
    assert one["capacity_bytes"] == 16 * GIB - 4 * GIB - 64 * MIB, "without both headrooms"
    system = one["used_bytes"]
    assert 0 < system == one["other_bytes"], "what the machine uses is leased to nobody"
    assert one["effective_free_bytes"] == one["capacity_bytes"] - system
    row, = daemon.cli("gpus", "-o", "gpu,state", check=0).stdout.splitlines()[1:]
    assert row.split() == ["gpu0", "unified"]
    run = load(daemon, "it", "4GiB", "2GiB")
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] >= 2 * GIB, "the program has filled its memory")
    assert device(daemon)["effective_free_bytes"] == one["effective_free_bytes"] - 4 * GIB
    assert device(daemon)["other_bytes"] == system
    ends_well(daemon, "it", run)
    wait_until(lambda: device(daemon)["effective_free_bytes"] == one["effective_free_bytes"], "all is free again")


def test_the_part_of_the_system_is_never_leased(start_daemon):
    daemon = machine(start_daemon)
    refused = daemon.api().post("/v1/leases", {"vram_bytes": 14 * GIB, "ttl_seconds": 60})
    assert refused.status == 422 and "4.0 GiB is for the system" in refused["detail"], refused
    small = machine(start_daemon, config=CONFIG.replace("[device]\n", '[device]\nunified_headroom = "1GiB"\n'))
    assert small.api().post("/v1/leases", {"vram_bytes": 14 * GIB, "ttl_seconds": 60}).status == 201


def test_memory_of_others_is_not_promised(start_daemon):
    daemon = machine(start_daemon)
    stranger = daemon.spawn("simgpu-load", "--alloc", "9GiB", "--seconds", "600", env=daemon.env())
    wait_until(lambda: device(daemon)["other_bytes"] > 9 * GIB, "its memory is seen")
    assert daemon.api().post("/v1/leases", {"vram_bytes": 4 * GIB, "ttl_seconds": 60, "queue": False}).status == 409
    assert daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 60, "queue": False}).status == 201
    assert stranger.poll() is None


@pytest.mark.parametrize("size", [("--vram", "all"), ()])
def test_a_lease_of_the_whole_starts_beside_the_system(start_daemon, size):
    daemon = machine(start_daemon)
    stranger = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600", env=daemon.env())
    wait_until(lambda: device(daemon)["other_bytes"] > GIB, "its memory is seen")
    run = daemon.cli("run", *size, "--wait", "60s", "--", "true")
    assert run.returncode == 0 and stranger.poll() is None, run.stderr


@pytest.mark.parametrize("wish", [(), ("--pausable", "driver")])
def test_parking_in_host_memory_is_refused(start_daemon, wish):
    daemon = machine(start_daemon)
    run = load(daemon, "it", "10GiB", "2GiB", *wish)
    refused = daemon.cli("pause", "it")
    assert refused.returncode != 0 and "would free nothing" in refused.stderr and "cooperat" in refused.stderr
    assert lease_of(daemon, "it")["state"] == "active"
    urgent = daemon.spawn("sublet", "run", "--vram", "4GiB", "--tier", "interactive", "--tag", "urgent", "--", "true")
    queued(daemon, "urgent")
    preview = daemon.cli("run", "--vram", "4GiB", "--tier", "interactive", "--dry-run", "--", "true")
    assert "would free nothing" in preview.stdout + preview.stderr, preview
    assert "parked" not in {row["state"] for row in daemon.leases()} and run.poll() is None
    ends_well(daemon, "it", run)
    assert urgent.wait(60) == 0


def test_a_cooperative_program_frees_memory_of_the_machine(start_daemon):
    daemon = machine(start_daemon)
    run = load(daemon, "it", "10GiB", "2GiB", options=("--on-pause", "honest"))
    wait_until(lambda: daemon.get("/v1/leases/it/cooperate")["registered"], "it has registered")
    urgent = daemon.cli("run", "--vram", "4GiB", "--tier", "interactive", "--", "simgpu-load", "--alloc", "1GiB",
                        "--seconds", "0.5")
    assert urgent.returncode == 0, urgent.stderr
    until(daemon, "it", "active")
    codes = [reason["code"] for reason in daemon.get("/v1/leases/it/why")["reasons"]]
    assert "paused" in codes and "resumed" in codes, codes
    ends_well(daemon, "it", run)


def test_a_spot_program_makes_place_by_its_end(start_daemon):
    daemon = machine(start_daemon, config=CONFIG + 'spot_unused_after = "1s"\n')
    run = load(daemon, "cheap", "10GiB", "2GiB", "--tier", "spot")
    assert daemon.cli("run", "--vram", "4GiB", "--tier", "interactive", "--", "true").returncode == 0
    assert ended(daemon, "cheap")["end_reason"] == "revoked" and run.wait(60) != 0


@pytest.mark.parametrize("code", [3, 7, 999])
def test_errors_of_the_driver_leave_it_unknown(start_daemon, code):
    daemon = machine(start_daemon)
    run = load(daemon, "it", "4GiB", "2GiB")
    daemon.ctl("fault", "nvml-error", "--code", code)
    wait_until(lambda: device(daemon)["state"] == "unknown", "it cannot be read")
    assert daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 60, "queue": False}).status != 201
    assert lease_of(daemon, "it")["state"] == "active"
    daemon.ctl("clear")
    wait_until(lambda: device(daemon)["state"] == "ok", "it is read again")
    ends_well(daemon, "it", run)


def test_unified_and_other_cards_serve_one_queue(start_daemon):
    daemon = machine(start_daemon, "1x16GiB,unified+1x4GiB")
    assert [device(daemon, name)["unified"] for name in ("gpu0", "gpu1")] == [True, False]
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--gpu", "gpu1", "--tag", "card", "--", "simgpu-load",
                       "--alloc", "1GiB", "--seconds", "600", "--verify", "--json")
    wait_until(lambda: lease_of(daemon, "card").get("used_bytes", 0) >= GIB, "it has filled its memory")
    daemon.cli("pause", "card", check=0)
    until(daemon, "card", "paused")
    daemon.cli("resume", "card", check=0)
    until(daemon, "card", "active")
    ends_well(daemon, "card", run)


def test_doctor_explains_it(start_daemon):
    daemon = machine(start_daemon)
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    found, = (check for check in checks if check["name"] == "unified")
    assert "memory of the machine" in found["text"] and "device.unified_headroom" in found["hint"]


def test_the_document(start_daemon):
    """The section of docs/devices.md: every command runs, in its order, and says what the document shows."""
    daemon = machine(start_daemon)
    text = (ROOT / "docs/devices.md").read_text()
    section = re.search(r"(?ms)^## Unified memory$(.*?)(?=^## |\Z)", text).group(1)
    ran = 0
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", section):
        for part in block.split("$ ")[1:]:
            command, *answer = part.splitlines()
            done = subprocess.run(["sh", "-c", command], env=daemon.env(), text=True, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120)
            said = done.stdout + done.stderr
            for line in answer:
                assert all(part in said for part in line.split("…")), (command, said)
            ran += 1
    assert ran == 2
