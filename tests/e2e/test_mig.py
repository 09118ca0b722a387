# SPDX-License-Identifier: Apache-2.0
"""Cards in MIG mode: slices are devices of their own, and come and go while the daemon runs."""
import json
import re
import signal
import subprocess

import pytest

from tests.e2e.test_metrics import scrape
from tests.support.keeping import ended, lease, queued
from tests.support.parking import CONFIG, ends_well, lease_of, quick_checkpoints, until, until_filled
from tests.support.sublet import GIB, MIB, ROOT, wait_until

SIM = "1x8GiB,mig=1g.2gb*2+3g.4gb"
QUICK = ('[gpu]\ninterval_idle = "200ms"\ninterval_busy = "100ms"\nmax_age = "1s"\n'
         '[lease]\nlinger = "500ms"\ngrace = "500ms"\n[device]\nheadroom = "64MiB"\n')


def machine(start_daemon, sim=SIM, config=QUICK, **options):
    daemon = start_daemon(sim, config=config, **options)
    quick_checkpoints(daemon)
    return daemon


def devices(daemon):
    return {device["id"]: device for device in daemon.get("/v1/devices")["devices"]}


def load(daemon, gpu, tag, *more, vram="1GiB", alloc="512MiB"):
    child = daemon.spawn("sublet", "run", "--vram", vram, "--gpu", gpu, "--tag", tag, *more, "--", "simgpu-load",
                         "--alloc", alloc, "--seconds", "600", "--verify", "--json")
    wait_until(lambda: lease_of(daemon, tag).get("used_bytes", 0) >= 512 * MIB, f"{tag} has filled its memory")
    return child


def hold(daemon, gpu):
    """A lease without a program, which nothing but the daemon ends."""
    return daemon.api().post("/v1/leases", {"vram_bytes": 256 * MIB, "ttl_seconds": 600, "device": gpu})["id"]


def fails(daemon, held):
    told = daemon.api().get(f"/v1/leases/{held}?wait=30s&since=active")
    assert (told["state"], told["end_reason"]) == ("ended", "failed"), told
    return daemon.cli("why", held, check=0).stdout


def test_slices_are_devices_with_a_parent(start_daemon):
    daemon = machine(start_daemon)
    body = daemon.get("/v1/devices")
    card, = body["mig_cards"]
    slices = body["devices"]
    assert [device["id"] for device in slices] == ["gpu0:0", "gpu0:1", "gpu0:2"]
    assert [device["slice"] for device in slices] == [0, 1, 2] and {device["index"] for device in slices} == {0}
    assert {device["parent"] for device in slices} == {card["uuid"]} and card["uuid"].startswith("GPU-")
    assert card["id"] == "gpu0" and card["slices"] == [device["uuid"] for device in slices]
    assert all(device["uuid"].startswith("MIG-") for device in slices)
    assert [device["total_bytes"] for device in slices] == [2 * GIB, 2 * GIB, 4 * GIB]
    rows = [line.split() for line in daemon.cli("gpus", "-o", "gpu,total,state", check=0).stdout.splitlines()[1:]]
    assert rows[0] == ["gpu0", "-", "mig"] and [row[0] for row in rows[1:]] == ["gpu0:0", "gpu0:1", "gpu0:2"], rows
    assert "MIG 3g.4gb" in daemon.cli("gpus", check=0).stdout
    assert daemon.json("gpus")["mig_cards"] == [card]
    assert "gpu0:2" in daemon.cli("status", check=0).stdout


