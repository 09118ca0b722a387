# SPDX-License-Identifier: Apache-2.0
"""Processes that hold GPU memory without a lease: found, explained, approved, and ended under the policy enforce."""
import csv
import io
import json
import os
import shutil
import signal

import pytest

from tests.support.sublet import BIN, GIB, MIB, living, wait_until

CONFIG = '[enforcer]\ninterval = "1s"\nstart_grace = "3s"\ngrace = "{grace}"\n[gpu]\ninterval_idle = "1s"\n'
LOAD = ("simgpu-load", "--alloc", "512MiB", "--seconds", "600", "--verify")


@pytest.fixture
def daemon(start_daemon):
    return start_daemon("1x4GiB", config=CONFIG.format(grace="2s"))


def verdict_of(daemon, pid):
    rows = daemon.get(f"/v1/verdicts?pid={pid}")["verdicts"]
    return rows[0] if rows else None


def found(daemon, pid):
    return wait_until(lambda: verdict_of(daemon, pid), "it is found")


def reaches(daemon, pid, stage, timeout=60.0):
    return wait_until(lambda: (now := verdict_of(daemon, pid)) and now["stage"] == stage and now, f"it is {stage}",
                      timeout)


def steps_of(daemon, pid):
    number = verdict_of(daemon, pid)["id"]
    return [step["what"] for step in daemon.get(f"/v1/verdicts/{number}")["steps"]]


def test_an_unleased_program_is_found_and_explained(daemon):
    outsider = daemon.spawn(*LOAD)
    row = found(daemon, outsider.pid)
    assert (row["stage"], row["policy"], row["name"]) == ("seen", "observe", "simgpu-load")
    wait_until(lambda: verdict_of(daemon, outsider.pid)["used_bytes"] > 400 * MIB, "its memory is known")
    text = daemon.cli("why", f"pid:{outsider.pid}", check=0).stdout
    assert "holds" in text and "under no lease since" in text and f"(pid {outsider.pid}, root)" in text
    assert "parents" in text and str(os.getpid()) in text
    assert str(outsider.pid) in daemon.cli("verdicts", check=0).stdout
    events = [json.loads(line) for line in
              daemon.cli("events", "--no-follow", "--type", "verdict", "--json", check=0).stdout.splitlines()]
    assert [event["pid"] for event in events] == [outsider.pid]
    outsider.terminate()
    outsider.wait(60)
    row = reaches(daemon, outsider.pid, "closed")
    assert row["outcome"] == "gone" and daemon.get("/v1/verdicts")["verdicts"] == []


def test_a_leased_program_has_no_verdict(daemon):
    leased = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "train", "--", *LOAD)
    outsider = daemon.spawn(*LOAD)
    found(daemon, outsider.pid)
    pids = {row["pid"] for row in daemon.get("/v1/verdicts?all=true")["verdicts"]}
    assert pids == {outsider.pid}
    def leased_pid():
        return next((row["pid"] for row in daemon.get("/v1/processes")["processes"] if row["lease"]), None)
    pid = wait_until(leased_pid, "the leased one is listed")
    assert "belongs to lease-1 (link: owner)" in daemon.cli("why", f"pid:{pid}", check=0).stdout
    assert leased.poll() is None


def test_an_unleased_program_is_ended_beside_a_leased_one(daemon):
    leased = daemon.spawn("sublet", "run", "--vram", "1GiB", "--tag", "train", "--", "simgpu-load", "--alloc", "512MiB",
                          "--seconds", "20", "--verify")
    outsider = daemon.spawn(*LOAD)
    found(daemon, outsider.pid)
    daemon.cli("enforce", "set", "user:root", "enforce", check=0)
    assert "enforce" in daemon.cli("enforce", "ls", check=0).stdout
    row = reaches(daemon, outsider.pid, "closed", timeout=90)
    assert row["outcome"] == "ended" and not living(outsider.pid)
    steps = steps_of(daemon, outsider.pid)
    assert steps[0] == "seen" and steps.index("condemned") < steps.index("SIGTERM") < steps.index("closed")
    assert row["evidence"] == {"nvml": True, "device_file": True, "mapping": True}
    assert leased.wait(120) == 0, "each of its bytes was right"


