# SPDX-License-Identifier: Apache-2.0
"""Cards out of service: cordon, drain and uncordon, by the command line and the API."""
import json
import os
import re
import subprocess

from tests.support.keeping import ended, queued
from tests.support.parking import CONFIG, ends_well, lease_of, quick_checkpoints, until, until_filled
from tests.support.sublet import GIB, ROOT, wait_until

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


def two_cards(start_daemon, config=""):
    daemon = start_daemon("1x2GiB+1x4GiB", config=CONFIG + config)
    quick_checkpoints(daemon)
    return daemon


def service(daemon, gpu="gpu1"):
    return next(row for row in daemon.get("/v1/devices")["devices"] if row["id"] == gpu)["service"]


def is_in(daemon, state, gpu="gpu1"):
    return wait_until(lambda: (lambda now: now if now and now["state"] == state else None)(service(daemon, gpu)),
                      f"{gpu} is {state}")


def load(daemon, tag, *more, alloc="512MiB", seconds=600):
    child = daemon.spawn("sublet", "run", "--vram", "1GiB", "--gpu", "gpu1", "--tag", tag, *more, "--", "simgpu-load",
                         "--alloc", alloc, "--seconds", str(seconds), "--verify", "--json")
    until_filled(daemon, tag, alloc)
    return child


def reasons(daemon, tag, code):
    return [reason for reason in daemon.get(f"/v1/leases/{tag}/why")["reasons"] if reason["code"] == code]


def test_a_cordoned_card_grants_nothing_and_keeps_its_leases(start_daemon):
    daemon = two_cards(start_daemon)
    run = load(daemon, "before")
    said = daemon.cli("gpu", "cordon", "gpu1", "--reason", "new fan", check=0)
    assert "gpu1 is cordoned: no lease is granted there" in said.stderr + said.stdout
    assert "lease-1 (active)" in said.stderr + said.stdout
    large = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "large", "--", "true")
    queued(daemon, "large")
    closed = "gpu1 is out of service (cordoned by root: new fan)"
    for words in (("why", "large"), ("queue",)):
        assert closed in daemon.cli(*words, check=0).stdout, words
    assert "sublet gpu uncordon" in daemon.cli("why", "large").stdout
    for words in (("gpus",), ("status",)):
        shown = daemon.cli(*words, check=0).stdout
        assert "cordoned" in shown and "by root: new fan" in shown, shown
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    assert [c for c in checks if "cordoned since" in c["text"] and "uncordon gpu1" in c["hint"]], checks
    refused = daemon.api().post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, queue=False))
    assert (refused.status, refused["code"]) == (409, "Draining") and closed in refused["detail"]
    assert daemon.api().post("/v1/leases", dict(ASK, vram_bytes=8 * GIB)).status == 422, "no card can ever hold it"
    other = daemon.api().post("/v1/leases", ASK)
    assert other["state"] == "active" and other["devices"] != lease_of(daemon, "before")["devices"]
    assert lease_of(daemon, "before")["state"] == "active"
    ends_well(daemon, "before", run)
    assert lease_of(daemon, "large")["state"] == "queued", "the end of a lease there grants nothing"
    assert "gpu1 is in service" in daemon.cli("gpu", "uncordon", "gpu1", check=0).stderr
    assert large.wait(60) == 0


def test_a_drain_pauses_leases_that_come_back_with_the_card(start_daemon):
    daemon = two_cards(start_daemon)
    run = load(daemon, "train")
    daemon.cli("gpu", "drain", "gpu1", "--reason", "new driver", check=0)
    until(daemon, "train", "paused")
    now = is_in(daemon, "drained")
    assert [row["state"] for row in now["leases"]] == ["paused"] and now["deadline"] is None
    assert "gpu1 is being drained (new driver)" in daemon.cli("why", "train", check=0).stdout
    assert "out of service (drained by root: new driver)" in daemon.cli("why", "train", check=0).stdout
    daemon.restart()
    assert is_in(daemon, "drained")["reason"] == "new driver"
    assert lease_of(daemon, "train")["state"] == "paused"
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    until(daemon, "train", "active")
    ends_well(daemon, "train", run)
    states = [event["state"] for event in daemon_events(daemon)]
    assert states == ["draining", "drained", "in_service"], states


def daemon_events(daemon):
    shown = daemon.cli("events", "--type", "service", "--since", "0", "--no-follow", "--json", check=0).stdout
    return [json.loads(line) for line in shown.splitlines()]


