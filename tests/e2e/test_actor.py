# SPDX-License-Identifier: Apache-2.0
"""The actor from outside: programs that are ended although none of their clients is left, and an actor that is away."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

from tests.support.sublet import BIN, Daemon, living, name_of, pidfds_have_inodes, unified_mounts, wait_until

QUICK = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
         '[lease]\nlinger = "500ms"\nreconnect = "1s"\ngrace = "1s"\n')
# Ends only by SIGKILL, and has a child.
DEAF = "trap '' TERM; sleep 600 & while :; do sleep 0.2; done"
# A grandchild in a session of its own, whose parents are gone: no parent link leads from it to the program.
LEAVES_AN_ORPHAN = "NOTE=$0 setsid sh -c 'sh -c \"echo \\$\\$ >$NOTE; exec $LOAD\" &' & wait; exec sleep 600"


@pytest.fixture
def groups():
    """Skips the test if no control group can be made."""
    mounts = unified_mounts()
    if os.geteuid() != 0 or not mounts:
        pytest.skip("needs root and a unified control group hierarchy")
    probe = mounts[0] / f"sublet-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as failure:
        pytest.skip(f"no control group can be made in {mounts[0]}: {failure}")


USER = 1  # "daemon", an account of every Debian


def run_and_wait(daemon, *command, **options):
    keeper = daemon.spawn("sublet", "run", "--vram", "1GiB", "--keep-running", "--", *command, **options)
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


def test_an_unreachable_actor_is_reported_and_tried_again(start_daemon, tmp_path):
    daemon = start_daemon(config=QUICK + f'[actor]\nsocket = "{tmp_path}/nobody"\n')
    said = wait_until(lambda: next((warning for warning in daemon.get("/v1/status")["warnings"]
                                    if warning["code"] == "actor"), None), "a warning")
    assert f"{tmp_path}/nobody" in said["text"] and "sublet-actor" in said["hint"]
    doctor = daemon.cli("doctor")
    assert f"{tmp_path}/nobody" in doctor.stdout and "systemctl status" in doctor.stdout
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert keeper.wait(60) == 128 + signal.SIGTERM, "a keeper that lives needs no actor"


def test_an_actor_inherits_nothing_of_the_daemon(start_daemon):
    actor = actor_of(start_daemon(config=QUICK))
    wait_until(lambda: name_of(actor) == "sublet-actor", "it runs")

    def is_bare():
        try:
            held = {os.readlink(entry) for entry in pathlib.Path(f"/proc/{actor}/fd").iterdir() if int(entry.name) > 2}
        except FileNotFoundError:  # it closed a file meanwhile
            return False
        return len(held) == 2 and all(name.startswith(("socket:", "/proc")) for name in held)
    wait_until(is_bare, "a socket and /proc are all it has")
    assert pathlib.Path(f"/proc/{actor}/environ").read_bytes() == b""


def test_doctor_says_what_the_actor_can_do(start_daemon):
    daemon = start_daemon(config=QUICK)
    wait_until(lambda: daemon.get("/v1/status")["daemon"]["actor"]["ready"], "the actor is there")
    said = daemon.cli("doctor").stdout
    assert ("every user's programs" if os.geteuid() == 0 else "of its own user") in said


def test_forked_processes_are_found_by_their_group_alone(start_daemon, groups, tmp_path):
    # The lease outlives the restart until its program is found, or this time is over.
    daemon = start_daemon(config=QUICK.replace('reconnect = "1s"', 'reconnect = "60s"'))
    note = tmp_path / "pid"
    load = "simgpu-load --alloc 256MiB --seconds 600"
    keeper, lease = run_and_wait(daemon, "sh", "-c", LEAVES_AN_ORPHAN, note, env=daemon.env(LOAD=load))
    orphan = int(wait_until(lambda: note.exists() and note.read_text().strip(), "the orphan runs"))
    group = wait_until(lambda: daemon.groups(lease["id"]), "the program has a group")[0]
    wait_until(lambda: str(orphan) in (group / "cgroup.procs").read_text().split(), "the orphan is in it")
    keeper.kill()
    keeper.wait()
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    # A new daemon and a new actor have never seen the program's main process.
    daemon.restart()
    assert daemon.api().lease(lease["id"])["state"] == "active", "a program lives while anything of it does"
    row = wait_until(lambda: next((row for row in daemon.get("/v1/processes")["processes"] if row["pid"] == orphan and
                                   row["lease"]), None), "its bytes are booked")
    assert (row["lease"], row["link"]) == (lease["id"], "descendant")
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
    path = pathlib.Path(f"/proc/{lease['owner']['pid']}/cgroup")
    wait_until(lambda: path.read_text().splitlines()[-1] == f"0::{inside}", "the program is put into it")
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


@pytest.fixture
def without_rights(tmp_path_factory):
    """A daemon of a plain user, and an actor of root with a listening socket, as the units run them."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    home = pathlib.Path(tempfile.mkdtemp(prefix="sublet-", dir=os.environ.get("SUBLET_TEST_TMP")))
    (home / "bin").mkdir()
    for program in ("subletd", "sublet-gpu", "sublet-actor", "simgpu-ctl"):
        shutil.copy(BIN / program, home / "bin" / program)
    shutil.copytree(BIN.parent / "lib/simgpu", home / "lib/simgpu")
    home.chmod(0o755)
    daemon = Daemon(config=QUICK + f'[actor]\nsocket = "{home}/actor.sock"\n')
    (daemon.dir / "state").mkdir()
    for path in (daemon.dir, daemon.dir / "state", daemon.dir / "sublet.toml"):
        os.chown(path, USER, USER)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(home / "actor.sock"))
        os.chown(home / "actor.sock", USER, USER)
        listener.listen(8)
        number = listener.fileno()
        # With the one capability of its unit that signals need.
        command = (f"exec 3<&{number}; LISTEN_FDS=1 LISTEN_PID=$$ exec setpriv --bounding-set=-all,+kill "
                   f"{BIN}/sublet-actor listen --user daemon --name {daemon.group_name()}")
        actor = subprocess.Popen(["bash", "-c", command], pass_fds=[number], stdin=subprocess.DEVNULL)
    daemon.children.append(actor)
    ready, theirs = os.pipe()
    with open(daemon.dir / "log", "ab") as log:
        command = [home / "bin/subletd", "--dir", daemon.dir, "--ready-fd", str(theirs), "--sim", "1x4GiB"]
        daemon.process = subprocess.Popen(command, pass_fds=[theirs], stdin=subprocess.DEVNULL, stderr=log, user=USER,
                                          group=USER, extra_groups=[])
    os.close(theirs)
    said = os.read(ready, 16)
    os.close(ready)
    yield daemon
    print(daemon.log())
    daemon.close()
    shutil.rmtree(home)
    assert said == b"ready\n"