def test_one_process_is_ended_at_a_time(daemon):
    outsiders = [daemon.spawn(*LOAD) for _ in range(2)]
    for outsider in outsiders:
        found(daemon, outsider.pid)
    daemon.cli("enforce", "set", "user:root", "enforce", check=0)
    for outsider in outsiders:
        assert reaches(daemon, outsider.pid, "closed", timeout=120)["outcome"] == "ended"
    times = []
    for outsider in outsiders:
        steps = daemon.get(f"/v1/verdicts/{verdict_of(daemon, outsider.pid)['id']}")["steps"]
        times.append({step["what"]: step["time"] for step in steps})
    first, second = sorted(times, key=lambda steps: steps["SIGTERM"])
    assert first["closed"] <= second["condemned"]


def test_an_approval_closes_the_verdict(daemon):
    outsider = daemon.spawn(*LOAD)
    found(daemon, outsider.pid)
    daemon.cli("approve", "user:root", "--reason", "the house's own", "--until", "1h", check=0)
    assert reaches(daemon, outsider.pid, "closed")["outcome"] == "approved"
    assert "approval 1 allows that" in daemon.cli("why", f"pid:{outsider.pid}", check=0).stdout
    assert "user:root" in daemon.cli("approve", "--ls", check=0).stdout
    daemon.restart()
    assert "the house's own" in daemon.cli("approve", "--ls", check=0).stdout, "it is stored"
    daemon.cli("approve", "--revoke", "1", check=0)
    wait_until(lambda: (now := verdict_of(daemon, outsider.pid)) and now["stage"] == "seen", "it is seen again")


def test_a_policy_switched_in_the_grace_spares_the_process(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG.format(grace="10m") + '[lease]\nlinger = "1s"\n')
    ignoring = ("sh", "-c", "trap '' TERM; " + " ".join(LOAD) + " & wait; wait; sleep 600")
    outsider = daemon.spawn(*ignoring)
    row = wait_until(lambda: next(iter(daemon.get("/v1/verdicts")["verdicts"]), None), "it is found")
    daemon.cli("enforce", "set", "user:root", "enforce", check=0)
    pid = row["pid"]
    wait_until(lambda: verdict_of(daemon, pid)["stage"] in ("terminating", "closed"), "SIGTERM was sent", 90)
    daemon.cli("enforce", "set", "user:root", "observe", check=0)
    wait_until(lambda: verdict_of(daemon, pid)["stage"] in ("seen", "closed"), "it is spared or ended by SIGTERM")
    assert "SIGKILL" not in steps_of(daemon, pid) and living(outsider.pid), "the parent is no offender"


def test_a_preview_names_whom_it_would_end(daemon):
    outsider = daemon.spawn(*LOAD)
    preview = "/v1/enforcer/preview?since=1h&subject=user:root"
    [row] = wait_until(lambda: daemon.get(preview)["would_end"], "it would be ended", 60)
    assert row["pid"] == outsider.pid
    assert daemon.get("/v1/enforcer/preview?subject=user:nobody")["would_end"] == []
    assert str(outsider.pid) in daemon.cli("enforce", "--preview", "--since", "7d", check=0).stdout
    assert living(outsider.pid) and verdict_of(daemon, outsider.pid)["stage"] == "seen"


def test_a_program_that_only_draws_is_spared_unless_a_policy_includes_it(daemon):
    window = daemon.spawn("env", "SIMGPU_DRAWS=1", *LOAD)
    outsider = daemon.spawn(*LOAD)
    def previewed():
        body = daemon.get("/v1/enforcer/preview?since=1h")
        return body if body["would_end"] and body["spared"] else None
    body = wait_until(previewed, "both were seen three times, and could be ended", 60)
    assert [(row["pid"], row["would_end_now"]) for row in body["would_end"]] == [(outsider.pid, True)]
    assert [(row["pid"], row["spared_because"]) for row in body["spared"]] == [(window.pid, "it only draws")]
    shown = daemon.cli("enforce", "--preview", "-o", "pid,name,now", "--no-header", check=0).stdout.splitlines()
    assert [line.split(maxsplit=2) for line in shown] == [
        [str(outsider.pid), "simgpu-load", "ends"], [str(window.pid), "simgpu-load", "spared: it only draws"]]
    daemon.cli("enforce", "set", "user:root", "enforce", check=0)
    assert reaches(daemon, outsider.pid, "closed", timeout=90)["outcome"] == "ended"
    row = verdict_of(daemon, window.pid)
    assert living(window.pid) and (row["policy"], row["graphics_only"]) == ("observe", True)
    done = daemon.cli("enforce", "set", "user:root", "enforce", "--graphics", check=0)
    assert "processes that only draw" in done.stderr
    assert reaches(daemon, window.pid, "closed", timeout=90)["outcome"] == "ended"


