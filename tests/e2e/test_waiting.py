# SPDX-License-Identifier: Apache-2.0
"""Waiting in the queue, `run` inside `run`, and `hold` with its three kinds of owner."""
import json
import re
import signal
import subprocess

import pytest

from tests.support.keeping import SUBLET, daemon, ended, full, lease, queued  # noqa: F401
from tests.support.sublet import GIB, wait_until


# ------------------------------------------------------------------------------------------- the queue

def test_a_waiting_run_is_announced_and_starts(daemon, full, tmp_path):
    status = tmp_path / "status"
    with open(status, "w") as status_file:
        fd = status_file.fileno()
        run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "next", "--status-fd", str(fd), "--",
                           "sh", "-c", "exit 3", pass_fds=[fd])
    line = run.stderr.readline()
    assert re.match(r"sublet: lease-\d+ waits: place 1 · .* short", line), line
    assert "lease-" in line.split(" · held by ")[1]
    full.terminate()
    assert run.wait(timeout=60) == 3
    events = [json.loads(text) for text in status.read_text().splitlines()]
    assert [event["event"] for event in events if event["event"] != "queued"] == ["granted", "started", "exit"]
    assert events[0]["event"] == "queued" and events[0]["place"] == 1
    assert events[-1]["code"] == 3 and events[-1]["by"] == "program"


def test_a_refusal_names_the_flag(daemon):
    done = daemon.cli("run", "--vram", "1GiB", "--name", "bad/name", "--", "true")
    assert done.stderr.startswith('sublet: --name is "bad/name"; it must be '), done.stderr
    assert "hint: see: sublet run --help" in done.stderr
    done = daemon.cli("hold", "--vram", "1GiB", "--tag", "bad/tag", "--dry-run")
    assert done.stderr.startswith('sublet: --tag is "bad/tag"; ') and "sublet hold --help" in done.stderr, done.stderr


def test_ctrl_c_leaves_the_queue(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "impatient", "--", "true")
    queued(daemon, "impatient")
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=60) == 130
    assert lease(daemon, "impatient")["end_reason"] == "cancelled"


def test_killed_in_the_queue(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "gone", "--", "true")
    queued(daemon, "gone")
    run.kill()
    run.wait(timeout=60)
    assert ended(daemon, "gone")["end_reason"] == "cancelled"


@pytest.mark.parametrize("verb", ["run", "hold"])
def test_stopped_in_the_queue(start_daemon, verb):
    """An open connection is no proof of a living owner: the grant of a stopped waiter goes to the next."""
    daemon = start_daemon(config="[queue]\nclaim_window = \"1s\"\n")
    full = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "full")
    wait_until(lambda: lease(daemon, "full").get("state") == "active", "the card is full")
    command = ["--", "true"] if verb == "run" else []
    stopped = daemon.spawn("sublet", verb, "--vram", "3GiB", "--tag", "stopped", *command)
    queued(daemon, "stopped")
    behind = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "behind")
    queued(daemon, "behind")
    stopped.send_signal(signal.SIGSTOP)  # SIGTSTP stops nothing in a session without a terminal
    wait_until(lambda: stat_of(stopped.pid) == "T", "it is stopped")
    full.terminate()
    wait_until(lambda: lease(daemon, "behind")["state"] == "active", "the next one is granted")
    assert lease(daemon, "stopped")["state"] == "queued"
    assert "its offer was not claimed; place 1" in daemon.cli("ps").stdout
    assert f"pid {stopped.pid}, which waits for the lease, does not answer" in daemon.cli("why", "stopped").stdout
    stopped.send_signal(signal.SIGCONT)
    behind.terminate()
    if verb == "run":
        assert stopped.wait(timeout=60) == 0
    else:
        wait_until(lambda: lease(daemon, "stopped")["state"] == "active", "it has its lease after all")
        stopped.terminate()


