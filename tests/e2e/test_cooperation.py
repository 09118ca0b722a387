# SPDX-License-Identifier: Apache-2.0
"""Cooperative programs: honest programs, and programs with every possible fault."""
import json
import os
import signal

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until, used_on_card
from tests.support.sublet import GIB, MIB, living, state_of, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n'
          '[pause]\nverify_timeout = "10s"\nyield_timeout = "3s"\n')
ALLOC = 128 * MIB


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x1GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def cooperation(daemon, tag):
    return daemon.get(f"/v1/leases/{tag}/cooperate").body


def start(daemon, mode, *more, seconds=600, run=()):
    """A program that fills 128 MiB, checks every byte, and reacts to a pause in the given way; "" for no cooperation.
    """
    program = daemon.spawn("sublet", "run", "--vram", "256MiB", "--tag", "it", *run, "--", "simgpu-load", "--alloc",
                           "128MiB", "--step", "32MiB", "--seconds", seconds, "--verify", "--json",
                           *(["--on-pause", mode] if mode else []), *more)
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200 and lease_of(daemon, "it")["used_bytes"] >= ALLOC,
               "it has filled its memory")
    return program


def reasons(daemon, tag="it"):
    return daemon.get(f"/v1/leases/{tag}/why")["reasons"]


def why(daemon, code, tag="it"):
    found = [reason["text"] for reason in reasons(daemon, tag) if reason["code"] == code]
    assert found, reasons(daemon, tag)
    return found[-1]


def end(program, pauses):
    """Ends it by SIGTERM; every byte must be unchanged."""
    os.kill(program_pid(program), signal.SIGTERM)
    out, err = program.communicate(timeout=120)
    result = json.loads(out.splitlines()[-1])
    assert program.returncode == 128 + signal.SIGTERM and result["ok"], (result, err)
    assert result["wrong_words"] == 0 and result["pauses"] in pauses, result
    return err


def program_pid(program):
    """The program below `sublet run`, its keeper."""
    return int(next(pid for pid in os.listdir("/proc") if pid.isdigit() and parent_of(pid) == program.pid))


def parent_of(pid):
    try:
        return int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def ledger_is_empty(daemon):
    assert daemon.get("/v1/ledger")["entries"] == []


def consumer(daemon, name="simgpu-load"):
    return next(row for row in daemon.get("/v1/consumers")["consumers"] if row["consumer"].split("~")[0] == name)


# --- honest programs ---

def test_a_cooperative_program_keeps_every_byte(daemon):
    program = start(daemon, "honest")
    registered = cooperation(daemon, "it")["registered"]
    assert registered["way"] == "poll" and registered["residue_bytes"] == 64 * MIB
    assert registered["pid"] == program_pid(program)
    done = daemon.cli("pause", "it")
    assert done.returncode == 0 and "is paused" in done.stderr, done.stderr
    paused = lease_of(daemon, "it")
    assert paused["pause"]["method"] == "cooperative" and paused["reserved_bytes"] == 64 * MIB
    assert used_on_card(daemon) < 64 * MIB
    assert 0.9 * ALLOC <= paused["parked_bytes"] < 2 * ALLOC, "it copied what it held, and the ledger knows"
    # Another program has the memory meanwhile.
    assert daemon.cli("run", "--vram", "600MiB", "--no-wait", "--", "simgpu-load", "--alloc", "512MiB", "--seconds",
                      "0").returncode == 0
    assert daemon.cli("resume", "it").returncode == 0
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it holds its bytes again")
    assert lease_of(daemon, "it")["pause"] is None
    ledger_is_empty(daemon)
    assert daemon.cli("pause", "it").returncode == 0, "and again"
    assert daemon.cli("resume", "it").returncode == 0
    end(program, [2])


def test_a_pause_outlives_a_restart_of_the_daemon(daemon):
    program = start(daemon, "honest")
    assert daemon.cli("pause", "it").returncode == 0
    daemon.kill()
    daemon.start()
    assert until(daemon, "it", "paused")["pause"]["method"] == "cooperative"
    assert daemon.cli("resume", "it").returncode == 0
    end(program, [1])


# --- wrong programs: each pause is undone or done by the driver, and no byte is lost ---

def test_a_liar_is_found_out_and_parked_by_the_driver(daemon):
    program = start(daemon, "liar")
    done = daemon.cli("pause", "it")
    assert done.returncode == 0, done.stderr
    assert "its memory was said to be free" in why(daemon, "resuming")
    assert lease_of(daemon, "it")["pause"]["method"] == "driver" and used_on_card(daemon) < 64 * MIB
    assert daemon.cli("resume", "it").returncode == 0
    ledger_is_empty(daemon)
    end(program, [1])


def test_a_liar_that_may_not_be_parked_otherwise_is_undone(daemon):
    program = start(daemon, "liar", run=["--pausable", "cooperative"])
    done = daemon.cli("pause", "it")
    assert done.returncode == 1, done.stderr
    assert "still held" in why(daemon, "resuming")
    assert lease_of(daemon, "it")["state"] == "active"
    ledger_is_empty(daemon)
    # Its only pause was undone: the consumer is listed all the same.
    known = consumer(daemon)
    assert known["runs"] == 0 and known["pauses"] == [
        {"method": "cooperative", "tried": 1, "failed": 1, "penalty_ms": 10000, "reliability_ratio": 0.5}], known
    shown = daemon.cli("report", "--consumers", check=0).stdout
    assert "FAILED" in shown and "1 of 1" in shown, shown
    end(program, [1])