def test_a_hostile_name_is_only_text(daemon, tmp_path):
    name = "x) Z 1 1\n\x1b[31m"
    shutil.copy(BIN / "simgpu-load", tmp_path / name)
    outsider = daemon.spawn(str(tmp_path / name), *LOAD[1:])
    row = found(daemon, outsider.pid)
    assert row["name"].startswith("x) Z 1 1") and "\n" not in row["name"]
    for arguments in (("verdicts",), ("verdicts", str(row["id"])), ("why", f"pid:{outsider.pid}"),
                      ("verdicts", "--csv")):
        text = daemon.cli(*arguments, check=0).stdout
        assert "\x1b[31m" not in text and str(outsider.pid) in text
    table = list(csv.DictReader(io.StringIO(daemon.cli("verdicts", "--csv", check=0).stdout)))
    assert [line["pid"] for line in table] == [str(outsider.pid)]
    bundle = tmp_path / "bundle.json"
    daemon.cli("verdicts", str(row["id"]), "--bundle", str(bundle), check=0)
    kept = json.loads(bundle.read_text())
    assert kept["verdict"]["pid"] == outsider.pid and "environ" not in bundle.read_text()
    assert daemon.cli("verdicts", str(row["id"]), "--bundle", str(bundle)).returncode != 0, "it overwrites nothing"


def test_a_process_gets_a_lease_by_hold(daemon):
    outsider = daemon.spawn(*LOAD)
    found(daemon, outsider.pid)
    holder = daemon.spawn("sublet", "hold", "--pid", str(outsider.pid), "--vram", "1GiB")
    assert reaches(daemon, outsider.pid, "closed")["outcome"] == "leased"
    holder.terminate()
    assert living(outsider.pid)


def test_a_rule_for_nobody_is_told(daemon):
    assert "there is no user 'nosuchuser'" in daemon.cli("enforce", "set", "user:nosuchuser", "warn", check=0).stderr
    assert "there is no user" not in daemon.cli("approve", "user:root", check=0).stderr


@pytest.mark.parametrize("arguments, says", [
    (("approve", "path:/usr/bin/python3"), "write user:NAME, cgroup:PATH, unit:NAME or container:ID"),
    (("approve", "cgroup:system.slice"), "give its path in the hierarchy"),
    (("enforce", "set", "unit:ssh", "enforce"), "a policy is for a user or a control group"),
    (("enforce", "rm", "7"), "there is no policy 7"),
    (("approve", "--revoke", "7"), "there is no approval 7"),
    (("verdicts", "7"), "there is no verdict '7'"),
    (("why", "pid:1"), "holds no GPU memory that the daemon has seen"),
])
def test_bad_input_says_what_to_do(shared_daemon, arguments, says):
    done = shared_daemon.cli(*arguments)
    assert done.returncode != 0 and says in done.stderr and "hint" in done.stderr, done.stderr


def test_doctor_tells_the_policy(daemon):
    checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
    [check] = [check for check in checks if check["name"] == "enforcer"]
    assert "is observe, with 0 exceptions and 0 approvals" in check["text"]


def test_it_can_be_switched_off(start_daemon):
    daemon = start_daemon("1x4GiB", config="[enforcer]\nenabled = false\n")
    assert "the enforcer is switched off" in daemon.cli("doctor").stdout
    done = daemon.cli("verdicts")
    assert done.returncode != 0 and "the enforcer is switched off" in done.stderr
    assert daemon.get("/v1/processes")["processes"] == [] and GIB
