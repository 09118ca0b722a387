# SPDX-License-Identifier: Apache-2.0
"""A lease follows its program: killed keepers, nesting by descent, devices that were not leased, work of others."""
import os
import pathlib
import signal
import subprocess
import time

import pytest

from tests.support.sublet import GIB, MIB, living, wait_until

QUICK = '[lease]\ngrace = "1s"\n[gpu]\ninterval_idle = "500ms"\ninterval_busy = "200ms"\n'


def lease_of(daemon, tag):
    return next((lease for lease in daemon.leases(all=True) if lease["tag"] == tag), None)


def run(daemon, tag, *command, vram="1GiB", flags=(), **options):
    """Starts a program under a lease. Returns its keeper once the program owns the lease."""
    keeper = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", *command, **options)
    wait_until(lambda: (lease := lease_of(daemon, tag)) and lease["owner"]["pid"], f"{tag} runs")
    return keeper


def ticks_since_start(pid):
    """Returns the age of a process in the unit of its start time. Processes of one tick have no order."""
    start = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) - start


def codes(daemon, tag):
    return [reason["code"] for reason in daemon.get(f"/v1/leases/{lease_of(daemon, tag)['id']}/why")["reasons"]]


# ------------------------------------------------------------------------------------------------ killed keepers

@pytest.mark.parametrize("deaf", [False, True])
def test_a_killed_wrapper_means_its_program(start_daemon, deaf):
    daemon = start_daemon("1x4GiB", config=QUICK)
    program = ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"] if deaf else ["sleep", "600"]
    keeper = run(daemon, "job", *program)
    pid = lease_of(daemon, "job")["owner"]["pid"]
    keeper.kill()
    wait_until(lambda: not living(pid), "the program is ended")
    wait_until(lambda: lease_of(daemon, "job")["state"] == "ended", "so is the lease")
    assert "keeper_killed" in codes(daemon, "job") and ("killing" in codes(daemon, "job")) == deaf
    assert "--keep-running" in daemon.cli("why", "job", check=0).stdout


def test_a_stop_that_was_asked_for_before_is_not_told_as_a_program_that_runs_on(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK.replace('"1s"', '"600s"'))
    keeper = run(daemon, "job", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", flags=["--keep-running"])
    lease = lease_of(daemon, "job")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    keeper.kill()
    wait_until(lambda: "keeper_killed" in codes(daemon, "job"), "the end of its keeper is noticed")
    said = daemon.cli("why", "job", check=0).stdout
    assert "runs on" not in said, said
    os.kill(lease["owner"]["pid"], signal.SIGKILL)


def test_a_program_that_keeps_running_is_shown_as_one_without_a_keeper(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    keeper = run(daemon, "job", "sleep", "600", vram="3GiB", flags=["--keep-running"])
    waiter = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "waits", "--", "true")
    wait_until(lambda: lease_of(daemon, "waits"), "another program waits")
    assert "keeper" not in daemon.cli("why", "waits", check=0).stdout
    keeper.kill()
    wait_until(lambda: "keeper_killed" in codes(daemon, "job"), "the end of its keeper is noticed")
    for _ in range(2):
        lease = lease_of(daemon, "job")
        assert lease["state"] == "active" and living(lease["owner"]["pid"]) and lease["owner"]["keeper_killed"]
        assert "its keeper was killed" in daemon.cli("ps", check=0).stdout
        assert "exit status stays unknown" in daemon.cli("why", "job", check=0).stdout
        assert "whose keeper was killed" in daemon.cli("why", "waits", check=0).stdout
        daemon.restart()
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    assert waiter.wait(60) == 0


def test_a_restart_ends_no_program_without_a_keeper(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    keeper = run(daemon, "job", "sleep", "600")
    daemon.kill()
    keeper.kill()
    keeper.wait()
    daemon.start()
    clock = daemon.api().post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 2})["id"]
    wait_until(lambda: daemon.api().lease(clock)["state"] == "ended", "some time has passed")
    lease = lease_of(daemon, "job")
    assert lease["state"] == "active" and not lease["stopping"] and living(lease["owner"]["pid"])
    assert lease["owner"]["keeper_killed"]
    os.kill(lease["owner"]["pid"], signal.SIGKILL)


