# SPDX-License-Identifier: Apache-2.0
"""Supervised programs: restarts, kept memory, ceilings, and the death of everything around them."""
import os
import pathlib
import signal
import subprocess

import pytest

from tests.support.groups import limits_of
from tests.support.keeping import daemon, queued  # noqa: F401 (a fixture)
from tests.support.sublet import GIB, MIB, ROOT, living, wait_until

LOAD = ["simgpu-load", "--alloc", "512MiB", "--seconds", "600", "--verify"]


def program(daemon, tag):
    return daemon.get(f"/v1/programs/{tag}").body


def reaches(daemon, tag, *states):
    return wait_until(lambda: (now := program(daemon, tag))["state"] in states and now, f"{tag} is {states}")


def start(daemon, tag, arguments, **fields):
    """Adds a program by the API, with the environment that sees the daemon's cards."""
    api = daemon.api()
    body = {"tag": tag, "arguments": arguments, "directory": str(daemon.dir), "vram_bytes": GIB,
            "environment": [f"PATH={daemon.env()['PATH']}"], **fields}
    made = api.post("/v1/programs", body)
    api.close()
    assert made.status == 201, made
    return made


def act(daemon, tag, verb, **fields):
    api = daemon.api()
    reply = api.post(f"/v1/programs/{tag}/{verb}", fields)
    api.close()
    return reply


def measured(daemon, tag, least=400 * MIB):
    return wait_until(lambda: (now := program(daemon, tag))["used_bytes"] >= least and now, f"{tag} has its memory")


def starts_of(daemon, tag):
    """Returns all leases that the program ever had, oldest first."""
    return sorted((row for row in daemon.leases(all=True) if row["tag"] == tag),
                  key=lambda row: int(row["id"].removeprefix("lease-")))


# --- restarts ---

def test_a_failing_program_backs_off_and_starts_again(daemon):
    start(daemon, "flaky", ["sh", "-c", "exit 3"], restart="on-failure")
    now = wait_until(lambda: (now := program(daemon, "flaky"))["starts"] >= 3 and now, "it starts three times")
    assert now["restarts"] == now["starts"] - 1 and now["exit_status"] == 3 and now["end_reason"] == "released"
    act(daemon, "flaky", "stop")
    stopped = reaches(daemon, "flaky", "stopped")
    leases = starts_of(daemon, "flaky")
    assert len(leases) <= stopped["starts"] and all(lease["exit_status"] == 3 for lease in leases[:2])


@pytest.mark.parametrize("policy, ends", [("never", "exited"), ("on-failure", "exited")])
def test_a_good_end_is_final_unless_always(daemon, policy, ends):
    start(daemon, "job", ["true"], restart=policy)
    now = reaches(daemon, "job", ends)
    assert (now["exit_status"], now["starts"], now["lease_state"]) == (0, 1, None)


@pytest.mark.parametrize("arguments, status, says", [
    (["no-such-program"], 127, "'no-such-program' was not found in PATH"),
    (["/etc/passwd"], 126, "'/etc/passwd' cannot be executed: Permission denied"),
])
def test_a_program_that_cannot_start_fails_with_its_reason(daemon, arguments, status, says):
    start(daemon, "bad", arguments)
    now = reaches(daemon, "bad", "failed")
    assert (now["exit_status"], now["lease"]) == (status, None) and says in now["why"], now
    text = daemon.cli("status", "bad", check=5).stdout
    assert says in text
    assert "start 1 failed: " + says in daemon.cli("logs", "bad", check=0).stdout


def test_a_missing_directory_fails_with_its_reason(daemon):
    start(daemon, "bad", ["true"], directory="/no/such/place")
    assert "cannot enter the directory /no/such/place" in reaches(daemon, "bad", "failed")["why"]


def test_memory_is_kept_for_the_next_start(daemon):
    start(daemon, "serve", LOAD, vram_bytes=3 * GIB, restart="always")
    pid = measured(daemon, "serve")["pid"]
    hold = daemon.spawn("sublet", "hold", "--vram", "2GiB", "--tag", "waiter")
    queued(daemon, "waiter")
    os.kill(pid, signal.SIGKILL)
    again = wait_until(lambda: (now := program(daemon, "serve"))["state"] == "running" and now["starts"] == 2 and now,
                       "it runs again")
    queued(daemon, "waiter")  # it did not get in between
    assert again["pid"] != pid
    first = starts_of(daemon, "serve")[0]
    assert "memory_kept" in [reason["code"] for reason in daemon.get(f"/v1/leases/{first['id']}/why")["reasons"]]
    act(daemon, "serve", "stop")
    wait_until(lambda: hold.poll() is None and next(x for x in daemon.leases() if x["tag"] == "waiter")["state"] ==
               "active", "the waiter has its memory")