def removed(group):
    """Removes a control group. The last process may be gone from its list a moment before the group is free."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


@pytest.fixture
def session():
    """Makes a control group as a login session has it (even root may not write the root group); None if that is not
    possible.
    """
    try:
        made = unified_mounts()[0] / f"sublet-session-{os.getpid()}"
        made.mkdir()
    except (IndexError, OSError):
        yield None
        return
    yield made
    wait_until(lambda: removed(made), "everybody has left")


def test_a_daemon_without_rights_has_another_user_s_program_ended(session, without_rights):
    daemon = without_rights

    def enter_session():
        if session:
            (session / "cgroup.procs").write_text("0")

    api = daemon.api()
    said = wait_until(lambda: (now := api.get("/v1/status")["daemon"]["actor"])["ready"] and now, "the actor is there")
    assert (said["uid"], said["signals_others"], said["problem"]) == (0, True, "")
    assert daemon.child_pid("sublet-actor") is None, "it has none of its own"
    keeper, lease = run_and_wait(daemon, "sh", "-c", DEAF, preexec_fn=enter_session)
    assert pathlib.Path(f"/proc/{lease['owner']['pid']}").stat().st_uid == 0
    if session:
        group = wait_until(lambda: daemon.groups(lease["id"]), "the program has a group")[0]
        assert group.parent.parent == session, "below the one that it was in"
    keeper.kill()
    api.post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert ended(daemon, lease)["end_reason"] == "released"
    assert not living(lease["owner"]["pid"])
