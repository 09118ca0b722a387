# SPDX-License-Identifier: Apache-2.0
"""Preemption requests: for a waiting lease, for a process without a lease, and as a preview."""
import re
import signal

import pytest

from tests.support.machine import has_memory, with_memory
from tests.support.parking import ends_well, lease_of, quick_checkpoints, until, until_filled
from tests.support.sublet import GIB, MIB, wait_until

# Leases are paused only by a request here.
CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n[pause]\nautomatic = {}\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG.format("false"))
    quick_checkpoints(daemon)
    return daemon


@pytest.fixture
def willing(start_daemon):
    """A daemon that pauses lower tiers by itself."""
    daemon = start_daemon("1x4GiB", config=CONFIG.format("true"))
    quick_checkpoints(daemon)
    return daemon


def program(daemon, tag, size, alloc, *flags):
    """A program that fills `alloc` of the card and checks every byte of it at its end."""
    child = daemon.spawn("sublet", "run", "--vram", size, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                         "--seconds", "600", "--verify")
    until_filled(daemon, tag, alloc)
    return child


def waiter(daemon, tag, size, *flags, seconds=1):
    child = daemon.spawn("sublet", "run", "--vram", size, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", "1GiB",
                         "--seconds", seconds, "--verify")
    until(daemon, tag, "queued")
    return child


def nothing_happened(daemon, tags):
    assert {lease["tag"]: lease["state"] for lease in daemon.leases()} == tags
    assert daemon.get("/v1/ledger")["entries"] == []


# ---------------------------------------------------------------------------------------------- preempt

def test_a_preview_names_the_cheapest_and_does_nothing(daemon):
    program(daemon, "large", "2GiB", "1500MiB")
    program(daemon, "small", "1500MiB", "300MiB")
    waiter(daemon, "new", "1GiB")
    done = daemon.cli("preempt", "new", "--preview")
    assert done.returncode == 0, done.stderr
    head, row, total, away = done.stdout.splitlines()
    assert head.split()[:5] == ["LEASE", "CONSUMER", "USER", "TIER", "HOW"]
    assert away.startswith("It is unknown how long victims stay paused: it has no known end"), away
    small = lease_of(daemon, "small")
    assert re.match(rf"{small['id']} +simgpu-load~\S+ +\S+ +standard +driver +1\.5 GiB +\S+ \S+ +\S+ +\S+ +\S+ +"
                    "never paused yet", row), row
    assert re.match(r"The memory is free on gpu0 after about \S+; pauses and resumes take \S+ in total\.", total), total
    reply = daemon.api().post("/v1/preempt", {"lease": "new", "preview": True})
    assert reply.status == 200 and reply["found"] and reply["why_not"] == ""
    assert [(v["lease"], v["method"], v["samples"]) for v in reply["victims"]] == [(small["id"], "driver", 0)]
    victim = reply["victims"][0]
    assert 0 < victim["pause_ms"] <= victim["pause_p95_ms"] and victim["bytes"] == small["used_bytes"]
    assert reply["cost_ms"] >= victim["pause_ms"] + victim["resume_ms"] - 1
    nothing_happened(daemon, {"large": "active", "small": "active", "new": "queued"})


def test_an_owner_pauses_their_own_program(daemon):
    first = program(daemon, "first", "3GiB", "2GiB")
    second = waiter(daemon, "second", "2GiB", seconds=600)
    done = daemon.cli("preempt", "second")
    assert done.returncode == 0 and "has its 2.0 GiB" in done.stderr, done.stderr
    assert lease_of(daemon, "first")["id"] in done.stdout and "driver" in done.stdout
    paused = lease_of(daemon, "first")
    assert paused["state"] == "paused", paused
    assert (paused["pause"]["cause"], paused["pause"]["preemptor"]) == ("owner_preemption", "lease-2"), paused["pause"]
    until_filled(daemon, "second", "1GiB")
    ends_well(daemon, "second", second)
    until(daemon, "first", "active")
    ends_well(daemon, "first", first)
    assert daemon.get("/v1/ledger")["entries"] == []


def test_a_victim_does_not_take_its_memory_back(willing):
    above = program(willing, "above", "3GiB", "2GiB")
    low = waiter(willing, "low", "2GiB", "--tier", "batch", seconds=600)
    waits = lease_of(willing, "low")
    assert willing.cli("preempt", "low").returncode == 0
    until(willing, "above", "paused")
    helps = wait_until(lambda: [text for text in willing.get("/v1/leases/above/why")["helps"] if waits["id"] in text
                                and "requested its memory" in text], "it is told why it does not come back")
    assert len(helps) == 1, helps
    until_filled(willing, "low", "1GiB")
    ends_well(willing, "low", low)
    codes = [reason["code"] for reason in willing.get(f"/v1/leases/{waits['id']}/why")["reasons"]]
    assert "pausing" not in codes, codes
    until(willing, "above", "active")
    above.send_signal(signal.SIGTERM)


