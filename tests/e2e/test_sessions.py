# SPDX-License-Identifier: Apache-2.0
"""Sessions: renewal by activity, parking, checkpoints, resume, and the death of the daemon."""
import datetime
import os
import pathlib
import signal

import pytest

from tests.support.sessions import WORK, act, fills, hook, open_session, post, reaches, session, start_sessions
from tests.support.sublet import GIB, MIB, wait_until

PRINT_CHECKPOINT = ["sh", "-c", 'echo "from ${SUBLET_CHECKPOINT-nothing}"; exec sleep 600']


@pytest.fixture
def daemon(start_daemon):
    return start_sessions(start_daemon)


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def gone(daemon, pid):
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists(), f"pid {pid} is gone")
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "its bytes are gone")


def log_of(daemon, name):
    log = pathlib.Path(session(daemon, name)["log_path"])
    return log.read_text() if log.exists() else ""


# --- without a command ---

def test_a_session_without_a_command_has_a_token_and_takes_processes(daemon):
    opened = open_session(daemon, ttl_seconds=60)
    assert opened["state"] == "active" and opened["token"] and opened["lease"] and opened["expires_at"], opened
    lease = daemon.get(f"/v1/leases/{opened['lease']}").body
    assert (lease["tag"], lease["vram_bytes"]) == (opened["id"], GIB)
    child = daemon.spawn("sleep", "600")
    assert daemon.cli("attach", opened["id"], "--pid", child.pid).returncode == 0
    assert session(daemon, opened["id"])["pid"] == child.pid
    act(daemon, opened["id"], "close")
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["end_reason"] == "closed" and child.poll() is None, "Sublet ends no program that it did not start"
    again = act(daemon, opened["id"], "resume").body
    assert again["state"] == "active" and again["token"] != opened["token"] and again["starts"] == 2
    assert again["lease"] != opened["lease"]


def test_a_session_is_closed_though_an_attached_program_goes_on(daemon):
    opened = open_session(daemon)
    program = daemon.spawn("simgpu-load", "--alloc", "256MiB", "--seconds", "600", env=daemon.env())
    assert daemon.cli("attach", opened["id"], "--pid", program.pid).returncode == 0
    fills(daemon, opened["id"], 256 * MIB)
    act(daemon, opened["id"], "close", park=False)
    closed = reaches(daemon, opened["id"], "closed")
    assert str(program.pid) in closed["why"] and program.poll() is None, closed


def test_a_session_is_renewed_by_touches_and_expires_without(daemon):
    opened = open_session(daemon, ttl_seconds=2)
    for _ in range(3):
        before = session(daemon, opened["id"])["expires_at"]

        def renewed(before=before):
            act(daemon, opened["id"], "touch")
            return session(daemon, opened["id"])["expires_at"] > before
        wait_until(renewed, "it is renewed")
    expired = reaches(daemon, opened["id"], "closed")
    assert expired["end_reason"] == "expired" and "2 s" in expired["why"], expired
    refused = act(daemon, opened["id"], "touch", status=(409,))
    assert refused["code"] == "LeaseExpired" and "resume" in refused["hint"]


def test_a_session_waits_for_memory_and_takes_its_offer(daemon):
    first = open_session(daemon, vram_bytes=3 * GIB)
    second = open_session(daemon, vram_bytes=3 * GIB)
    assert second["state"] == "queued"
    act(daemon, first["id"], "close")
    reaches(daemon, second["id"], "active")


def test_a_smaller_session_grows_when_there_is_memory(daemon):
    first = open_session(daemon, vram_bytes=2 * GIB)
    small = open_session(daemon, vram_bytes=3 * GIB, min_vram_bytes=GIB)
    assert small["state"] == "active" and GIB <= small["vram_bytes"] < 3 * GIB == small["wanted_vram_bytes"]
    act(daemon, first["id"], "close")
    wait_until(lambda: session(daemon, small["id"])["vram_bytes"] == 3 * GIB, "it grows")


def test_exclusive_takes_the_whole_device(daemon):
    opened = post(daemon, "/v1/sessions", {"exclusive": True}).body
    assert opened["state"] == "active" and opened["vram_bytes"] > 3 * GIB, opened
    assert open_session(daemon)["state"] == "queued"


# --- with a command ---