def stat_of(pid):
    """The state of a process: R, S, T …"""
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(") ", 1)[1][0]


def test_what_was_taken_since_the_last_reading_is_not_granted(start_daemon):
    daemon = start_daemon(config="[gpu]\nmax_age = \"20m\"\ninterval_idle = \"5m\"\ninterval_busy = \"1m\"\n")
    api = daemon.api()
    first = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    api.post(f"/v1/leases/{first['id']}/release", {})
    daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: sum(at["bytes"] for one in daemon.cards()["processes"] for at in one["devices"]) >= 2 * GIB,
               "somebody without a lease took the memory")
    asked = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "queue": False})
    assert (asked.status, asked["code"]) == (409, "External"), asked.body
    small = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    assert small["state"] == "active"
    assert "measured " in daemon.cli("why", small["id"], check=0).stdout
    assert api.post(f"/v1/leases/{small['id']}/resize", {"vram_bytes": 3 * GIB, "queue": False}).status == 409


def test_gives_up_or_does_not_wait(daemon, full):
    done = daemon.cli("run", "--vram", "2GiB", "--wait", "100ms", "--tag", "w", "--", "true")
    assert done.returncode == 124, done.stderr
    assert lease(daemon, "w")["end_reason"] == "cancelled"
    done = daemon.cli("run", "--vram", "2GiB", "--no-wait", "--", "true")
    assert done.returncode == 75, done.stderr


def test_daemon_restarted_while_queued(daemon, full):
    run = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "patient", "--", "sh", "-c", "exit 8")
    before = queued(daemon, "patient")["id"]
    daemon.kill()
    daemon.start()
    assert queued(daemon, "patient")["id"] == before
    full.terminate()
    assert full.wait(timeout=60) == 0
    assert run.wait(timeout=60) == 8
    assert lease(daemon, "patient")["id"] == before


# ------------------------------------------------------------------------------------------- run in run, hold

def test_run_inside_run(daemon):
    inner = f"{SUBLET} run --vram 1GiB -- sh -c 'echo $SUBLET_LEASE; exit 5'"
    done = daemon.cli("run", "--vram", "2GiB", "--tag", "outer", "--", "sh", "-c", inner)
    assert done.returncode == 5, done.stderr
    assert done.stdout.strip() == lease(daemon, "outer")["id"]
    assert "inside lease-" in done.stderr
    # A device can be named by its index too. The result of a dry run is JSON if that was requested.
    for device in ("0", "gpu0", "any"):
        inner = f"{SUBLET} run --vram 1GiB --gpu {device} --dry-run --json -- true"
        done = daemon.cli("run", "--vram", "2GiB", "--tag", f"on-{device}", "--", "sh", "-c", inner, check=0)
        assert json.loads(done.stdout) == {"would": "start", "inside": lease(daemon, f"on-{device}")["id"]}
    # A size that does not fit makes a lease of its own; and the variable alone gives no membership.
    too_big = f"{SUBLET} run --vram 3GiB --no-wait -- true"
    assert daemon.cli("run", "--vram", "2GiB", "--", "sh", "-c", too_big).returncode == 75
    done = daemon.cli("run", "--vram", "1GiB", "--", "sh", "-c", "echo $SUBLET_LEASE",
                         SUBLET_LEASE="lease-1")
    assert done.stdout.strip() not in ("", "lease-1")


def test_hold_in_the_foreground(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "mine")
    printed = hold.stdout.readline().strip()
    assert lease(daemon, "mine")["id"] == printed
    daemon.kill()
    daemon.start()
    assert lease(daemon, "mine")["state"] == "active"
    hold.send_signal(signal.SIGINT)
    assert hold.wait(timeout=60) == 0
    assert lease(daemon, "mine")["end_reason"] == "released"


def test_hold_killed(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "mine")
    hold.stdout.readline()
    hold.kill()
    hold.wait(timeout=60)
    assert ended(daemon, "mine")["end_reason"] == "owner_gone"