# ------------------------------------------------------------------------------------------------ nesting

def bare(daemon):
    """The environment of a shell that knows the daemon, and no lease."""
    return {name: value for name, value in daemon.env().items() if name != "SUBLET_LEASE"}


def test_a_shell_that_was_attached_later_uses_its_lease(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    shell = subprocess.Popen(["sh"], env=bare(daemon), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    holder = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "pool", "--pid", shell.pid)
    outer = wait_until(lambda: (lease := lease_of(daemon, "pool")) and lease["owner"]["pid"] == shell.pid and lease,
                       "the shell has a lease")
    out, _ = shell.communicate("sublet run --vram 1GiB -- sh -c 'echo sees $CUDA_VISIBLE_DEVICES in $SUBLET_LEASE'\n"
                               "env -i PATH=\"$PATH\" SUBLET_HOST=\"$SUBLET_HOST\" sublet run --vram 1GiB -- true\n"
                               "sublet run --vram 2GiB --name more -- true; echo status $?\n", timeout=60)
    assert f"sees {outer['devices'][0]} in {outer['id']}" in out, out
    assert out.count(f"already inside {outer['id']}") == 3, out
    assert "status 0" in out and not [lease for lease in daemon.leases(all=True) if lease["tag"] != "pool"]
    holder.terminate()


def test_a_request_that_would_wait_for_itself_is_refused_at_once(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    text = "sublet run --vram 3500MiB --tag inner -- true; echo status $?; echo held; sublet hold --vram 2GiB; echo $?"
    done = daemon.cli("run", "-q", "--vram", "2GiB", "--tag", "outer", "--", "env", "-u", "SUBLET_LEASE", "sh", "-c",
                      text, check=0)
    assert "status 125" in done.stdout and done.stderr.count("would wait for itself") == 2, done.stderr
    assert "sublet resize" in done.stderr and "ask for 1." in done.stderr, done.stderr
    assert [lease["tag"] for lease in daemon.leases(all=True)] == ["outer"]


def test_a_session_that_would_wait_for_the_lease_around_it_is_refused(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    text = "sublet session open --vram 3500MiB; echo status $?"
    done = daemon.cli("run", "-q", "--vram", "2GiB", "--tag", "outer", "--", "sh", "-c", text, check=0)
    assert "status 0" not in done.stdout and "would wait for itself" in done.stderr, done
    assert [lease["tag"] for lease in daemon.leases(all=True)] == ["outer"]


def test_another_card_is_no_part_of_the_lease_around_the_caller(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK)
    text = "CUDA_VISIBLE_DEVICES=1 sublet run --vram 1GiB --tag other -- true; sublet run --vram 1GiB -- true"
    done = daemon.cli("run", "--vram", "2GiB", "--gpu", "gpu0", "--tag", "outer", "--", "sh", "-c", text, check=0)
    assert lease_of(daemon, "other")["devices"] == [daemon.json("gpus")["devices"][1]["uuid"]], done.stderr
    assert done.stderr.count("already inside") == 1, done.stderr


def test_a_request_that_fits_beside_its_lease_waits_for_others(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    other = run(daemon, "other", "sleep", "600", vram="1500MiB")
    outer = run(daemon, "outer", "sh", "-c", "sublet run --vram 2GiB --tag inner -- true", vram="1GiB")
    wait_until(lambda: (lease := lease_of(daemon, "inner")) and lease["state"] == "queued", "it waits")
    other.terminate()
    assert outer.wait(60) == 0
    assert lease_of(daemon, "inner")["exit_status"] == 0


# ------------------------------------------------------------------------------------------------ other devices

def stray(daemon, tag="stray", flags=()):
    """A program that was given one card, and fills the other one."""
    keeper = run(daemon, tag, "env", "CUDA_VISIBLE_DEVICES=1", "simgpu-load", "--alloc", "1GiB", "--seconds", "600",
                 flags=["--gpu", "gpu0", *flags])
    wait_until(lambda: lease_of(daemon, tag)["stray"] or lease_of(daemon, tag)["state"] == "ended", "it is seen")
    return keeper


def test_memory_on_a_device_that_was_not_leased_is_told_counted_and_charged(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK + '[enforcer]\ninterval = "1s"\n')
    stray(daemon)
    other = daemon.json("gpus")["devices"][1]
    lease = wait_until(lambda: (its := lease_of(daemon, "stray"))["stray"][0]["bytes"] > GIB and its, "all is filled")
    assert lease["stray"][0]["device"] == other["uuid"], lease
    for verb in (["ps"], ["why", "stray"]):
        said = " ".join(daemon.cli(*verb, check=0).stdout.split())
        assert "GiB on gpu1, which it has not leased" in said, said
    assert any(warning["code"] == "stray-use" for warning in daemon.get("/v1/status")["warnings"])
    daemon.spawn("sublet", "run", "--vram", "3GiB", "--gpu", "gpu1", "--tag", "waits", "--", "true")
    wait_until(lambda: lease_of(daemon, "waits"), "another program wants the card")
    why = " ".join(daemon.cli("why", "waits", check=0).stdout.split())
    assert f"of {lease['id']} (stray, " in why and "which has not leased gpu1" in why, why
    wait_until(lambda: "stray_use" in codes(daemon, "stray"), "its owner is told")

    def charged():
        rows = daemon.json("report", "--by", "device")["rows"]
        return next((row["used_mib_seconds"] for row in rows if row["name"] in (other["uuid"], "gpu1")), 0)

    wait_until(charged, "a report has it")


def test_a_ceiling_holds_on_every_device(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK)
    keeper = stray(daemon, flags=["--memory", "1GiB"])
    keeper.wait(60)
    assert lease_of(daemon, "stray")["end_reason"] == "over_limit"


def test_the_enforcer_ends_it_by_its_policy(start_daemon):
    enforcer = '[enforcer]\ninterval = "1s"\nstart_grace = "3s"\npolicy = "enforce"\n'
    daemon = start_daemon("2x4GiB", config=QUICK + enforcer)
    keeper = stray(daemon)
    keeper.wait(120)
    assert lease_of(daemon, "stray")["end_reason"] == "over_limit"
    assert "which it has not leased" in daemon.cli("why", "stray", check=0).stdout


# ------------------------------------------------------------------------------------------------ work of others

def test_work_that_a_lease_cannot_follow_is_told_before_the_start(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB", config=QUICK)
    for name in ("systemd-run", "docker", "tmux"):
        (tmp_path / name).write_text("#!/bin/sh\necho started >&2\n")
        (tmp_path / name).chmod(0o755)
    env = daemon.env(PATH=f"{tmp_path}:{daemon.env()['PATH']}")
    for command, verb in ((["systemd-run", "train"], "sublet run --detach"),
                          (["docker", "run", "-d", "x"], "leave -d out"), (["tmux", "new", "train"], "inside of tmux")):
        done = subprocess.run(["sublet", "run", "--vram", "64MiB", "--", *command], env=env, capture_output=True,
                              text=True, timeout=60)
        assert done.returncode == 0 and "the lease does not follow it" in done.stderr, done.stderr
        assert done.stderr.index(verb) < done.stderr.index("\nstarted")


def test_a_lease_that_holds_nothing_beside_new_unleased_memory_is_a_warning(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    run(daemon, "job", "sleep", "600")
    wait_until(lambda: ticks_since_start(lease_of(daemon, "job")["owner"]["pid"]) > 0, "another one starts later")
    other = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600")

    def warned():
        return next((each for each in daemon.get("/v1/status")["warnings"] if each["code"] == "work-elsewhere"), None)

    warning = wait_until(warned, "a warning")
    assert f"process {other.pid} (simgpu-load)" in warning["text"]
    assert f"sublet attach {lease_of(daemon, 'job')['id']} --pid {other.pid}" in warning["hint"]
    daemon.cli("attach", "job", "--pid", other.pid, check=0)
    wait_until(lambda: not warned(), "no warning any more")


# ------------------------------------------------------------------------------------------------ waiting leases

def test_a_pause_holds_a_waiting_lease_back_until_a_resume(start_daemon):
    daemon = start_daemon("1x4GiB", config=QUICK)
    holder = run(daemon, "holder", "sleep", "600", vram="3GiB")
    first = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "first", "--", "true")
    wait_until(lambda: lease_of(daemon, "first"), "it waits")
    second = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "second", "--", "true")
    wait_until(lambda: lease_of(daemon, "second"), "another one waits")
    assert "keeps its place" in daemon.cli("pause", "first", check=0).stderr
    daemon.restart()
    assert "held back at place 1" in daemon.cli("ps", check=0).stdout
    waiting = daemon.json("queue")["queue"]
    assert [(lease["tag"], lease["queue"]["place"], lease["queue"]["held_back"]) for lease in waiting] == [
        ("second", 1, False), ("first", 1, True)]
    assert "held back" in daemon.cli("queue", check=0).stdout
    holder.terminate()
    assert second.wait(60) == 0
    assert lease_of(daemon, "first")["state"] == "queued" and first.poll() is None
    daemon.cli("resume", "first", check=0)
    assert first.wait(60) == 0


# ------------------------------------------------------------------------------------------------ names of devices

def test_the_program_sees_its_devices_in_the_order_and_by_the_names_that_were_asked_for(start_daemon):
    daemon = start_daemon("2x4GiB", config=QUICK)
    uuids = [device["uuid"] for device in daemon.json("gpus")["devices"]]
    show = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]

    def seen(*flags, visible=None):
        extra = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        return daemon.cli("run", "-q", "--vram", "64MiB", *flags, *show, check=0, **extra).stdout.strip()

    assert seen("--gpus", "2") == ",".join(uuids)
    assert seen("--gpus", "2", visible="1,0") == f"{uuids[1]},{uuids[0]}"
    assert seen("--gpus", "2", "--indices", visible="1,0") == "1,0"
    assert seen("--indices", "--gpu", "gpu1") == "1"
    daemon.cli("run", "--detach", "--tag", "far", "--vram", "64MiB", "--indices", "--gpu", "gpu1", *show, check=0)
    wait_until(lambda: daemon.cli("logs", "--no-marks", "far").stdout.strip() == "1",
               "a supervised program sees the same")
    for name, hint in (("cuda:1", "--gpu gpu1"), ("gpu1,cuda:0", "--gpu gpu0"), ("gpu1,", "gpu1,gpu3")):
        for size in (["--vram", "64MiB"], []):
            refused = daemon.cli("run", *size, "--gpu", name, "--", "true")
            assert refused.returncode != 0 and hint in refused.stderr, refused.stderr


def test_the_configuration_names_devices_by_index(start_daemon):
    daemon = start_daemon("2x4GiB", config='[gpu]\nnames = "index"\n')
    done = daemon.cli("run", "-q", "--vram", "64MiB", "--gpu", "gpu1", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert done.stdout == "1\n"


# ------------------------------------------------------------------------------------------------ logs

def test_logs_say_why_there_are_none(start_daemon, tmp_path):
    daemon = start_daemon("1x4GiB", config=QUICK)
    script = tmp_path / "quiet.py"
    script.write_text("import sys, time\nprint('unbuffered')\ntime.sleep(600)\n")
    for tag, env in (("talks", []), ("quiet", ["--env", "PYTHONUNBUFFERED="])):
        daemon.cli("run", "--detach", "--tag", tag, "--vram", "64MiB", *env, "--", "python3", script, check=0)
        wait_until(lambda tag=tag: (lease := lease_of(daemon, tag)) and lease["owner"]["pid"], f"{tag} runs")
    wait_until(lambda: "unbuffered" in daemon.cli("logs", "talks").stdout, "Python does not buffer")
    quiet = daemon.cli("logs", "--no-marks", "quiet", check=0)
    assert quiet.stdout == "" and "stdbuf" in quiet.stderr, quiet.stderr
    run(daemon, "front", "sleep", "600")
    refused = daemon.cli("logs", "front")
    assert refused.returncode == 4 and "--detach" in refused.stderr and "has no log" in refused.stderr, refused.stderr