@pytest.mark.parametrize("name", ["0:1", "gpu0:1", "uuid", "visible"])
def test_a_program_sees_its_slice_alone(start_daemon, name):
    daemon = machine(start_daemon)
    uuid = devices(daemon)["gpu0:1"]["uuid"]
    wish, environment = ("--gpu", uuid if name == "uuid" else name), {}
    if name == "visible":
        wish, environment = (), {"CUDA_VISIBLE_DEVICES": uuid[:12]}
    seen = daemon.cli("run", "--vram", "1GiB", *wish, "--", "sh", "-c",
                      "echo $CUDA_VISIBLE_DEVICES; exec simgpu-load --alloc 256MiB --seconds 0.1", check=0,
                      **environment)
    assert seen.stdout.splitlines()[0] == uuid, seen.stdout
    assert "MIG 1g.2gb" in seen.stdout + seen.stderr
    too_much = daemon.cli("run", "--vram", "1GiB", "--gpu", uuid, "--", "simgpu-load", "--alloc", "2GiB")
    assert too_much.returncode not in (0, 125) and "CUDA_ERROR_OUT_OF_MEMORY" in too_much.stderr
    by_index = daemon.cli("run", "--vram", "1GiB", "--gpu", "0:1", "--indices", "--", "sh", "-c",
                          "echo $CUDA_VISIBLE_DEVICES", check=0)
    assert by_index.stdout.strip() == uuid, "a slice has no index that CUDA reads"


def test_sizes_are_those_of_slices(start_daemon):
    daemon = machine(start_daemon)
    api = daemon.api()
    ask = {"ttl_seconds": 600, "vram_bytes": 3 * GIB}
    large = api.post("/v1/leases", ask)
    assert large["devices"] == [devices(daemon)["gpu0:2"]["uuid"]], "only this slice has as much"
    assert api.post("/v1/leases", dict(ask, queue=False)).status == 409
    refused = api.post("/v1/leases", dict(ask, vram_bytes=6 * GIB))
    assert refused.status == 422 and "gpu0:2" in refused["detail"], refused
    first, second = (api.post("/v1/leases", dict(ask, vram_bytes=int(1.5 * GIB))) for _ in range(2))
    assert {*first["devices"], *second["devices"]} == {devices(daemon)[f"gpu0:{n}"]["uuid"] for n in (0, 1)}
    whole = api.post("/v1/leases", dict(ask, device="gpu0"))
    assert whole.status == 400 and "in MIG mode" in whole["detail"] and "gpu0:0, gpu0:1, gpu0:2" in whole["hint"]
    for wish in ({}, {"device": "gpu0:0,gpu0:1"}):
        several = api.post("/v1/leases", dict(ask, vram_bytes=GIB, devices=2, **wish))
        assert several.status == (400 if wish else 422) and "one slice" in several["hint"], several


def test_slices_and_whole_cards_serve_one_queue(start_daemon):
    daemon = machine(start_daemon, "1x8GiB,mig=1g.2gb+2x4GiB")
    api = daemon.api()
    assert sorted(devices(daemon)) == ["gpu0:0", "gpu1", "gpu2"]
    both = api.post("/v1/leases", {"ttl_seconds": 600, "vram_bytes": GIB, "devices": 2})
    assert sorted(both["devices"]) == sorted(devices(daemon)[name]["uuid"] for name in ("gpu1", "gpu2"))


def test_what_happens_on_a_slice_stays_there(start_daemon):
    daemon = machine(start_daemon, config=CONFIG)
    one, other = load(daemon, "0:0", "one"), load(daemon, "0:1", "other")
    shown = {row["pid"]: row["device"] for row in daemon.get("/v1/processes")["processes"]}
    for tag, slice in (("one", "gpu0:0"), ("other", "gpu0:1")):
        assert shown[lease_of(daemon, tag)["owner"]["pid"]] == devices(daemon)[slice]["uuid"]
    daemon.cli("pause", "one", check=0)
    until(daemon, "one", "paused")
    wait_until(lambda: devices(daemon)["gpu0:0"]["used_bytes"] < 64 * MIB, "its slice is free")
    assert lease_of(daemon, "other")["state"] == "active" and devices(daemon)["gpu0:1"]["used_bytes"] > 512 * MIB
    # The next lease that needs this slice gets it, and the first comes back after that.
    assert daemon.cli("run", "--vram", "1500MiB", "--gpu", "0:0", "--", "simgpu-load", "--alloc", "1GiB", "--seconds",
                      "0.1").returncode == 0
    daemon.cli("resume", "one", check=0)
    until(daemon, "one", "active")
    ends_well(daemon, "one", one), ends_well(daemon, "other", other)


