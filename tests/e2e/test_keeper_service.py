# SPDX-License-Identifier: Apache-2.0
"""Supervised programs of the packaged service: a service of its own starts the keepers, outside of the confinement of
the actor.
"""
import os
import pathlib
import signal
import stat
import subprocess

import pytest

from tests.support.sublet import MIB, living, wait_until
from tests.support.system import CAROL, DAVE, GROUP, LOGS, System

LOAD = ("simgpu-load", "--alloc", "512MiB", "--seconds", "600", "--verify")


@pytest.fixture
def system():
    made = System()
    yield made
    made.close()


def detach(system, *command, uid=DAVE, tag="serve", more=("--restart", "on-failure"), check=0):
    words = ("--env", f"SIMGPU_DIR={system.home}/gpu/simgpu", "--env", f"LD_LIBRARY_PATH={system.home}/lib/simgpu")
    return system.cli(uid, "run", "--detach", "--tag", tag, "--memory", "1GiB", *more, *words, "--", *command,
                      check=check)


def program(system, tag="serve", user="dave"):
    return next(row for row in system.get("/v1/programs")["programs"]
                if (row["tag"], row["user"]) == (tag, user))


def reaches(system, *states, **which):
    return wait_until(lambda: (now := program(system, **which))["state"] in states and now, f"it is {states}")


def main_process(system):
    return wait_until(lambda: next((row["pid"] for row in system.get("/v1/processes")["processes"]
                                    if row["lease"] and row["used_bytes"] > 400 * MIB), None), "it has its memory")


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, value in (line.split(":", 1) for line in lines)}


def test_a_program_has_the_rights_of_its_user_and_no_confinement(system):
    system.start_keeper_service().start()
    detach(system, *LOAD)
    pid = main_process(system)
    said = status_of(pid)
    assert said["Uid"] == [str(DAVE)] * 4 and said["Gid"] == [str(DAVE)] * 4
    assert said["CapEff"] == ["0" * 16] and said["NoNewPrivs"] == ["0"]
    assert said["CapBnd"] == status_of("self")["CapBnd"], "sudo works in it, as in a terminal"
    keeper = int(said["PPid"][0])
    assert keeper in [service.pid for service in system.keepers], "the main process of its unit"
    assert status_of(keeper)["Uid"] == [str(DAVE)] * 4
    assert system.cli(DAVE, "stop", "serve").returncode == 0
    reaches(system, "stopped")
    wait_until(lambda: not living(pid), "it is ended")


def test_only_the_daemon_and_its_user_read_a_log(system):
    system.start_keeper_service().start()
    detach(system, "sh", "-c", "echo secret words", more=())
    reaches(system, "exited")
    assert "secret words" in system.cli(DAVE, "logs", "serve", check=0).stdout
    folder = system.home / f"var/sublet/logs/{DAVE}"
    info = folder.stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (DAVE, LOGS, 0o2770)
    [log] = folder.glob("program-*.log")
    assert (log.stat().st_uid, log.stat().st_gid, stat.S_IMODE(log.stat().st_mode)) == (DAVE, LOGS, 0o640)
    for path, tool in ((log, "cat"), (folder, "ls")):
        inside = f"/var/lib/sublet/logs/{path.relative_to(system.home / 'var/sublet/logs')}"
        done = subprocess.run(system.inside(CAROL, tool, inside, groups=(GROUP,)), capture_output=True, text=True)
        assert done.returncode != 0 and "Permission denied" in done.stderr, "another member of the group sublet"
    assert system.cli(54333, "logs", "dave/serve").returncode != 0


def test_a_program_outlives_daemon_and_actor_and_runs_once(system):
    system.start_keeper_service().start()
    detach(system, *LOAD)
    pid = main_process(system)
    for service in (system.process, system.actor):
        service.kill()
        service.wait()
    system.start()
    now = reaches(system, "running")
    assert (now["starts"], main_process(system)) == (1, pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: program(system)["starts"] == 2, "it starts again")
    assert main_process(system) != pid


def test_a_shutdown_is_no_exit(system):
    """The service manager ends the daemon, then the keepers. The programs are started at the next boot."""
    system.start_keeper_service().start()
    detach(system, "sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.1; done")
    wait_until(lambda: "up" in system.cli(DAVE, "logs", "serve").stdout, "it runs")
    system.process.terminate()
    system.process.wait(60)
    [keeper] = system.keepers
    keeper.terminate()
    assert keeper.wait(60) == 0
    system.start_daemon()
    now = wait_until(lambda: (now := program(system))["starts"] == 2 and now["state"] == "running" and now,
                     "it starts again")
    assert now["restarts"] == 1


def test_an_absent_service_is_named(system):
    system.start()
    done = detach(system, *LOAD, more=(), check=125)
    assert "systemctl start sublet-keeper.socket" in done.stderr and program(system)["state"] == "failed"


def test_no_program_of_root_is_started(system):
    system.start_keeper_service().start()
    done = detach(system, *LOAD, uid=0, more=(), check=125)
    assert "only a daemon of root starts programs of root" in done.stderr