def test_a_queued_program_starts_in_its_turn_and_can_be_stopped(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "blocker")
    assert hold.stdout.readline().strip()
    start(daemon, "serve", LOAD, vram_bytes=2 * GIB)
    reaches(daemon, "serve", "queued")
    act(daemon, "serve", "stop")
    assert reaches(daemon, "serve", "stopped")["end_reason"] == "cancelled"
    act(daemon, "serve", "restart")
    reaches(daemon, "serve", "queued")
    hold.terminate()
    reaches(daemon, "serve", "running")


# --- ceilings ---

def test_a_leak_is_ended_and_its_neighbour_loses_no_byte(daemon):
    neighbour = daemon.spawn("sublet", "run", "--vram", "1GiB", "--", "simgpu-load", "--alloc", "512MiB", "--verify",
                             "--seconds", "5")
    start(daemon, "leak", ["simgpu-load", "--alloc", "3GiB", "--step", "16MiB", "--rate", "512MiB/s"], vram_bytes=GIB,
          memory_bytes=GIB)
    now = reaches(daemon, "leak", "failed")
    assert now["end_reason"] == "over_limit" and "more than its ceiling of 1" in now["why"], now
    lease, = starts_of(daemon, "leak")
    assert lease["peak_used_bytes"] <= GIB + 256 * MIB, "it was seen in time"
    out, errors = neighbour.communicate(timeout=60)
    assert neighbour.returncode == 0 and "0 wrong words" in out, out + errors


def test_a_ceiling_holds_for_foreground_programs_too(daemon):
    done = daemon.cli("run", "--vram", "512MiB", "--memory", "1GiB", "--", "simgpu-load", "--alloc", "3GiB",
                      "--seconds", "60")
    assert done.returncode in (128 + signal.SIGTERM, 128 + signal.SIGKILL), done.stderr
    assert [row["end_reason"] for row in daemon.leases(all=True)] == ["over_limit"]


def test_every_lease_has_a_ceiling_by_configuration(start_daemon):
    daemon = start_daemon("1x4GiB", config='[guard]\nceiling = "lease"\n[gpu]\ninterval_idle = "1s"\n')
    done = daemon.cli("run", "--vram", "1GiB", "--", "simgpu-load", "--alloc", "3GiB", "--seconds", "60")
    assert done.returncode in (128 + signal.SIGTERM, 128 + signal.SIGKILL), done.stderr
    assert [row["end_reason"] for row in daemon.leases(all=True)] == ["over_limit"]


def test_a_soft_limit_warns_and_a_lower_ceiling_ends(daemon):
    start(daemon, "serve", LOAD, memory_bytes=2 * GIB, soft_bytes=256 * MIB, vram_bytes=256 * MIB)
    lease = measured(daemon, "serve")["lease"]
    reasons = wait_until(lambda: [reason for reason in daemon.get(f"/v1/leases/{lease}/why")["reasons"]
                                  if reason["code"] == "over_soft_limit"], "it is warned")
    assert "more than its soft limit of 256 MiB; at its ceiling of 2.0 GiB the program is ended" in reasons[0]["text"]
    assert len(reasons) == 1
    now = program(daemon, "serve")
    assert reasons[0]["text"].startswith(now["warning"])
    assert now["warning"] in daemon.cli("programs", check=0).stdout
    assert f"  warning  {now['warning']}\n" in daemon.cli("status", "serve", check=0).stdout
    act(daemon, "serve", "update", memory_bytes=512 * MIB)
    now = reaches(daemon, "serve", "failed")
    assert (now["end_reason"], now["exit_status"]) == ("over_limit", 128 + signal.SIGTERM)


def test_a_queued_program_asks_again_for_its_new_size(daemon):
    hold = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "blocker")
    assert hold.stdout.readline().strip()
    api = daemon.api()
    body = {"tag": "serve", "arguments": LOAD, "directory": "/", "memory_bytes": 2 * GIB,
            "environment": [f"PATH={daemon.env()['PATH']}"]}
    assert api.post("/v1/programs", body).status == 201
    reaches(daemon, "serve", "queued")
    assert api.post("/v1/programs/serve/update", {"memory_bytes": 640 * MIB}).status == 200
    now = reaches(daemon, "serve", "running")
    assert (now["vram_bytes"], now["memory_bytes"]) == (640 * MIB, 640 * MIB)
    api.close()