def test_a_command_runs_under_the_session_and_ends_with_it(daemon):
    opened = open_session(daemon, WORK, command="simgpu-load")
    assert (opened["state"], opened["lease"], "token" in opened) == ("starting", None, False)
    now = fills(daemon, opened["id"])
    assert now["state"] == "active" and now["command"] == "simgpu-load" and now["devices"] == ["gpu0"]
    environment = pathlib.Path(f"/proc/{now['pid']}/environ").read_bytes().split(b"\0")
    assert f"SUBLET_SESSION={opened['id']}".encode() in environment
    act(daemon, opened["id"], "close", park=False)
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["end_reason"] == "closed" and closed["exit_status"] == 128 + signal.SIGTERM
    gone(daemon, now["pid"])


def test_the_lease_of_its_program_is_not_released_alone(daemon):
    opened = open_session(daemon, WORK)
    reaches(daemon, opened["id"], "active")
    now = wait_until(lambda: (seen := session(daemon, opened["id"]))["pid"] and seen, "it has its program")
    refused = post(daemon, f"/v1/leases/{now['lease']}/release", {}, status=(409,))
    assert refused["code"] == "InUse" and f"session close {opened['id']}" in refused["hint"]
    assert post(daemon, f"/v1/leases/{now['lease']}/release", {"stop": True}).status == 200
    reaches(daemon, opened["id"], "closed")


@pytest.mark.parametrize("arguments, reason, status, code", [
    (["sh", "-c", "exit 3"], "exited", 3, "Disconnected"),
    (["no-such-program"], "failed", 127, "Disconnected"),
])
def test_the_end_of_the_program_closes_the_session(daemon, arguments, reason, status, code):
    opened = open_session(daemon, arguments)
    closed = reaches(daemon, opened["id"], "closed")
    assert (closed["end_reason"], closed["exit_status"]) == (reason, status) and closed["why"], closed
    assert act(daemon, opened["id"], "touch", status=(409,))["code"] == code


def test_a_program_above_its_ceiling_ends_the_session(daemon):
    opened = open_session(daemon, ["simgpu-load", "--alloc", "2GiB", "--seconds", "600"], memory_bytes=GIB)
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["end_reason"] == "over_limit"
    assert act(daemon, opened["id"], "touch", status=(409,))["code"] == "Overcommit"


def test_an_expired_session_is_parked_and_comes_back_with_every_byte(daemon):
    opened = open_session(daemon, WORK, ttl_seconds=2)
    reaches(daemon, opened["id"], "active")
    fills(daemon, opened["id"])
    parked = reaches(daemon, opened["id"], "parked")
    assert parked["end_reason"] == "expired" and parked["kept_until"] and parked["lease_state"] == "paused"
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["used_bytes"] < 64 * MIB, "the card is free")
    assert act(daemon, opened["id"], "touch", status=(409,))["code"] == "LeaseExpired"
    act(daemon, opened["id"], "resume")
    now = reaches(daemon, opened["id"], "active")
    assert now["lease"] == parked["lease"] and now["pid"] == parked["pid"] and now["end_reason"] is None
    os.kill(now["pid"], signal.SIGTERM)  # the program checks every byte
    assert reaches(daemon, opened["id"], "closed")["exit_status"] == 128 + signal.SIGTERM


def test_work_on_the_device_renews(daemon):
    work = ["simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--busy", "80"]
    opened = open_session(daemon, work, ttl_seconds=2)
    before = fills(daemon, opened["id"], 256 * MIB)["created_at"]

    def renewed():
        now = session(daemon, opened["id"])
        return now["activity"]["state"] == "busy" and seconds(now["expires_at"]) > seconds(before) + 6 and now
    grown = wait_until(renewed, "it is renewed again and again")
    assert grown["state"] == "active" and grown["starts"] == 1


def test_without_utilization_a_session_is_renewed(daemon):
    daemon.ctl("fault", "nvml-no-utilization")
    opened = open_session(daemon, WORK, ttl_seconds=2)
    before = seconds(fills(daemon, opened["id"])["created_at"])
    now = wait_until(lambda: (now := session(daemon, opened["id"])) and seconds(now["expires_at"]) > before + 6 and now,
                     "it is renewed")
    assert now["activity"]["state"] == "unknown", now