def test_hold_for_a_process(daemon):
    owner = subprocess.Popen(["sleep", "1000"])
    try:
        done = daemon.cli("hold", "--vram", "1GiB", "--pid", str(owner.pid), "--tag", "theirs")
        assert done.returncode == 0, done.stderr
        assert lease(daemon, "theirs")["owner"]["pid"] == owner.pid
        assert lease(daemon, "theirs")["state"] == "active"
    finally:
        owner.kill()
        owner.wait()
    ended(daemon, "theirs")


def test_a_refusal_is_on_stdout_too_where_json_is_asked_for(daemon, tmp_path):
    token = ["--token-file", tmp_path / "token", "--ttl", "60s"]
    daemon.cli("hold", "--vram", "1GiB", *token, "--tag", "small", check=0)
    for code, problem, *words in (
            (1, "TooLarge", "hold", "--vram", "100GiB"), (75, "Memory", "hold", "--vram", "3GiB", "--no-wait"),
            (125, "TooLarge", "run", "--vram", "100GiB"), (75, "Memory", "run", "--vram", "3GiB", "--no-wait"),
            (1, "TooLarge", "free", "100GiB"), (4, "NotFound", "renew", "nosuch")):
        program = ["--", "echo", "it", "runs"] if words[0] == "run" else []
        done = daemon.cli(*words, "--json", *program)
        assert done.returncode == code, (words, done.stderr)
        told = json.loads(done.stdout)
        assert told["code"] == problem and told["detail"] and "status" in told, (words, told)
        assert not daemon.cli(*words, *program).stdout, words
    done = daemon.cli("run", "--vram", "1GiB", "--json", "--", "echo", "it", "runs")
    assert done.stdout == "it runs\n" and done.returncode == 0


def test_hold_by_token(daemon, tmp_path):
    token = tmp_path / "token"
    hold = ["hold", "--vram", "1GiB", "--token-file", str(token), "--ttl", "60s", "--tag", "token"]
    assert daemon.cli(*hold[:-4]).returncode == 2  # no --ttl
    assert not token.exists()
    done = daemon.cli(*hold)
    assert done.returncode == 0, done.stderr
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.read_text().strip() not in done.stdout + done.stderr
    again = daemon.cli(*hold)
    assert again.returncode == 2 and "already exists" in again.stderr
    assert len(daemon.leases()) == 1
    assert daemon.cli("renew", "token", "--ttl", "90s", "--token-file", str(token)).returncode == 0
    assert lease(daemon, "token")["ttl_seconds"] == 90
    plain = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "plain")
    assert plain.stdout.readline().strip()
    refused = daemon.cli("renew", "plain")
    assert refused.returncode == 2 and "sublet renew lease-2 --ttl 1h" in refused.stderr, refused.stderr
    wrong = tmp_path / "wrong"
    wrong.write_text("not it\nnot it")
    assert daemon.cli("renew", "token", "--token-file", str(wrong)).returncode == 2
    reply = daemon.cli("release", "token", "--json")
    assert json.loads(reply.stdout)["end_reason"] == "released"
    assert daemon.cli("wait", "token").returncode == 0


def test_a_lease_and_its_reasons_give_one_answer(start_daemon):
    daemon = start_daemon()
    api = daemon.api()
    daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: api.get("/v1/devices")["devices"][0]["other_bytes"] >= 2 * GIB, "the process is seen")
    asked = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600, "tag": "it"})
    assert asked["state"] == "queued"
    lease = api.lease("it")
    why = api.get("/v1/leases/it/why")
    (listed,) = api.get("/v1/leases")["leases"]
    assert lease["blocked"]["code"] == "External"
    assert lease["blocked"] == why["lease"]["blocked"] == listed["blocked"]
    for field in ("place", "short_bytes", "device", "holders"):
        assert lease["queue"][field] == why["queue"][field] == why["lease"]["queue"][field]