def test_a_ceiling_that_no_device_has_is_refused(daemon):
    api = daemon.api()
    body = {"tag": "big", "arguments": ["true"], "directory": "/", "memory_bytes": 100 * GIB, "vram_bytes": GIB}
    refused = api.post("/v1/programs", body)
    assert (refused.status, refused["code"]) == (422, "TooLarge") and "the most is 4.0 GiB" in refused["detail"]
    refused = api.post("/v1/programs", {**body, "memory_bytes": 2 * GIB, "soft_bytes": 2 * GIB})
    assert refused.status == 400
    api.close()


def over_soft(daemon, tag):
    """Returns the reason that the newest lease of the program has for being over its soft limit, or None."""
    lease = program(daemon, tag)["lease"]
    reasons = daemon.get(f"/v1/leases/{lease}/why")["reasons"] if lease else []
    return next((reason for reason in reversed(reasons) if reason["code"] == "over_soft_limit"), None)


def test_a_program_above_its_soft_limit_is_slowed_down(daemon):
    start(daemon, "serve", LOAD, memory_bytes=2 * GIB)
    pid = measured(daemon, "serve")["pid"]
    assert act(daemon, "serve", "update", soft_bytes=256 * MIB).status == 200
    reason = wait_until(lambda: over_soft(daemon, "serve"), "it is warned")
    if "unlimited" in reason["args"]:
        assert "its processor time is not limited: " in reason["text"], "no group can be made here"
        return
    assert "it gets at most 25 % of a processor" in reason["text"], reason
    assert list(limits_of(pid).values()) == ["25000"]
    assert act(daemon, "serve", "update", soft_bytes=0).status == 200
    wait_until(lambda: list(limits_of(pid).values()) in (["-1"], ["max"], []), "it runs at full speed")
    assert living(pid)


# --- requests ---

def test_a_tag_names_one_program_of_a_user(daemon):
    start(daemon, "serve", LOAD)
    api = daemon.api()
    refused = api.post("/v1/programs", {"tag": "serve", "arguments": ["true"], "directory": "/", "vram_bytes": GIB})
    assert (refused.status, refused["code"]) == (409, "InUse")
    missing = api.get("/v1/programs/serv")
    assert missing.status == 404 and "did you mean 'serve'?" in missing["detail"]
    api.close()


def test_a_removed_program_may_run_on(daemon):
    start(daemon, "serve", LOAD, memory_bytes=2 * GIB)
    now = measured(daemon, "serve")
    assert act(daemon, "serve", "remove", keep_running=True).status == 200
    assert daemon.get("/v1/programs")["programs"] == []
    lease = daemon.api().lease(now["lease"])
    assert (lease["state"], lease["memory_bytes"]) == ("active", None) and living(now["pid"])
    log = pathlib.Path(now["log_path"])
    api = daemon.api()
    body = {"tag": "serve", "arguments": ["true"], "directory": "/", "vram_bytes": GIB}
    refused = api.post("/v1/programs", body)
    assert (refused.status, refused["code"]) == (409, "InUse") and f"belongs to {now['lease']}" in refused["detail"]
    api.close()
    assert log.exists(), "its keeper writes it"
    os.kill(now["pid"], signal.SIGTERM)
    wait_until(lambda: not list(log.parent.glob(log.name + "*")), "the log is removed after its keeper")


@pytest.mark.parametrize("limit_first", [True, False])
def test_a_stop_by_the_lease_outweighs_the_policy_above_the_ceiling(daemon, limit_first):
    # Its shell does not heed SIGTERM, and lives on for the grace.
    line = "trap '' TERM; " + " ".join(LOAD) + " & while :; do sleep 0.1; done"
    start(daemon, "serve", ["sh", "-c", line], vram_bytes=256 * MIB, memory_bytes=2 * GIB, restart="always")
    lease = measured(daemon, "serve")["lease"]
    api = daemon.api()
    steps = [("/v1/programs/serve/update", {"memory_bytes": 256 * MIB}),
             (f"/v1/leases/{lease}/release", {"stop": True})]
    for path, body in steps if limit_first else reversed(steps):
        if limit_first and "release" in path:
            wait_until(lambda: api.lease(lease)["state"] == "ended", "its lease has ended")
            assert program(daemon, "serve")["state"] == "running", "its processes live"
        assert api.post(path, body).status == 200
    now = reaches(daemon, "serve", "stopped")
    assert now["starts"] == 1
    assert now["end_reason"] == "over_limit" or not limit_first  # its program may end before the next reading
    api.close()