def test_a_parked_session_is_closed_when_its_time_is_over(start_daemon):
    daemon = start_sessions(start_daemon, keep_parked="1s")
    opened = open_session(daemon, WORK)
    now = fills(daemon, opened["id"])
    act(daemon, opened["id"], "close")
    reaches(daemon, opened["id"], "parked")
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["end_reason"] == "closed"
    gone(daemon, now["pid"])


def test_a_session_that_was_preempted_is_parked_when_it_is_closed(daemon):
    below = open_session(daemon, WORK, vram_bytes=3 * GIB, tier="batch")
    fills(daemon, below["id"])
    above = open_session(daemon, vram_bytes=3 * GIB, tier="interactive")
    paused = reaches(daemon, below["id"], "paused")
    assert above["id"] in paused["why"], paused
    act(daemon, below["id"], "close")
    assert reaches(daemon, below["id"], "parked")["end_reason"] == "closed"
    act(daemon, above["id"], "close")
    reaches(daemon, above["id"], "closed")
    assert session(daemon, below["id"])["state"] == "parked", "it does not come back by itself"
    act(daemon, below["id"], "resume")
    assert reaches(daemon, below["id"], "active")["pid"] == paused["pid"]


def test_a_command_may_take_the_whole_device(daemon):
    opened = open_session(daemon, ["sleep", "600"], exclusive=True)
    now = reaches(daemon, opened["id"], "active")
    capacity = daemon.get("/v1/devices")["devices"][0]["capacity_bytes"]
    assert (now["vram_bytes"], now["exclusive"]) == (capacity, True)


# --- checkpoints ---

def test_a_checkpoint_is_made_on_request_and_resume_starts_from_it(daemon):
    line = ('echo "pid $SUBLET_PID of $SUBLET_SESSION, $SUBLET_LEASE" > hooked; '
            'echo "saved after ${SUBLET_CHECKPOINT-none}"')
    opened = open_session(daemon, PRINT_CHECKPOINT, checkpoint=hook(line))
    now = reaches(daemon, opened["id"], "active")
    wait_until(lambda: session(daemon, opened["id"])["pid"], "its program runs")
    assert act(daemon, opened["id"], "checkpoint")["checkpoint"]["running"]
    saved = wait_until(lambda: (now := session(daemon, opened["id"]))["checkpoint"]["at"] and now, "it is saved")
    assert saved["checkpoint"]["locator"] == "saved after none" and not saved["checkpoint"]["running"]
    assert (daemon.dir / "hooked").read_text() == f"pid {saved['pid']} of {opened['id']}, {now['lease']}\n"
    act(daemon, opened["id"], "close", park=False)
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["checkpoint"]["locator"] == "saved after saved after none", "it is saved at its end too"
    act(daemon, opened["id"], "resume")
    again = reaches(daemon, opened["id"], "active")
    assert again["starts"] == 2 and again["lease"] != now["lease"]
    wait_until(lambda: "from saved after saved after none" in log_of(daemon, opened["id"]), "it starts from there")


def test_checkpoints_are_made_again_and_again(daemon):
    opened = open_session(daemon, ["sleep", "600"], checkpoint=hook("echo x >> runs; wc -l < runs", every_seconds=1))
    wait_until(lambda: int(session(daemon, opened["id"])["checkpoint"]["locator"] or 0) >= 2, "it is saved twice")


def test_a_checkpoint_that_runs_already_is_followed_by_that_of_the_end(daemon):
    line = 'echo x >> runs; [ "$(wc -l < runs)" -gt 1 ] || { touch begun; read -r _ < gate; exit 1; }; echo second'
    os.mkfifo(daemon.dir / "gate")
    opened = open_session(daemon, WORK, checkpoint=hook(line))
    fills(daemon, opened["id"])
    act(daemon, opened["id"], "checkpoint")
    wait_until((daemon.dir / "begun").exists, "the first run has begun")
    act(daemon, opened["id"], "close", park=False)
    assert session(daemon, opened["id"])["state"] == "ending"
    gate = os.open(daemon.dir / "gate", os.O_RDWR)
    os.write(gate, b"go\n")
    closed = reaches(daemon, opened["id"], "closed", "parked")
    os.close(gate)
    assert (closed["state"], closed["checkpoint"]["locator"]) == ("closed", "second"), closed