def test_half_a_yield_is_a_failure(daemon):
    program = start(daemon, "half", "--step", "16MiB", run=["--pausable", "cooperative"])
    assert daemon.cli("pause", "it").returncode == 1
    assert "still held" in why(daemon, "resuming")
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has all of it again")
    ledger_is_empty(daemon)
    end(program, [1])


def test_a_late_yield_gets_a_resume_order(daemon):
    program = start(daemon, "late", run=["--pausable", "cooperative"])
    assert daemon.cli("pause", "it").returncode == 1
    assert "within 3 s" in why(daemon, "resuming")
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has all of it again")
    assert lease_of(daemon, "it")["state"] == "active"
    ledger_is_empty(daemon)
    end(program, [1])


def test_an_unresponsive_program_is_parked_by_the_driver(daemon):
    program = start(daemon, "unresponsive")
    assert daemon.cli("pause", "it").returncode == 0
    assert lease_of(daemon, "it")["pause"]["method"] == "driver"
    assert daemon.cli("resume", "it").returncode == 0
    ledger_is_empty(daemon)
    end(program, [0])


@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
def test_memory_allocated_while_paused_is_charged_and_told(daemon, restart):
    program = start(daemon, "again-at-usr1")
    assert daemon.cli("pause", "it").returncode == 0
    before = daemon.get("/v1/ledger")["entries"]
    free = daemon.get("/v1/devices")["devices"][0]["effective_free_bytes"]
    os.kill(program_pid(program), signal.SIGUSR1)
    wait_until(lambda: any(reason["code"] == "allocated_while_paused" for reason in reasons(daemon)), "it is seen")
    assert "nothing is granted against this memory" in str(reasons(daemon))
    assert daemon.get("/v1/devices")["devices"][0]["effective_free_bytes"] < free
    paused = lease_of(daemon, "it")
    assert paused["state"] == "paused" and paused["pause"]["method"] == "cooperative", paused
    assert daemon.get("/v1/ledger")["entries"] == before, "the ledger counts what is parked, and no more"
    if restart:  # the new daemon knows only the stored state
        daemon.kill()
        daemon.start()
    assert daemon.cli("resume", "it").returncode == 0
    ledger_is_empty(daemon)
    end(program, [1])


def test_a_stopped_process_gets_its_resume_once_it_runs_again(daemon):
    program = start(daemon, "honest", run=["--pausable", "cooperative"])
    pid = program_pid(program)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "it is stopped")
    done = daemon.cli("pause", "it", "--no-wait")
    assert done.returncode == 0, done.stderr
    assert "within 3 s" in wait_until(
        lambda: any(reason["code"] == "resuming" for reason in reasons(daemon)) and why(daemon, "resuming"), "undone")
    assert lease_of(daemon, "it")["state"] == "resuming", "not verified is not active"
    os.kill(pid, signal.SIGCONT)
    until(daemon, "it", "active")
    ledger_is_empty(daemon)
    end(program, [0, 1])  # the program may have read both orders, or only the last


@pytest.mark.parametrize("state", ["pausing", "paused", "resuming"])
def test_a_program_that_dies_during_its_pause(daemon, state):
    program = start(daemon, {"pausing": "late", "resuming": "honest"}.get(state, "honest"))
    pid = program_pid(program)
    assert daemon.cli("pause", "it", *(["--no-wait"] if state == "pausing" else [])).returncode == 0
    if state == "resuming":  # the program gets the resume order, and cannot handle it
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state_of(pid) == "T", "it is stopped")
        assert daemon.cli("resume", "it", "--no-wait").returncode == 0
    until(daemon, "it", state)
    os.kill(pid, signal.SIGKILL)
    assert until(daemon, "it", "ended")["end_reason"] == "owner_gone"
    assert program.wait(timeout=60) == 128 + signal.SIGKILL and not living(pid)
    ledger_is_empty(daemon)
    wait_until(lambda: used_on_card(daemon) == 0, "nothing of it is left on the card")


def test_registrations_are_checked(daemon):
    program = start(daemon, "honest")
    api = daemon.api()
    refused = api.post("/v1/leases/it/cooperate", {"way": "poll"})
    assert (refused.status, refused["code"]) == (403, "Denied") and "does not belong" in refused["detail"]
    for body, says in (({"way": "telepathy"}, "unknown"), ({"way": "webhook"}, "url is missing"),
                       ({"way": "webhook", "url": "http://example.org:80/"}, "not a valid URL"),
                       ({"way": "poll", "url": "http://127.0.0.1:1/"}, "webhook"),
                       ({"way": "signal", "pause_signal": "KILL"}, "KILL"),
                       ({"way": "signal", "resume_signal": "USR1"}, "both"),
                       ({"way": "poll", "residue_bytes": GIB}, "residue")):
        refused = api.post("/v1/leases/it/cooperate", body)
        assert refused.status == 400 and says in refused["detail"], refused
    refused = api.post("/v1/leases/it/cooperate", {"way": "signal", "pid": program.pid})
    assert refused.status == 403, refused
    stale = api.post("/v1/leases/it/cooperate/answer", {"number": 1, "answer": "yielded"})
    assert (stale.status, stale["code"]) == (409, "Stale")
    assert api.post("/v1/leases/it/cooperate/answer", {"number": 1, "answer": "perhaps"}).status == 400
    assert api.get("/v1/leases/it/cooperate?wait=100ms&since=0")["order"] == "none"
    assert api.get("/v1/leases/it/cooperate?since=x").status == 400
    assert api.call("DELETE", "/v1/leases/it/cooperate").body["registered"] is None
    assert "no longer frees its memory itself" in why(daemon, "cooperates")
    end(program, [0])