def test_ineligible_leases_are_named_with_the_reason(daemon):
    program(daemon, "pinned", "3GiB", "1GiB", "--pausable", "no")
    waiter(daemon, "new", "2GiB")
    refused = daemon.api().post("/v1/preempt", {"lease": "new"})
    assert (refused.status, refused["code"]) == (409, "CannotPreempt")
    assert "pinned" in refused["detail"] and lease_of(daemon, "pinned")["id"] in refused["detail"]
    done = daemon.cli("preempt", "new")
    assert done.returncode == 1 and "no memory can be freed" in done.stderr and "pinned" in done.stderr, done.stderr
    preview = daemon.cli("preempt", "new", "--preview")
    assert preview.returncode == 1 and "Memory cannot be freed on gpu0: no lease" in preview.stdout, preview.stdout
    assert "is no victim: " in preview.stdout and "missing" in preview.stdout
    nothing_happened(daemon, {"pinned": "active", "new": "queued"})


def test_only_a_waiting_lease_can_be_the_preemptor(daemon):
    program(daemon, "runs", "2GiB", "1GiB")
    api = daemon.api()
    there = api.post("/v1/preempt", {"lease": "runs"})
    assert there.status == 200 and there["victims"] == [] and there["lease"]["state"] == "active"
    assert daemon.cli("pause", "runs").returncode == 0
    for preview in (True, False):
        refused = api.post("/v1/preempt", {"lease": "runs", "preview": preview})
        assert (refused.status, refused["code"]) == (409, "Stale") and "resume" in refused["hint"], refused
    assert api.post("/v1/preempt", {"lease": "nobody"}).status == 404
    for body in ({}, {"lease": ""}, {"lease": 7}, {"lease": "runs", "previw": True}, {"lease": "runs", "preview": 1}):
        assert api.post("/v1/preempt", body).status == 400, body


def test_preempt_times_out(daemon):
    victim = program(daemon, "slow", "3GiB", "2GiB")
    daemon.ctl("set", "checkpoint_bandwidth", 16 * MIB)
    waiter(daemon, "new", "2GiB")
    done = daemon.cli("preempt", "new", "--wait", "1s")
    assert done.returncode == 124 and "continues to free memory" in done.stderr, done.stderr
    until(daemon, "slow", "pausing")
    assert victim.poll() is None
    assert daemon.cli("preempt", "new", "--no-wait").returncode == 0
    assert lease_of(daemon, "new")["state"] == "queued"


def test_a_spot_lease_that_cannot_be_paused_is_ended(daemon):
    spot = program(daemon, "spot", "3GiB", "1GiB", "--tier", "spot", "--pausable", "no")
    second = waiter(daemon, "second", "2GiB")
    preview = daemon.cli("preempt", "second", "--preview", check=0).stdout
    assert re.search(r"spot +ended +3\.0 GiB +- +- +- +- +cannot be paused", preview), preview
    assert daemon.cli("preempt", "second").returncode == 0
    assert spot.wait(timeout=60) == 128 + signal.SIGTERM and second.wait(timeout=60) == 0
    assert lease_of(daemon, daemon.leases(all=True)[-1]["id"])["end_reason"] in ("revoked", "released")


def test_preempt_for_a_lease_that_resumes(daemon):
    first = program(daemon, "first", "3GiB", "2GiB")
    assert daemon.cli("pause", "first").returncode == 0
    program(daemon, "second", "2GiB", "1GiB")
    assert daemon.cli("resume", "first", "--no-wait").returncode == 0
    done = daemon.cli("preempt", "first")
    assert done.returncode == 0 and "has its 3.0 GiB" in done.stderr, done.stderr
    assert lease_of(daemon, "second")["state"] == "paused" and first.poll() is None


def test_preempt_for_a_lease_that_grows(daemon):
    program(daemon, "first", "1GiB", "512MiB")
    program(daemon, "second", "2GiB", "1GiB")
    assert daemon.api().post("/v1/leases/first/resize", {"vram_bytes": 3 * GIB}).status == 202
    done = daemon.cli("preempt", "first", "--json")
    assert done.returncode == 0 and '"vram_bytes":3221225472' in done.stdout, done.stdout
    assert lease_of(daemon, "second")["state"] == "paused"