def test_a_lease_that_cannot_be_paused_ends_only_at_the_deadline(start_daemon):
    daemon = two_cards(start_daemon)
    run = load(daemon, "pinned", "--pausable", "no")
    daemon.cli("gpu", "drain", "gpu1", check=0)
    told = wait_until(lambda: reasons(daemon, "pinned", "draining"), "its owner is told")
    assert "it is never paused (--pausable no); it runs until its program ends" in told[0]["text"]
    assert service(daemon)["state"] == "draining"
    assert service(daemon)["leases"][0]["problem"] == "it is never paused (--pausable no)"
    # A later drain replaces the first, and has a deadline.
    said = daemon.cli("gpu", "drain", "gpu1", "--deadline", "1h", "--reason", "new fan", check=0)
    assert "draining, deadline 20" in said.stderr and "lease-1 (it is never paused" in said.stderr
    wait_until(lambda: len(reasons(daemon, "pinned", "draining")) == 2, "the deadline is told")
    assert "it is ended in 1 h if it still runs then" in reasons(daemon, "pinned", "draining")[1]["text"]
    assert lease_of(daemon, "pinned")["state"] == "active" and run.poll() is None
    daemon.cli("gpu", "drain", "gpu1", "--deadline", "1s", check=0)
    gone = ended(daemon, "pinned")
    assert gone["end_reason"] == "revoked"
    assert run.wait(60) != 0
    assert "gpu1 is being drained by root, and its deadline has passed" in daemon.cli("why", "pinned").stdout
    is_in(daemon, "drained")


def test_a_drain_whose_program_does_not_end_is_late(start_daemon):
    daemon = two_cards(start_daemon)
    run = daemon.spawn("sublet", "run", "--vram", "1GiB", "--gpu", "gpu1", "--tag", "stubborn",
                       "--pausable", "no", "--", "sh", "-c",
                       "trap '' TERM; simgpu-load --alloc 512MiB --seconds 600 & exec sleep 600")
    until_filled(daemon, "stubborn", "512MiB")
    pid = lease_of(daemon, "stubborn")["owner"]["pid"]
    poisoned = load(daemon, "poisoned")
    daemon.ctl("fault", "restore-fail", "--pid", program_pid(daemon, "poisoned"))
    daemon.cli("pause", "poisoned", check=0)
    until(daemon, "poisoned", "paused")
    daemon.cli("resume", "poisoned", check=1)
    until(daemon, "poisoned", "poisoned")
    daemon.cli("gpu", "drain", "gpu1", "--deadline", "1s", check=0)
    late = is_in(daemon, "late")
    assert "it is poisoned, and Sublet does not end its program" in [row["problem"] for row in late["leases"]]
    warnings = daemon.get("/v1/status")["warnings"]
    assert [w for w in warnings if w["code"] == "drain-late" and "poisoned" in w["text"]], warnings
    assert "should be drained since" in daemon.cli("status", check=0).stdout
    assert lease_of(daemon, "poisoned")["state"] == "poisoned", "a drain does not end it"
    assert run.wait(60) != 0 and not os.path.exists(f"/proc/{pid}"), "the deadline and the grace are over"
    daemon.cli("stop", "poisoned", check=0)
    is_in(daemon, "drained")
    wait_until(lambda: not [w for w in daemon.get("/v1/status")["warnings"] if w["code"] == "drain-late"], "it is over")
    assert poisoned.wait(60) != 0


def program_pid(daemon, tag):
    lease = lease_of(daemon, tag)["id"]
    return next(row["pid"] for row in daemon.get("/v1/processes")["processes"] if row["lease"] == lease)


def test_a_session_saves_its_work_before_the_deadline(start_daemon, tmp_path):
    daemon = two_cards(start_daemon)
    daemon.cli("session", "open", "--vram", "1GiB", "--gpu", "gpu1", "--pausable", "no", "--checkpoint-timeout", "1h",
               "--checkpoint-cmd", f"cd {tmp_path}; echo work > saved; realpath saved", "--", "sleep", "600", check=0)

    def session():
        return json.loads(daemon.cli("session", "show", "session-1", "--json", check=0).stdout)

    wait_until(lambda: session()["state"] == "active", "it is active")
    daemon.cli("gpu", "drain", "gpu1", "--deadline", "2h", check=0)
    wait_until(lambda: service(daemon)["leases"] and service(daemon)["leases"][0]["problem"], "its owner is told")
    assert session()["state"] == "active", "its command has time enough"
    daemon.cli("gpu", "drain", "gpu1", "--deadline", "30m", "--reason", "new fan", check=0)
    closed = wait_until(lambda: (now := session())["state"] == "closed" and now, "it ends")
    assert closed["end_reason"] == "revoked" and "gpu1 is drained by root: new fan" in closed["why"], closed
    assert closed["checkpoint"]["locator"] == f"{tmp_path}/saved" and (tmp_path / "saved").read_text() == "work\n"
    is_in(daemon, "drained")