def test_a_slice_is_taken_by_tier(start_daemon):
    daemon = machine(start_daemon, config=CONFIG)
    victim = load(daemon, "0:0", "victim", vram="1500MiB")
    bystander = load(daemon, "0:1", "bystander", vram="1500MiB")
    assert daemon.cli("run", "--vram", "1500MiB", "--gpu", "0:0", "--tier", "interactive", "--", "simgpu-load",
                      "--alloc", "1GiB", "--seconds", "0.5").returncode == 0
    until(daemon, "victim", "active")
    codes = [reason["code"] for reason in daemon.get("/v1/leases/victim/why")["reasons"]]
    assert "paused" in codes and "paused" not in [r["code"] for r in daemon.get("/v1/leases/bystander/why")["reasons"]]
    ends_well(daemon, "victim", victim), ends_well(daemon, "bystander", bystander)


def test_a_ceiling_holds_on_a_slice(start_daemon):
    daemon = machine(start_daemon, config=CONFIG)
    neighbour = load(daemon, "0:1", "neighbour")
    done = daemon.cli("run", "--memory", "512MiB", "--vram", "512MiB", "--gpu", "0:0", "--tag", "leak", "--",
                      "simgpu-load", "--alloc", "1500MiB", "--step", "16MiB", "--rate", "200MiB/s")
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert ended(daemon, "leak")["end_reason"] == "over_limit"
    ends_well(daemon, "neighbour", neighbour)


def test_a_process_without_a_lease_is_seen_on_its_slice(start_daemon):
    daemon = machine(start_daemon)
    uuid = devices(daemon)["gpu0:2"]["uuid"]
    stranger = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600",
                            env=daemon.env(CUDA_VISIBLE_DEVICES=uuid))
    row = wait_until(lambda: next((row for row in daemon.get("/v1/processes")["processes"]
                                   if row["pid"] == stranger.pid and row["used_bytes"] >= GIB), None), "it is listed")
    assert row["device"] == uuid and row["lease"] is None
    free = devices(daemon)
    assert free["gpu0:2"]["other_bytes"] > GIB and free["gpu0:0"]["other_bytes"] == 0
    assert "gpu0:2" in daemon.cli("proclist", check=0).stdout


# --- slices come and go ---

def test_a_slice_that_vanishes_ends_its_leases(start_daemon):
    daemon = machine(start_daemon)
    gone, stays, held = load(daemon, "0:0", "gone"), load(daemon, "0:1", "stays"), hold(daemon, "0:0")
    waiter = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--gpu", "0:0", "--tag", "waits", "--", "true")
    queued(daemon, "waits")
    daemon.ctl("mig", 0, "destroy", 0)
    assert "gpu0:0" in fails(daemon, held)
    assert gone.wait(60) != 0, "the driver fails the program"
    assert devices(daemon)["gpu0:0"]["state"] == "lost"
    assert "gpu0:0" in lease(daemon, "waits")["queue"]["basis"], "the wait is told at once"
    assert daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 60, "device": "0:0",
                                            "queue": False}).status == 409
    assert lease_of(daemon, "stays")["state"] == "active"
    # The same slice is made again, and serves the lease that has waited for it.
    daemon.ctl("mig", 0, "create", "1g.2gb")
    assert waiter.wait(60) == 0
    ends_well(daemon, "stays", stays)


def test_a_new_slice_is_noticed(start_daemon):
    daemon = machine(start_daemon, "1x8GiB,mig=1g.2gb")
    waiter = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tag", "first", "--", "sleep", "600")
    until(daemon, "first", "active")
    second = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tag", "second", "--", "true")
    queued(daemon, "second")
    daemon.ctl("mig", 0, "create", "2g.4gb")
    assert second.wait(60) == 0 and waiter.poll() is None
    assert sorted(devices(daemon)) == ["gpu0:0", "gpu0:1"]


