# SPDX-License-Identifier: Apache-2.0
"""The actor from outside: programs that are ended although nobody of theirs is left to ask, and an actor that is not
there."""
import os
import pathlib
import signal

import pytest

from tests.support.sublet import living, name_of, pidfds_have_inodes, unified_mounts, wait_until

QUICK = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
         '[lease]\nlinger = "500ms"\nreconnect = "1s"\ngrace = "1s"\n')
# Ends only by SIGKILL, and has a child.
DEAF = "trap '' TERM; sleep 600 & while :; do sleep 0.2; done"
# A grandchild in a session of its own, whose parents are gone: nothing leads from it back to the program.
LEAVES_AN_ORPHAN = "NOTE=$0 setsid sh -c 'sh -c \"echo \\$\\$ >$NOTE; exec sleep 600\" &' & wait; exec sleep 600"


@pytest.fixture
def groups():
    """Skips where no control group can be made."""
    mounts = unified_mounts()
    if os.geteuid() != 0 or not mounts:
        pytest.skip("needs root and a unified control group hierarchy")
    probe = mounts[0] / f"sublet-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as failure:
        pytest.skip(f"no control group can be made in {mounts[0]}: {failure}")


def run_and_wait(daemon, *command):
    keeper = daemon.spawn("sublet", "run", "--vram", "1GiB", "--", *command)
    return keeper, wait_until(lambda: next((now for now in daemon.leases() if now["owner"]["pid"] and
                                             name_of(now["owner"]["pid"]) != "sublet"), None), "it runs")


def ended(daemon, lease):
    return daemon.api().get(f"/v1/leases/{lease['id']}?wait=60s&since=active")


def actor_of(daemon):
    return wait_until(lambda: daemon.child_pid("sublet-actor"), "there is an actor")


def test_a_program_without_a_keeper_is_ended_to_its_last_process(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sh", "-c", DEAF)
    keeper.kill()
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert ended(daemon, lease)["end_reason"] == "released"
    assert not living(lease["owner"]["pid"])


def test_an_actor_that_is_killed_is_replaced_and_knows_the_programs_again(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sh", "-c", DEAF)
    first = actor_of(daemon)
    os.kill(first, signal.SIGKILL)
    keeper.kill()
    wait_until(lambda: daemon.child_pid("sublet-actor") not in (None, first), "another actor")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert ended(daemon, lease)["end_reason"] == "released"
    assert not living(lease["owner"]["pid"])
    assert not daemon.get("/v1/status")["warnings"]


def test_an_order_is_not_lost_with_the_actor_that_got_it(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sh", "-c", DEAF)
    keeper.kill()
    os.kill(actor_of(daemon), signal.SIGSTOP)
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    wait_until(lambda: any(reason["code"] == "killing" for reason in
                           daemon.get(f"/v1/leases/{lease['id']}/why")["reasons"]), "the grace is over")
    assert living(lease["owner"]["pid"])
    assert daemon.get("/healthz").status == 200, "nobody waits for the actor"
    os.kill(actor_of(daemon), signal.SIGKILL)
    assert ended(daemon, lease)["end_reason"] == "released"
    assert not living(lease["owner"]["pid"])


def test_an_actor_that_cannot_be_reached_is_said_and_tried_again(start_daemon, tmp_path):
    daemon = start_daemon(config=QUICK + f'[actor]\nsocket = "{tmp_path}/nobody"\n')
    said = wait_until(lambda: next((warning for warning in daemon.get("/v1/status")["warnings"]
                                    if warning["code"] == "actor"), None), "a warning")
    assert f"{tmp_path}/nobody" in said["text"] and "sublet-actor" in said["hint"]
    doctor = daemon.cli("doctor")
    assert f"{tmp_path}/nobody" in doctor.stdout and "systemctl status" in doctor.stdout
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert keeper.wait(60) == 128 + signal.SIGTERM, "a keeper that lives needs no actor"


def test_doctor_says_what_the_actor_can_do(start_daemon):
    daemon = start_daemon(config=QUICK)
    wait_until(lambda: daemon.get("/v1/status")["daemon"]["actor"]["ready"], "the actor is there")
    said = daemon.cli("doctor").stdout
    assert ("every user's programs" if os.geteuid() == 0 else "of its own user") in said


def test_what_a_program_forked_is_found_by_its_group_alone(start_daemon, groups, tmp_path):
    daemon = start_daemon(config=QUICK)
    note = tmp_path / "pid"
    keeper, lease = run_and_wait(daemon, "sh", "-c", LEAVES_AN_ORPHAN, note)
    orphan = int(wait_until(lambda: note.exists() and note.read_text().strip(), "the orphan runs"))
    group = wait_until(lambda: daemon.groups(lease["id"]), "the program has a group")[0]
    wait_until(lambda: str(orphan) in (group / "cgroup.procs").read_text().split(), "the orphan is in it")
    keeper.kill()
    keeper.wait()
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    # A new daemon and a new actor have never seen the program's main process.
    daemon.restart()
    assert daemon.api().lease(lease["id"])["state"] == "active", "a program lives while anything of it does"
    wait_until(lambda: daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True}).status == 200,
               "the actor has proven what is left")
    assert ended(daemon, lease)["end_reason"] == "released"
    assert not living(orphan)
    wait_until(lambda: not group.exists(), "the group is taken away")


def test_the_group_stands_where_the_program_was(start_daemon, groups):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    group = wait_until(lambda: daemon.groups(lease["id"]), "the program has a group")[0]
    mine = [line.split(":", 2)[2] for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines()
            if line.startswith("0::")][0]
    inside = "/" + str(group.relative_to(unified_mounts()[0]))
    assert inside.startswith(mine.rstrip("/") + "/sublet-") and inside.endswith(f"/{lease['id']}")
    assert pathlib.Path(f"/proc/{lease['owner']['pid']}/cgroup").read_text().splitlines()[-1] == f"0::{inside}"
    assert not (group / "cgroup.procs").stat().st_mode & 0o022
    keeper.terminate()
    assert keeper.wait(60) == 128 + signal.SIGTERM
    wait_until(lambda: not group.exists() and not group.parent.exists(), "nothing of it is left")


def test_without_inodes_nothing_adopted_is_signalled(start_daemon):
    if pidfds_have_inodes():
        pytest.skip("this kernel proves what was adopted")
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    keeper.kill()
    daemon.restart()
    assert daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True}).status == 409