def test_two_drains_at_once(start_daemon):
    daemon = two_cards(start_daemon)
    run = load(daemon, "train")
    daemon.cli("gpu", "drain", "gpu0", "gpu1", check=2)
    daemon.cli("gpu", "drain", "gpu1", check=0)
    daemon.cli("gpu", "drain", "gpu0", check=0)
    until(daemon, "train", "paused")
    is_in(daemon, "drained", "gpu0")
    is_in(daemon, "drained", "gpu1")
    waits = daemon.api().post("/v1/leases", dict(ASK, tag="waits"))
    assert waits["state"] == "queued"
    told = daemon.cli("why", "waits", check=0).stdout
    assert "gpu0 is out of service" in told and "gpu1 is out of service" in told, told
    daemon.cli("gpu", "uncordon", "gpu0", check=0)
    wait_until(lambda: lease_of(daemon, "waits")["state"] == "offered", "it gets the first card")
    assert lease_of(daemon, "train")["state"] == "paused", "its card is still drained"
    daemon.cli("gpu", "uncordon", "gpu1", check=0)
    until(daemon, "train", "active")
    ends_well(daemon, "train", run)


def test_the_last_card_may_be_drained_while_others_wait(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    assert daemon.api().post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, pausable="no"))["state"] == "active"
    waits = daemon.api().post("/v1/leases", dict(ASK, vram_bytes=2 * GIB, tag="waits"))
    assert waits["state"] == "queued"
    daemon.cli("gpu", "drain", "0", "--deadline", "1s", check=0)
    is_in(daemon, "drained", "gpu0")
    assert lease_of(daemon, "waits")["state"] == "queued"
    assert "gpu0 is out of service" in daemon.cli("why", "waits", check=0).stdout
    daemon.cli("gpu", "uncordon", "0", check=0)
    wait_until(lambda: lease_of(daemon, "waits")["state"] == "offered", "it gets its memory")


def test_a_deadline_that_passes_while_no_daemon_runs_is_kept_by_the_next(start_daemon):
    daemon = two_cards(start_daemon)
    lease = daemon.api().post("/v1/leases", dict(ASK, vram_bytes=3 * GIB, pausable="no", tag="held"))
    daemon.cli("gpu", "drain", "gpu1", "--deadline", "1s", check=0)
    daemon.kill()
    daemon.restart()
    assert ended(daemon, "held")["end_reason"] == "revoked", lease
    is_in(daemon, "drained")


def test_the_document(start_daemon):
    """docs/devices.md: every command runs, in its order, and says what the document shows."""
    daemon = two_cards(start_daemon)
    text = (ROOT / "docs/devices.md").read_text().split("\n## MIG slices\n")[0]  # test_mig.py runs the rest
    ran = 0
    for block in re.findall(r"(?ms)^```console\n(.*?)^```$", text):
        for part in block.split("$ ")[1:]:
            command, *answer = part.splitlines()
            done = subprocess.run(["sh", "-c", command], env=daemon.env(), text=True, stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=120)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            said = re.sub(r"20\d\d-[\d:T.-]+Z", "2026-11-28T17:30:00.000Z", done.stdout + done.stderr)
            for line in answer:
                assert line in said, (command, said)
            ran += 1
    assert ran == 11


def test_bad_requests_name_what_is_wrong(start_daemon):
    daemon = two_cards(start_daemon)
    api = daemon.api()
    assert api.post("/v1/devices/gpu7/cordon", {}).status == 404
    assert "gpu0 (Simulated" in api.post("/v1/devices/gpu7/cordon", {})["hint"]
    for body in ({"deadline_seconds": 5}, {"reason": 7}, {"reason": "x" * 201}):
        assert api.post("/v1/devices/gpu0/cordon", body).status == 400, body
    for body in ({"deadline_seconds": 0}, {"deadline_seconds": "soon"}, {"until": "tomorrow"}):
        assert api.post("/v1/devices/gpu0/drain", body).status == 400, body
    assert api.post("/v1/devices/gpu0/uncordon", {"reason": "x"}).status == 400
    assert service(daemon, "gpu0") is None
    assert daemon.cli("gpu").returncode == 2
    assert daemon.cli("gpu", "drain", "gpu0", "--deadline", "soon").returncode == 2
    assert daemon.cli("gpu", "cordon", "gpu7").returncode == 4
    assert api.post("/v1/devices/0/uncordon", {})["service"] is None, "it is in service already"
