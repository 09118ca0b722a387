# SPDX-License-Identifier: Apache-2.0
"""Failures of a pause: bytes that vanish from the list but not from the card, requests and preemptors that come and go
while a pause is undone, a driver that does not return, too little host memory.
"""
import contextlib
import http.server
import json
import os
import signal
import threading

import pytest

from tests.support.parking import daemon, ends_well, lease_of, start_parking, until, until_filled  # noqa: F401
from tests.support.sublet import MIB, wait_until


def run(daemon, tag, vram, alloc, *flags, load=()):
    child = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                         "--seconds", "600", "--verify", *load)
    until_filled(daemon, tag, alloc)
    return child


def pid_of(daemon, tag):
    return lease_of(daemon, tag)["owner"]["pid"]


def reasons(daemon, tag, code):
    return [one["text"] for one in daemon.get(f"/v1/leases/{tag}/why")["reasons"] if one["code"] == code]


# --- not listed is not gone ---

def test_a_card_that_cannot_be_read_leaves_the_pause_unverified(start_daemon):
    """The pause is unverified: no program is blamed, nothing is granted, and every view names the card's problem."""
    daemon = start_parking(start_daemon)
    victim = run(daemon, "victim", "3GiB", "2GiB", "--tier", "batch")
    daemon.ctl("fault", "checkpoint-hang")
    paused = daemon.spawn("sublet", "pause", "victim")
    wait_until(lambda: daemon.cards()["calls"].get("cuCheckpointProcessCheckpoint"), "its bytes were weighed")
    daemon.ctl("fault", "nvml-error")  # the two readings that would show them gone never come
    daemon.ctl("clear", "checkpoint-hang")
    wait_until(lambda: reasons(daemon, "victim", "unverified"), "it is told")
    preemptor = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "preemptor", "--tier", "interactive", "--",
                             "true")
    now = lease_of(daemon, "victim")
    assert now["state"] == "pausing" and "gpu0 was last read" in now["pause"]["problem"]
    assert "cannot be verified: gpu0 was last read" in daemon.cli("ps").stdout
    assert "It cannot be verified: gpu0 was last read" in daemon.cli("why", "victim").stdout
    assert paused.wait(timeout=60) == 1
    assert "Unverified: its memory was not measured free within 5 s: gpu0 was last read" in paused.communicate()[1]
    assert len(reasons(daemon, "victim", "unverified")) == 1
    assert preemptor.poll() is None and lease_of(daemon, "preemptor")["state"] == "queued"
    daemon.ctl("clear")
    assert preemptor.wait(timeout=60) == 0, "made to yield again, and measured"
    assert reasons(daemon, "victim", "paused")
    until(daemon, "victim", "active")
    ends_well(daemon, "victim", victim)
    daemon.kill()
    with daemon.store() as store:
        assert store.execute("SELECT min(tries), min(outcomes) FROM pause_records").fetchone() == (1, 1), "no liar"


@pytest.mark.parametrize("before", [True, False], ids=["before_it_is_asked", "when_it_says_so"])
def test_a_vanished_process_has_not_yielded(daemon, before):
    run(daemon, "other", "512MiB", "256MiB")
    liar = run(daemon, "liar", "2GiB", "1GiB", "--pausable", "cooperative", load=("--on-pause", "liar"))
    wait_until(lambda: lease_of(daemon, "liar")["used_bytes"] >= 1024 * MIB, "all of it")
    wait_until(lambda: daemon.get("/v1/leases/liar/cooperate").body["registered"], "it yields by itself")
    pid = pid_of(daemon, "liar")
    if before:
        daemon.ctl("fault", "nvml-missing-pid", "--pid", pid)
        wait_until(lambda: lease_of(daemon, "liar")["used_bytes"] == 0, "it is not listed")
        done = daemon.spawn("sublet", "pause", "liar")
    else:
        done = daemon.spawn("sublet", "pause", "liar")
        until(daemon, "liar", "pausing")
        daemon.ctl("fault", "nvml-missing-pid", "--pid", pid)
    assert done.wait(timeout=60) == 1, done.communicate()
    undone = reasons(daemon, "liar", "resuming")
    assert len(undone) == 1 and not reasons(daemon, "liar", "paused")
    assert "by no listed process" in undone[0]
    until(daemon, "liar", "active")
    daemon.ctl("clear")
    assert liar.poll() is None
    daemon.kill()
    with daemon.store() as store:
        assert store.execute("SELECT count(*) FROM pause_records").fetchone()[0] == 0, "nobody knows that it lied"


# --- the last order, and the preemptor ---