def test_a_request_outlives_the_daemon_and_retries_its_victim(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG.format("false") + 'cooldown = "500ms"\n')
    quick_checkpoints(daemon)
    first = program(daemon, "first", "3GiB", "1GiB")
    waiter(daemon, "second", "2GiB")
    daemon.ctl("fault", "checkpoint-fail")
    asks = daemon.spawn("sublet", "preempt", "second")
    wait_until(lambda: any("undone" in reason["text"] for reason in daemon.get("/v1/leases/first/why")["reasons"]),
               "the first try failed")
    assert lease_of(daemon, "second")["state"] == "queued" and asks.poll() is None
    daemon.kill()
    daemon.ctl("clear")
    daemon.start()
    assert asks.wait(timeout=60) == 0, asks.communicate()[1]
    assert first.poll() is None
    until(daemon, "first", "active")


def coming_back(daemon, tag, hang="restore-hang"):
    """A program in the middle of its restore, while the fault lasts."""
    child = program(daemon, tag, "3GiB", "2GiB")
    wait_until(lambda: lease_of(daemon, tag)["used_bytes"] >= 2 * GIB, "all of it")
    assert daemon.cli("pause", tag).returncode == 0
    daemon.ctl("fault", hang)
    assert daemon.cli("resume", tag, "--no-wait").returncode == 0
    until(daemon, tag, "resuming")
    return child


def test_preempt_waits_for_a_resuming_victim(daemon):
    first = coming_back(daemon, "first")
    second = waiter(daemon, "second", "2GiB")
    preview = daemon.cli("preempt", "second", "--preview")
    assert preview.returncode == 0, preview.stderr
    assert re.search(r"^Not yet: lease-1 \(first, \S+\): it is resuming", preview.stdout, re.M), preview.stdout
    reply = daemon.api().post("/v1/preempt", {"lease": "second", "preview": True})
    assert reply["found"] and [victim["lease"] for victim in reply["victims"]] == ["lease-1"]
    assert reply["victims"][0]["bytes"] >= 2 * GIB, "what it will hold, not what it holds yet"
    asks = daemon.spawn("sublet", "preempt", "second")
    wait_until(lambda: "other leases are paused for it later: " in str(daemon.get("/v1/leases/second/why")["reasons"]),
               "the word is taken")
    assert "it is resuming" in lease_of(daemon, "second")["queue"]["basis"]
    daemon.ctl("clear")
    assert asks.wait(timeout=60) == 0, asks.communicate()
    assert second.wait(timeout=60) == 0, second.communicate()
    until(daemon, "first", "active")
    assert first.poll() is None


def test_free_waits_for_a_resuming_victim(daemon):
    first = coming_back(daemon, "first")
    preview = daemon.cli("free", "2GiB", "--preview")
    assert preview.returncode == 0 and "Not yet: lease-1" in preview.stdout, preview.stdout
    frees = daemon.spawn("sublet", "free", "2GiB")
    until(daemon, "lease-2", "queued")
    daemon.ctl("clear")
    assert frees.wait(timeout=60) == 0, frees.communicate()
    assert lease_of(daemon, "first")["state"] == "paused" and first.poll() is None


def test_a_preemption_is_estimated_before_the_victims_are_eligible(willing):
    coming_back(willing, "low")
    ready = willing.spawn("sublet", "run", "--vram", "2GiB", "--tag", "high", "--tier", "critical", "--", "true")
    waits = until(willing, "high", "queued")
    assert re.search(r"lease-1 \(low, .*\): it is resuming.*; then its pause takes about", waits["queue"]["basis"])
    willing.ctl("clear")
    assert ready.wait(timeout=60) == 0, ready.communicate()


# ---------------------------------------------------------------------------------------------- dry run

def dry(daemon, *flags, verb="run"):
    return daemon.cli(verb, "--dry-run", *flags, *(["--", "true"] if verb == "run" else []))