# --- deaths ---

def test_it_outlives_daemon_actor_and_probe_and_runs_once(daemon):
    start(daemon, "serve", LOAD, restart="always")
    now = measured(daemon, "serve")
    for name in ("sublet-actor", "sublet-gpu"):
        os.kill(wait_until(lambda name=name: daemon.child_pid(name), f"{name} runs"), signal.SIGKILL)
    daemon.restart()
    after = measured(daemon, "serve")
    assert (after["pid"], after["starts"], after["lease"]) == (now["pid"], 1, now["lease"])
    assert after["warning"] is None


def test_after_a_reboot_it_runs_once_again(daemon):
    start(daemon, "serve", LOAD, restart="always")
    start(daemon, "idle", LOAD)
    start(daemon, "stopped", LOAD, restart="always")
    measured(daemon, "stopped")
    act(daemon, "stopped", "stop")
    reaches(daemon, "stopped", "stopped")
    pids = [measured(daemon, tag)["pid"] for tag in ("serve", "idle")]
    daemon.kill()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    with daemon.store() as store:
        store.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot_id'")
    daemon.start()
    again = measured(daemon, "serve")
    assert (again["starts"], again["restarts"], again["end_reason"]) == (2, 1, "lost")
    assert reaches(daemon, "idle", "failed")["end_reason"] == "lost"
    assert program(daemon, "stopped")["state"] == "stopped"
    assert [lease["state"] for lease in starts_of(daemon, "serve")] == ["ended", "active"]


def test_a_start_that_the_daemon_did_not_see_is_made_once(daemon):
    """The daemon dies after the order to the keeper, and before the keeper's request."""
    daemon.kill()
    daemon.start(extra=("--failpoint", "granted.decided=kill"), wait_for_cards=False)
    api = daemon.api()
    try:
        api.post("/v1/programs", {"tag": "serve", "arguments": LOAD, "directory": "/", "vram_bytes": GIB,
                                  "environment": [f"PATH={daemon.env()['PATH']}"]})
    except OSError:
        pass
    daemon.restart()
    measured(daemon, "serve")
    assert len([lease for lease in starts_of(daemon, "serve") if lease["state"] == "active"]) == 1
    assert len(pids_of(daemon)) == 1


def pids_of(daemon):
    mark = f"SIMGPU_DIR={daemon.dir}/simgpu".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(b"simgpu-load") and mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_a_killed_keeper_ends_nothing_and_its_log_goes_on(daemon):
    start(daemon, "serve", ["sh", "-c", "while :; do echo tick; sleep 0.05; done"])
    now = wait_until(lambda: (now := program(daemon, "serve"))["pid"] and now, "it runs")
    log = pathlib.Path(now["log_path"])
    wait_until(lambda: log.exists() and "tick" in log.read_text(), "it writes")
    keeper = daemon.api().lease(now["lease"])["owner"]["keeper_pid"]
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: "is gone: the exit status will stay unknown" in daemon.log(), "the daemon says so")
    lines = log.read_text().count("tick")
    wait_until(lambda: log.read_text().count("tick") > lines + 20, "another keeper reads its output")
    assert living(now["pid"])
    warning = program(daemon, "serve")["warning"]
    assert warning.startswith(f"its keeper (pid {keeper}) is gone, so its exit status will be unknown; "), warning
    assert warning in daemon.cli("status", "serve", check=0).stdout
    os.kill(now["pid"], signal.SIGTERM)
    assert reaches(daemon, "serve", "failed")["exit_status"] is None


def test_the_lines_of_the_document_work(daemon):
    document = (ROOT / "docs/programs.md").read_text()
    lines = document.split("```sh\n", 1)[1].split("```", 1)[0].splitlines()
    printed = {}
    for line in lines:
        if line.startswith("sublet status"):
            measured(daemon, "serve", GIB)
        done = subprocess.run(["bash", "-c", line], env=daemon.env(), capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        printed[line.split()[1]] = done.stdout
    assert list(printed) == ["run", "programs", "status", "logs", "update", "restart", "stop", "start", "remove"]
    assert "running" in printed["status"] and "2.0 GiB" in printed["status"], printed
    assert "serve" in printed["programs"] and "filled 1.0 GiB" in printed["logs"], printed
    wait_until(lambda: daemon.get("/v1/programs")["programs"] == [], "it is removed")