def test_a_mode_that_changes_under_leases_ends_them(start_daemon):
    daemon = machine(start_daemon, "1x4GiB")
    program, held = load(daemon, "gpu0", "whole"), hold(daemon, "gpu0")
    daemon.ctl("mig", 0, "on")
    daemon.ctl("mig", 0, "create", "1g.2gb")
    assert "gpu0" in fails(daemon, held)
    assert program.wait(60) != 0
    now = wait_until(lambda: (lambda all: all if "gpu0:0" in all else None)(devices(daemon)), "the slice is a device")
    assert now["gpu0"]["state"] == "lost" and "MIG mode" in now["gpu0"]["problem"]
    sliced, held = load(daemon, "0:0", "sliced"), hold(daemon, "0:0")
    daemon.ctl("mig", 0, "off")
    fails(daemon, held)
    assert sliced.wait(60) != 0
    wait_until(lambda: devices(daemon)["gpu0"]["state"] == "ok", "the card is whole again")
    assert daemon.cli("run", "--vram", "3GiB", "--gpu", "gpu0", "--", "simgpu-load", "--alloc", "1GiB", "--seconds",
                      "0.1").returncode == 0


def test_a_card_without_slices_grants_nothing_and_says_why(start_daemon):
    daemon = machine(start_daemon, "1x4GiB,mig=", wait_for_cards=False)
    wait_until(lambda: daemon.get("/v1/devices")["mig_cards"], "the card is read")
    assert devices(daemon) == {}
    run = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "early", "--", "true")
    queued(daemon, "early")
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    found, = (check for check in checks if check["name"] == "mig")
    assert found["level"] == "warn" and "with 0 slices" in found["text"] and "nvidia-smi mig" in found["hint"]
    assert "MIG mode" in daemon.cli("status").stdout
    daemon.ctl("mig", 0, "create", "1g.2gb")
    assert run.wait(60) == 0


@pytest.mark.parametrize("fault", [("nvml-error", "--code", 3), ("nvml-error", "--code", 7), ("nvml-error",),
                                   ("nvml-hang",)])
def test_slices_of_a_driver_with_errors_are_unknown_and_not_gone(start_daemon, fault):
    daemon = machine(start_daemon)
    run = load(daemon, "0:0", "it")
    daemon.ctl("fault", *fault)
    wait_until(lambda: any(warning["code"].startswith(("gpu", "device")) for warning in
                           daemon.get("/v1/status")["warnings"]), "the daemon has seen it")
    wait_until(lambda: all(f["hits"] > 5 or fault == ("nvml-hang",) for f in daemon.cards()["faults"]), "it lasts")
    assert daemon.api().post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 60, "queue": False}).status != 201
    assert lease_of(daemon, "it")["state"] == "active"
    assert "lost" not in {device["state"] for device in devices(daemon).values()}
    daemon.ctl("clear")
    wait_until(lambda: {device["state"] for device in devices(daemon).values()} == {"ok"}, "they are read again")
    ends_well(daemon, "it", run)


def test_a_slice_of_a_lost_card_is_lost(start_daemon):
    daemon = machine(start_daemon, SIM + "+1x4GiB")
    run, held = load(daemon, "0:0", "it"), hold(daemon, "0:0")
    daemon.ctl("fault", "device-lost", "--device", 0)
    fails(daemon, held)
    assert run.wait(60) != 0
    states = {name: device["state"] for name, device in devices(daemon).items()}
    assert states == {"gpu0:0": "lost", "gpu0:1": "lost", "gpu0:2": "lost", "gpu1": "ok"}


def test_leases_on_slices_survive_the_daemon(start_daemon):
    daemon = machine(start_daemon, config=CONFIG)
    run = load(daemon, "0:1", "it")
    before = lease_of(daemon, "it")["devices"]
    daemon.restart()
    assert lease_of(daemon, "it")["devices"] == before and lease_of(daemon, "it")["state"] == "active"
    ends_well(daemon, "it", run)