def test_a_dry_run_changes_nothing(willing):
    for verb in ("run", "hold"):
        done = dry(willing, "--vram", "2GiB", verb=verb)
        assert done.returncode == 0 and done.stdout.startswith("The lease would start at once"), done.stderr
    first = program(willing, "first", "3GiB", "1GiB", "--tier", "batch")
    done = dry(willing, "--vram", "2GiB")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "The lease would start with 2.0 GiB on gpu0, once these victims are paused:"
    assert lines[2].startswith(lease_of(willing, "first")["id"]) and " batch " in lines[2]
    done = dry(willing, "--vram", "2GiB", "--tier", "spot")
    assert done.returncode == 75, done.stderr
    assert done.stdout.startswith("The lease would wait: place 1, 1.3 GiB short on gpu0"), done.stdout
    assert "The memory is held by" in done.stdout and "No lease is paused: no lease on gpu0 may" in done.stdout
    nothing_happened(willing, {"first": "active"})
    # The real run does what the dry run said.
    done = willing.cli("run", "--vram", "2GiB", "--tag", "real", "--", "true")
    assert done.returncode == 0, done.stderr
    assert lease_of(willing, "first")["id"] == "lease-1" and lease_of(willing, "real")["id"] == "lease-2"
    until(willing, "first", "active")
    assert first.poll() is None


def test_a_dry_run_respects_host_memory(start_daemon, tmp_path):
    command = with_memory(tmp_path)
    has_memory(tmp_path, 2 * GIB + 900 * MIB)
    daemon = start_daemon("1x4GiB", config=CONFIG.format("true"), command=command)
    quick_checkpoints(daemon)
    first = program(daemon, "first", "3GiB", "1GiB", "--tier", "batch")
    done = dry(daemon, "--vram", "2GiB")
    assert done.returncode == 75, done.stdout + done.stderr
    assert done.stdout.startswith("The lease would wait: place 1, 1.3 GiB short on gpu0"), done.stdout
    why = "host memory takes no more than 900 MiB of parked bytes now"
    assert "No lease is paused: lease-1" in done.stdout and why in done.stdout, done.stdout
    preview = daemon.cli("free", "2GiB", "--preview")
    assert preview.returncode != 0 and why in preview.stdout + preview.stderr, "nor does a preview"
    would = lambda start: dry(daemon, "--vram", "2GiB").stdout.startswith(f"The lease would {start}")
    has_memory(tmp_path, 64 * GIB)
    wait_until(lambda: would("start with"), "the next snapshot tells that there is enough")
    has_memory(tmp_path, 2 * GIB + 900 * MIB)
    wait_until(lambda: would("wait"), "the next snapshot tells that there is not enough")
    waits = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "real", "--", "true")
    until(daemon, "real", "queued")
    told = lambda: "only 900 MiB more may be parked" in str(daemon.get("/v1/leases/real/why").body)
    wait_until(told, "it is told the same")
    assert lease_of(daemon, "first")["state"] == "active"
    waits.terminate()
    assert first.poll() is None


def test_failed_pauses_do_not_change_the_estimate(willing):
    first = program(willing, "first", "3GiB", "1GiB", "--tier", "batch")
    willing.ctl("fault", "checkpoint-fail", "--pid", lease_of(willing, "first")["owner"]["pid"])
    for _ in range(3):
        assert willing.cli("pause", "first").returncode == 1
    willing.ctl("clear")
    said = willing.cli("free", "2GiB", "--preview").stdout
    victim = willing.api().post("/v1/free", {"vram_bytes": 2 * GIB, "preview": True})["victims"][0]
    assert (victim["failed"], victim["tried"]) == (3, 3) and victim["penalty_ms"] > 10_000, victim
    assert victim["cost_ms"] > victim["pause_ms"] + victim["resume_ms"] + 10_000
    takes = re.search(r"pauses and resumes take (\S+)s in total", said)
    assert takes and float(takes[1].rstrip("m")) < 10 or "ms in total" in said, said
    assert "lease-1 counts as " in said and "more expensive: 3 of its last 3 pauses failed." in said, said
    assert first.poll() is None


def test_a_dry_run_is_refused_like_a_real_run(daemon, tmp_path):
    hold = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "taken")
    until(daemon, "taken", "active")
    api = daemon.api()
    for body, status, code in (({"vram_bytes": 9 * GIB}, 422, "TooLarge"),
                               ({"vram_bytes": GIB, "tag": "taken"}, 409, "InUse"),
                               ({"vram_bytes": 2 * GIB, "queue": False}, 409, "Memory"),
                               ({"vram_bytes": GIB, "device": "gpu7"}, 404, "NotFound"),
                               ({"vram_bytes": GIB, "tier": "fast"}, 400, "BadRequest")):
        real, dry_run = api.post("/v1/leases", body), api.post("/v1/leases", dict(body, dry_run=True))
        assert (dry_run.status, dry_run["code"]) == (status, code)
        assert dry_run["detail"] == real["detail"]
    assert dry(daemon, "--vram", "9GiB").returncode == 125
    assert dry(daemon, "--vram", "9GiB", verb="hold").returncode == 1
    file = tmp_path / "token"
    done = dry(daemon, "--vram", "512MiB", "--token-file", file, "--ttl", "1m", verb="hold")
    assert done.returncode == 0 and not file.exists(), done.stderr
    assert len(daemon.leases(all=True)) == 1 and hold.poll() is None