@pytest.mark.parametrize("line, says", [
    ("sleep 1000", "did not end within 1 s and was killed"),
    ("echo no space left >&2; exit 3", "ended with exit status 3: no space left"),
])
def test_a_failed_checkpoint_leaves_the_program_parked(daemon, line, says):
    opened = open_session(daemon, WORK, checkpoint=hook(line, timeout_seconds=1))
    fills(daemon, opened["id"])
    act(daemon, opened["id"], "close", park=False)
    parked = reaches(daemon, opened["id"], "parked", "closed")
    assert parked["state"] == "parked" and says in parked["why"] and says in parked["checkpoint"]["problem"], parked
    act(daemon, opened["id"], "resume")
    assert reaches(daemon, opened["id"], "active")["pid"] == parked["pid"]


def test_a_close_ends_no_unsaved_program_that_cannot_be_parked(daemon):
    opened = open_session(daemon, ["sleep", "600"], pausable="no", checkpoint=hook("echo no disk >&2; exit 1"))
    now = reaches(daemon, opened["id"], "active")
    pid = wait_until(lambda: session(daemon, opened["id"])["pid"], "its program runs")
    done = daemon.cli("session", "close", opened["id"], check=1)
    assert "was not closed" in done.stderr and "no disk" in done.stderr and "--force" in done.stderr, done
    assert session(daemon, opened["id"])["state"] == "active" and pathlib.Path(f"/proc/{pid}").exists()
    daemon.cli("session", "close", "--force", opened["id"], check=0)
    closed = reaches(daemon, opened["id"], "closed")
    assert "its checkpoint failed" in closed["why"] and "not parked" in closed["why"], closed
    assert closed["lease"] == now["lease"]


# --- restarts ---