def test_a_slice_is_taken_out_of_service(start_daemon):
    daemon = machine(start_daemon)
    daemon.cli("gpu", "cordon", "0:2", "--reason", "test", check=0)
    assert devices(daemon)["gpu0:2"]["service"]["state"] == "cordoned"
    assert daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 60, "queue": False}).status == 409
    daemon.cli("gpu", "uncordon", "gpu0:2", check=0)


def test_a_card_is_taken_out_of_service_with_its_slices(start_daemon):
    daemon = machine(start_daemon)
    run = load(daemon, "0:0", "it", "--pausable", "no")
    assert daemon.cli("gpu", "drain", "gpu0", "--reason", "test", check=0).stderr.startswith("gpu0 is draining")
    assert {device["service"]["reason"] for device in devices(daemon).values()} == {"test"}
    refused = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 60, "queue": False})
    assert refused["code"] == "Draining", refused
    alone = daemon.cli("gpu", "uncordon", "gpu0:2")
    assert alone.returncode != 0 and "sublet gpu uncordon gpu0" in alone.stderr, alone
    ends_well(daemon, "it", run)
    assert daemon.cli("gpu", "uncordon", "gpu0", check=0).stderr == "gpu0 is in service\n"
    hold(daemon, "0:2")


def test_an_error_of_the_card_is_known_for_new_slices(start_daemon):
    daemon = machine(start_daemon, "1x8GiB,mig=1g.2gb*2")
    daemon.ctl("card", 0, "ecc_uncorrected=2")
    closed = wait_until(lambda: devices(daemon)["gpu0:0"]["service"], "the card is cordoned")
    assert closed["by"] == "Sublet" and "double-bit" in closed["reason"]
    daemon.cli("gpu", "uncordon", "gpu0", check=0)
    daemon.ctl("mig", 0, "destroy", 0)
    wait_until(lambda: devices(daemon)["gpu0:0"]["state"] == "lost", "the slice is gone")
    assert "enforcer-halted" not in {warning["code"] for warning in daemon.get("/v1/status")["warnings"]}
    daemon.ctl("mig", 0, "create", "2g.4gb")
    wait_until(lambda: any(device["state"] == "ok" and device["total_bytes"] == 4 * GIB
                           for device in daemon.get("/v1/devices")["devices"]), "a new slice is there")
    assert {str(device["service"]) for device in devices(daemon).values()} == {"None"}


def test_the_condition_of_the_card_is_told_once(start_daemon):
    daemon = machine(start_daemon)
    found = scrape(daemon.api())
    assert len(found["DCGM_FI_DEV_GPU_TEMP"]) == 1 and len(found["DCGM_FI_DEV_FB_TOTAL"]) == 3
    assert daemon.get("/v1/devices")["mig_cards"][0]["uuid"] in str(list(found["DCGM_FI_DEV_GPU_TEMP"]))


def test_doctor_explains_the_mode(start_daemon):
    daemon = machine(start_daemon)
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    found, = (check for check in checks if check["name"] == "mig")
    assert found["level"] == "note" and "gpu0 is in MIG mode with 3 slices" in found["text"]


def test_the_document(start_daemon):
    """The section of docs/devices.md: every command runs, in its order, and says what the document shows."""
    daemon = machine(start_daemon, "1x80GiB,mig=1g.10gb*4+3g.40gb")
    text = (ROOT / "docs/devices.md").read_text()
    section = re.search(r"(?ms)^## MIG slices$(.*?)(?=^## |\Z)", text).group(1)
    ran = 0
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", section):
        for part in block.split("$ ")[1:]:
            command, *answer = part.splitlines()
            done = subprocess.run(["sh", "-c", command], env=daemon.env(), text=True, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said = re.sub(r"MIG-[0-9a-f-]+", "MIG-…", done.stdout + done.stderr)
            for line in answer:
                assert line in said, (command, said)
            ran += 1
    assert ran == 3