# ---------------------------------------------------------------------------------------------- free

def test_free_memory_is_reserved_and_given_back(daemon):
    first = program(daemon, "first", "3GiB", "2GiB")
    preview = daemon.cli("free", "2GiB", "--preview")
    assert preview.returncode == 0 and "lease-1" in preview.stdout, preview.stderr
    nothing_happened(daemon, {"first": "active"})
    done = daemon.cli("free", "2GiB", "--for", "10m")
    assert done.returncode == 0 and done.stdout == "lease-2\n", done.stderr
    assert "2.0 GiB are free on gpu0, reserved for 10 min" in done.stderr and "release lease-2" in done.stderr
    kept = lease_of(daemon, "lease-2")
    assert (kept["consumer"], kept["state"], kept["owner"]["kind"]) == ("free", "active", "token")
    assert lease_of(daemon, "first")["state"] == "paused"
    unleased = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "1", "--verify")
    assert unleased.wait(timeout=60) == 0, unleased.communicate()[1]
    assert daemon.cli("release", "lease-2").returncode == 0
    until(daemon, "first", "active")
    assert first.poll() is None


def test_victims_resume_when_the_time_is_over(daemon):
    program(daemon, "first", "3GiB", "2GiB")
    reply = daemon.api().post("/v1/free", {"vram_bytes": 2 * GIB, "device": "gpu0", "hold_seconds": 1,
                                           "wait_seconds": 60})
    assert reply.status == 201 and reply["preemption"]["victims"][0]["lease"] == "lease-1" and reply["token"]
    assert daemon.api().post(f"/v1/leases/{reply['id']}/claim", {})["state"] == "active"
    until(daemon, "first", "active")
    assert lease_of(daemon, reply["id"])["end_reason"] == "expired"


def test_ctrl_c_gives_the_memory_back(daemon):
    program(daemon, "first", "3GiB", "2GiB")
    daemon.ctl("set", "checkpoint_bandwidth", 256 * MIB)
    child = daemon.spawn("sublet", "free", "2GiB")
    wait_until(lambda: lease_of(daemon, "first")["state"] == "pausing", "it makes room")
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    daemon.ctl("set", "checkpoint_bandwidth", 0)
    wait_until(lambda: [lease["tag"] for lease in daemon.leases()] == ["first"], "nothing is left of it")
    until(daemon, "first", "active")


def test_an_impossible_free_is_refused(daemon):
    program(daemon, "pinned", "3GiB", "1GiB", "--pausable", "no")
    refused = daemon.api().post("/v1/free", {"vram_bytes": 2 * GIB})
    assert (refused.status, refused["code"]) == (409, "CannotPreempt") and "lease-1" in refused["detail"], refused
    done = daemon.cli("free", "2GiB")
    assert done.returncode == 1 and "2.0 GiB cannot be freed: no lease on gpu0" in done.stderr, done.stderr
    assert daemon.cli("free", "9GiB", "--preview").returncode == 1
    assert daemon.cli("free").returncode == 2
    assert len(daemon.leases(all=True)) == 1


# ---------------------------------------------------------------------------------------------- learned durations

def test_the_duration_of_pauses_is_learned_and_shown(daemon):
    assert "no consumer is remembered" in daemon.cli("report", "--consumers", check=0).stderr
    program(daemon, "first", "3GiB", "1GiB", "--name", "train")
    for _ in range(2):
        assert daemon.cli("pause", "first").returncode == 0
        assert daemon.cli("resume", "first").returncode == 0
    rows = daemon.get("/v1/consumers")["consumers"]
    assert [row["consumer"] for row in rows] == ["train"]
    moves = {move["move"]: move for move in rows[0]["moves"]}
    assert set(moves) == {"pause", "settle", "resume"} and rows[0]["runs"] == 0
    for move in moves.values():
        assert (move["method"], move["samples"]) == ("driver", 2)
    table = daemon.cli("report", "--consumers", check=0).stdout.splitlines()
    assert table[1].startswith("train ") and " driver " in table[1]
    assert table[2].startswith("(all on gpu0) ") and table[3].startswith("(all) ")
    # An estimate that rests on measured pauses says so.
    waiter(daemon, "new", "2GiB")
    assert " 2 earlier pauses" in daemon.cli("preempt", "new", "--preview", check=0).stdout
    assert daemon.cli("report", "--consumers", "--by", "user").returncode == 2