@contextlib.contextmanager
def hook(goes_on):
    """The address of a program that refuses to yield, and answers a resume order late."""
    class Hook(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
            if order == "resume":
                goes_on.wait(timeout=60)
            body = json.dumps({"answer": "refused" if order == "yield" else "resumed"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        goes_on.set()
        server.shutdown()
        server.server_close()


def refusing(daemon, address):
    victim = run(daemon, "victim", "3GiB", "1GiB", "--tier", "batch")
    done = daemon.cli("cooperate", "victim", "--webhook", address)
    assert done.returncode == 0, done.stderr
    return victim


def test_a_resume_while_a_pause_is_undone_wins(daemon):
    goes_on = threading.Event()
    with hook(goes_on) as address:
        victim = refusing(daemon, address)
        assert daemon.cli("pause", "victim", "--no-wait").returncode == 0
        until(daemon, "victim", "resuming")
        assert daemon.cli("resume", "victim", "--no-wait").returncode == 0
        goes_on.set()
        until(daemon, "victim", "active")
        assert len(reasons(daemon, "victim", "pausing")) == 1, "no other method is tried"
        assert len(reasons(daemon, "victim", "resumed")) == 1
        ends_well(daemon, "victim", victim)


@pytest.mark.parametrize("stays", [True, False], ids=["waiting_preemptor", "gone_preemptor"])
def test_the_next_method(daemon, stays):
    goes_on = threading.Event()
    with hook(goes_on) as address:
        victim = refusing(daemon, address)
        preemptor = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "preemptor", "--tier", "interactive", "--",
                             "simgpu-load", "--alloc", "256MiB", "--seconds", "1", "--verify")
        until(daemon, "victim", "resuming")
        assert "if the memory is still wanted" in reasons(daemon, "victim", "resuming")[0]
        if not stays:
            preemptor.send_signal(signal.SIGINT)
            preemptor.wait(timeout=60)
            until(daemon, "preemptor", "ended")
        goes_on.set()
        if stays:
            assert preemptor.wait(timeout=60) == 0, preemptor.communicate()
            assert "the driver is asked" in reasons(daemon, "victim", "pausing")[-1]
        until(daemon, "victim", "active")
        assert len(reasons(daemon, "victim", "pausing")) == (2 if stays else 1)
        ends_well(daemon, "victim", victim)


# --- a driver that does not return ---

def two(daemon):
    return (run(daemon, "first", "1800MiB", "256MiB", "--tier", "batch"),
            run(daemon, "second", "1900MiB", "512MiB", "--tier", "batch"))


def stuck(daemon, tag):
    pause = lease_of(daemon, tag)["pause"]
    return pause is not None and pause["stuck"]


def test_a_hanging_driver_call_leads_to_the_next_victim(daemon):
    first, second = two(daemon)
    daemon.ctl("fault", "checkpoint-hang", "--pid", pid_of(daemon, "first"))
    preemptor = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tag", "preemptor", "--tier", "interactive", "--",
                         "simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--verify")
    until(daemon, "first", "pausing")
    wait_until(lambda: stuck(daemon, "first"), "it takes longer than it should", timeout=60)
    until(daemon, "second", "paused")
    until(daemon, "preemptor", "active")
    it = lease_of(daemon, "first")
    assert it["state"] == "pausing" and it["reserved_bytes"] == 1800 * MIB, "it keeps its room"
    assert it["pause"]["progress"]["late"] and it["pause"]["progress"]["moved_bytes"] <= 256 * MIB
    assert "stuck: the driver" in daemon.cli("ps").stdout
    said = daemon.cli("why", "first").stdout
    assert "stuck: the driver should have parked its program within" in said and "almost done" not in said, said
    daemon.ctl("clear")
    until(daemon, "first", "paused", "active")
    assert not stuck(daemon, "first")
    ends_well(daemon, "preemptor", preemptor)
    for tag, child in (("first", first), ("second", second)):
        until(daemon, tag, "active")
        ends_well(daemon, tag, child)


def test_a_hanging_restore_is_reported_and_delays_no_other(daemon):
    first, second = two(daemon)
    assert daemon.cli("pause", "first").returncode == 0
    daemon.ctl("fault", "restore-hang", "--pid", pid_of(daemon, "first"))
    assert daemon.cli("resume", "first", "--no-wait").returncode == 0
    wait_until(lambda: stuck(daemon, "first"), "it takes longer than it should", timeout=60)
    assert lease_of(daemon, "first")["state"] == "resuming"
    assert "stuck: the driver" in daemon.cli("ps").stdout
    preemptor = daemon.spawn("sublet", "run", "--vram", "1500MiB", "--tier", "interactive", "--", "true")
    assert preemptor.wait(timeout=60) == 0, preemptor.communicate()
    assert reasons(daemon, "second", "paused")
    daemon.ctl("clear")
    for tag, child in (("first", first), ("second", second)):
        until(daemon, tag, "active")
        ends_well(daemon, tag, child)


def test_a_stuck_lease_can_be_ended(daemon):
    first, _ = two(daemon)
    daemon.ctl("fault", "checkpoint-hang", "--pid", pid_of(daemon, "first"))
    assert daemon.cli("pause", "first", "--no-wait").returncode == 0
    wait_until(lambda: stuck(daemon, "first"), "it takes longer than it should", timeout=60)
    assert daemon.cli("stop", "first").returncode == 0
    assert first.wait(timeout=60) in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
    until(daemon, "first", "ended")
    daemon.ctl("clear")
    assert daemon.get("/v1/ledger")["entries"] == []


# --- blame ---

def test_a_refusal_by_the_host_is_not_the_programs_failure(start_daemon):
    daemon = start_parking(start_daemon, '[ledger]\nlimit = "256MiB"\n')
    run(daemon, "batch", "3GiB", "1GiB", "--tier", "batch")
    preemptor = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "preemptor", "--tier", "interactive", "--",
                             "true")
    until(daemon, "preemptor", "queued")

    def why():
        return str(daemon.get("/v1/leases/preemptor/why").body.get("helps"))
    wait_until(lambda: "host memory takes no more than 256 MiB of parked bytes now" in why(), "it says so")
    assert "its last pause failed" not in why()
    assert not reasons(daemon, "batch", "pausing")
    assert daemon.cli("stop", "batch").returncode == 0
    assert preemptor.wait(timeout=60) == 0