def test_sessions_outlive_the_daemon(daemon):
    runs = open_session(daemon, WORK, ttl_seconds=600, checkpoint=hook("echo here"))
    fills(daemon, runs["id"])
    waits = open_session(daemon, vram_bytes=3 * GIB + GIB // 2, tier="batch")  # shares no slices with the first one
    parked = open_session(daemon, ["simgpu-load", "--alloc", "256MiB", "--seconds", "600"], vram_bytes=GIB)
    fills(daemon, parked["id"], 256 << 20)
    act(daemon, parked["id"], "close")
    reaches(daemon, parked["id"], "parked")
    before = {name: session(daemon, name) for name in (runs["id"], waits["id"], parked["id"])}
    daemon.restart()
    for name, was in before.items():
        now = session(daemon, name)
        for field in ("state", "lease", "pid", "ttl_seconds", "starts", "end_reason", "wanted_vram_bytes"):
            assert now[field] == was[field], (name, field, now)
    act(daemon, runs["id"], "checkpoint")
    wait_until(lambda: session(daemon, runs["id"])["checkpoint"]["locator"] == "here", "the hook runs")


def test_a_daemon_that_is_killed_while_a_session_ends_finishes_the_end(daemon):
    opened = open_session(daemon, WORK, checkpoint=hook("touch saving; read -r _ < gate; echo late"))
    os.mkfifo(daemon.dir / "gate")
    now = fills(daemon, opened["id"])
    act(daemon, opened["id"], "close", park=False)
    wait_until((daemon.dir / "saving").exists, "its checkpoint command runs")
    daemon.restart()
    assert session(daemon, opened["id"])["state"] == "ending"
    gate = os.open(daemon.dir / "gate", os.O_RDWR)
    os.write(gate, b"go\n")
    closed = reaches(daemon, opened["id"], "closed")
    os.close(gate)
    assert closed["checkpoint"]["locator"] == "late"
    gone(daemon, now["pid"])


def test_a_parked_session_is_closed_by_the_next_daemon(start_daemon):
    daemon = start_sessions(start_daemon, keep_parked="4s")
    opened = open_session(daemon, WORK, checkpoint=hook("echo late"))
    now = fills(daemon, opened["id"])
    act(daemon, opened["id"], "close")
    reaches(daemon, opened["id"], "parked")
    daemon.restart()
    assert session(daemon, opened["id"])["state"] == "parked"
    closed = reaches(daemon, opened["id"], "closed")
    assert closed["checkpoint"]["locator"] == "late", "it runs again for its checkpoint"
    gone(daemon, now["pid"])


def test_the_output_of_a_session_without_its_keeper_is_read(daemon):
    os.mkfifo(daemon.dir / "gate")
    opened = open_session(daemon, ["sh", "-c", "read -r _ < gate; i=0; while [ $i -lt 20000 ]; do echo line $i; "
                                               "i=$((i+1)); done; exec sleep 600"])
    now = wait_until(lambda: (now := session(daemon, opened["id"]))["pid"] and now, "its program runs")
    # Its pid is known before the keeper lets it begin.
    wait_until(lambda: pathlib.Path(f"/proc/{now['pid']}/comm").read_text() == "sh\n", "its program has begun")
    keeper = daemon.get(f"/v1/leases/{now['lease']}")["owner"]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    gate = os.open(daemon.dir / "gate", os.O_RDWR)
    os.write(gate, b"go\n")
    wait_until(lambda: "line 19999" in log_of(daemon, opened["id"]), "all its lines are in its log")
    os.close(gate)


# --- others wait ---

def test_continuous_activity_is_capped_while_others_wait(start_daemon):
    daemon = start_sessions(start_daemon, more="", max_continuous="1s")  # before a time slice is over
    busy = open_session(daemon, ["simgpu-load", "--alloc", "3GiB", "--seconds", "600", "--busy", "100"],
                        vram_bytes=3 * GIB + GIB // 2, tier="interactive")
    fills(daemon, busy["id"], 3 * GIB)
    waiter = open_session(daemon, vram_bytes=2 * GIB, tier="interactive")
    wait_until(lambda: act(daemon, busy["id"], "touch") and session(daemon, waiter["id"])["state"] == "active",
               "the waiter gets the memory", 30)
    paused = session(daemon, busy["id"])
    assert paused["state"] == "paused" and "without a break, and lease-2" in paused["why"], paused
    act(daemon, waiter["id"], "close")
    reaches(daemon, busy["id"], "active")


def test_a_spot_session_is_saved_before_its_program_is_told_to_end(daemon):
    saves = ["sh", "-c", "trap 'sleep 0.3; echo work > saved' USR1; touch ready; while :; do sleep 0.05; done"]
    spot = open_session(daemon, saves, vram_bytes=3 * GIB, tier="spot", pausable="no", checkpoint=hook(
        "kill -USR1 $SUBLET_PID || exit 1; until [ -s saved ]; do sleep 0.05; done; realpath saved"))
    now = reaches(daemon, spot["id"], "active")
    wait_until(lambda: (daemon.dir / "ready").exists(), "its program runs")
    above = open_session(daemon, vram_bytes=3 * GIB, tier="interactive")
    ended = reaches(daemon, spot["id"], "closed")
    assert (ended["end_reason"], ended["checkpoint"]["locator"]) == ("revoked", str(daemon.dir / "saved")), ended
    assert ended["checkpoint"]["bytes"] == 5 and ended["checkpoint"]["problem"] is None
    assert ended["lease"] == now["lease"] and reaches(daemon, above["id"], "active")
    told = {row["name"]: row for row in daemon.get("/v1/report?by=session")["rows"]}
    assert told[spot["id"]]["checkpoint_bytes"] == 5 and told[spot["id"]]["ended"] == {"revoked": 1}


def test_a_stop_of_its_lease_saves_the_work_first(daemon):
    opened = open_session(daemon, WORK, checkpoint=hook("until [ -e go ]; do sleep 0.05; done; echo saved"))
    now = fills(daemon, opened["id"])
    post(daemon, f"/v1/leases/{now['lease']}/release", {"stop": True})
    assert pathlib.Path(f"/proc/{now['pid']}").exists() and session(daemon, opened["id"])["state"] == "ending"
    (daemon.dir / "go").touch()
    closed = reaches(daemon, opened["id"], "closed")
    assert (closed["end_reason"], closed["checkpoint"]["locator"]) == ("closed", "saved"), closed
    at_once = open_session(daemon, WORK, checkpoint=hook("sleep 600"))
    now = fills(daemon, at_once["id"])
    for _ in range(2):
        post(daemon, f"/v1/leases/{now['lease']}/release", {"stop": True})
    gone(daemon, now["pid"])


# --- programs that use no GPU ---

# Uses no GPU until the file `go` is there.
LATER = ["sh", "-c", "echo begun; until [ -e go ]; do sleep 0.05; done; exec " + " ".join(WORK)]


def test_a_session_whose_program_uses_no_gpu_rests(daemon):
    quiet = open_session(daemon, LATER, vram_bytes=3 * GIB, ttl_seconds=2)
    resting = reaches(daemon, quiet["id"], "resting")
    assert resting["pid"] and resting["end_reason"] is None and resting["wanted_vram_bytes"] == 3 * GIB, resting
    other = open_session(daemon, vram_bytes=3 * GIB)
    assert reaches(daemon, other["id"], "active"), "its memory is for others"
    (daemon.dir / "go").touch()
    waits = reaches(daemon, quiet["id"], "queued")
    assert "uses a GPU again" in waits["why"] and waits["pid"] == resting["pid"], waits
    act(daemon, other["id"], "close")
    back = reaches(daemon, quiet["id"], "active")
    assert (back["vram_bytes"], back["pid"]) == (3 * GIB, resting["pid"]), back


def test_a_resting_session_gets_its_memory_by_a_touch_and_over_a_restart(start_daemon):
    daemon = start_sessions(start_daemon, idle_pause="1s")
    quiet = open_session(daemon, LATER, vram_bytes=3 * GIB, pausable="auto")
    wait_until(lambda: "begun" in log_of(daemon, quiet["id"]), "its program runs")
    other = open_session(daemon, vram_bytes=3 * GIB)
    resting = reaches(daemon, quiet["id"], "resting")
    reaches(daemon, other["id"], "active")
    daemon.restart()
    assert session(daemon, quiet["id"])["state"] == "resting"
    act(daemon, other["id"], "close")
    act(daemon, quiet["id"], "touch")
    assert reaches(daemon, quiet["id"], "active")["pid"] == resting["pid"]
    act(daemon, quiet["id"], "close")
    closed = reaches(daemon, quiet["id"], "closed")
    assert closed["end_reason"] == "closed" and "no process of the program uses CUDA" in closed["why"], closed


def test_no_idle_rule_ends_a_session_that_waits_for_its_memory_again(start_daemon):
    daemon = start_sessions(start_daemon, idle_end="1s")
    quiet = open_session(daemon, LATER, vram_bytes=3 * GIB)
    resting = reaches(daemon, quiet["id"], "resting")
    reaches(daemon, open_session(daemon, vram_bytes=3 * GIB, idle={"end_seconds": 0})["id"], "active")
    act(daemon, quiet["id"], "touch")
    reaches(daemon, quiet["id"], "queued")
    ends = open_session(daemon, vram_bytes=GIB // 2)
    reaches(daemon, ends["id"], "closed")  # by the same rule, and later
    waits = session(daemon, quiet["id"])
    assert waits["state"] == "queued" and waits["pid"] == resting["pid"], waits


def test_a_resting_session_takes_no_turn_of_another_idle_one(start_daemon):
    daemon = start_sessions(start_daemon, more="[idle]\nwhen = 'always'\n", idle_pause="1s")
    quiet = open_session(daemon, LATER, vram_bytes=GIB, pausable="auto")
    reaches(daemon, quiet["id"], "resting")
    idle = open_session(daemon, WORK, vram_bytes=GIB)
    paused = reaches(daemon, idle["id"], "paused")
    assert "done nothing" in paused["why"] and session(daemon, quiet["id"])["state"] == "resting", paused


# --- the idle rule of sessions ---

def test_an_idle_session_is_paused_for_others_and_a_touch_brings_it_back(start_daemon):
    daemon = start_sessions(start_daemon, idle_pause="1s")
    quiet = open_session(daemon, WORK, vram_bytes=3 * GIB)
    fills(daemon, quiet["id"])
    assert session(daemon, quiet["id"])["idle"]["pause_from"] == "sessions"
    other = open_session(daemon, vram_bytes=3 * GIB, tier="spot")
    paused = reaches(daemon, quiet["id"], "paused")
    assert "done nothing" in paused["why"], paused
    reaches(daemon, other["id"], "active")
    act(daemon, quiet["id"], "touch")
    act(daemon, other["id"], "close")
    assert reaches(daemon, quiet["id"], "active")["pid"] == paused["pid"]


def test_an_idle_session_ends_and_is_parked(start_daemon):
    daemon = start_sessions(start_daemon, idle_end="1s")
    quiet = open_session(daemon, WORK)
    parked = reaches(daemon, quiet["id"], "parked")
    assert parked["end_reason"] == "idle", parked
    own = open_session(daemon, WORK, idle={"end_seconds": 0})
    fills(daemon, own["id"])
    assert session(daemon, own["id"])["idle"]["end_seconds"] is None
