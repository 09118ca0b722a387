# SPDX-License-Identifier: Apache-2.0
"""Drills of the enforcer: bad lists of the driver, leases below offenders, detached processes, used pids, dead parents.

Each daemon ends processes from its start on. Nothing is ended in its first seconds.
"""
import ctypes
import datetime
import json
import os
import signal
import sys
import time

import pytest

from tests.support.sublet import MIB, living, wait_until
from tests.support.system import CAPABILITIES, System

CONFIG = ('[enforcer]\ninterval = "1s"\nstart_grace = "{start_grace}"\ngrace = "{grace}"\npolicy = "enforce"\n'
          '[gpu]\ninterval_idle = "1s"\n[lease]\nlinger = "1s"\n')
LOAD = ("simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--verify")
QUIET = 15  # seconds


@pytest.fixture
def daemon(start_daemon):
    return start_daemon("1x4GiB", config=CONFIG.format(grace="2s", start_grace="3s"))


def verdicts(daemon):
    return daemon.get("/v1/verdicts?all=true")["verdicts"]


def verdict_of(daemon, pid):
    return next((row for row in verdicts(daemon) if row["pid"] == pid), None)


def steps_of(daemon, pid):
    return [step["what"] for row in verdicts(daemon) if row["pid"] == pid
            for step in daemon.get(f"/v1/verdicts/{row['id']}")["steps"]]


def was_ended(daemon, pid):
    return wait_until(lambda: (now := verdict_of(daemon, pid)) and now["outcome"] == "ended", f"{pid} is ended", 120)


def after_the_quiet_time(daemon):
    since = datetime.datetime.fromisoformat(daemon.get("/v1/status")["daemon"]["since"].replace("Z", "+00:00"))
    until = since.timestamp() + QUIET + 2
    wait_until(lambda: time.time() > until, "processes may be ended")


def passes(daemon, number):
    """Waits for so many readings of the card, good or bad. Each is followed by a pass, if it is good."""
    def asked():
        return daemon.cards()["calls"].get("nvmlDeviceGetMemoryInfo_v2", 0)
    before = asked()
    wait_until(lambda: asked() >= before + number, "the card is read", 60)


# Holds memory, and does what the rest of the text says.
HOLD = """
import ctypes, os, signal, subprocess, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
handle, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == cuda.cuCtxCreate_v2(ctypes.byref(handle), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(256 << 20)) == 0
"""


def test_a_wrong_list_of_the_driver_ends_nobody(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG.format(grace="2s", start_grace=f"{QUIET}s"))

    def is_refused(fault):
        reply = daemon.api().post("/v1/leases", {"vram_bytes": 3600 * MIB, "ttl_seconds": 600, "queue": False})
        assert reply.status in (409, 503), f"granted during {fault}: {reply}"

    # A list that is empty past the quiet time begins the sightings anew.
    outsider = daemon.spawn(*LOAD)
    wait_until(lambda: (now := verdict_of(daemon, outsider.pid)) and now["sightings"] >= 3, "it was seen three times")
    daemon.ctl("fault", "nvml-empty", "--duration", f"{QUIET}s")
    passes(daemon, 2)
    is_refused("nvml-empty")
    after_the_quiet_time(daemon)
    assert living(outsider.pid) and "SIGTERM" not in steps_of(daemon, outsider.pid)
    was_ended(daemon, outsider.pid)

    # With these, three are ended: no more of one program are ended within an hour.
    for fault in ("nvml-late", "nvml-wrong-namespace"):
        daemon.ctl("fault", fault)
        outsider = daemon.spawn(*LOAD)
        wait_until(lambda pid=outsider.pid: any(row["pid"] == pid and any(part["bytes"] for part in row["devices"])
                                                for row in daemon.cards()["processes"]), "it holds memory")
        passes(daemon, 5)
        assert living(outsider.pid) and "SIGTERM" not in steps_of(daemon, outsider.pid), fault
        if fault != "nvml-late":  # old figures look like new ones; test_driver_faults.py has the grants on them
            is_refused(fault)
        daemon.ctl("clear")
        was_ended(daemon, outsider.pid)
        assert not living(outsider.pid)


def test_a_lease_spares_children_of_an_offender_and_detached_processes(daemon):
    # The parent starts the leased program, and is ended above it.
    load = " ".join(LOAD)
    parent = daemon.spawn(sys.executable, "-c", HOLD + 'subprocess.Popen(["sublet", "run", "--vram", "768MiB", '
                          '"--tag", "child", "--", "simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--verify"])'
                          "\ntime.sleep(600)")
    detached = daemon.spawn("sublet", "run", "--vram", "1792MiB", "--tag", "detached", "--", "sh", "-c",
                            f"setsid {load} & (setsid sh -c '{load} & exit 0' & exit 0); exit 0")

    def holders():
        rows = daemon.get("/v1/processes")["processes"]
        return [row for row in rows if row["lease"]] if sum(bool(row["lease"]) for row in rows) == 3 else None
    held = wait_until(holders, "three processes of leases hold memory")
    leases = {lease["tag"]: lease["id"] for lease in daemon.leases()}
    assert {row["lease"] for row in held} == set(leases.values())
    was_ended(daemon, parent.pid)
    assert {row["pid"] for row in verdicts(daemon)} == {parent.pid}
    assert all(living(row["pid"]) for row in held)
    states = {lease["tag"]: lease["state"] for lease in daemon.leases()}
    assert states == {"child": "active", "detached": "active"}, "the lease lives while its processes do"
    for row in held:
        os.kill(row["pid"], signal.SIGTERM)
    for tag, status in {"child": 128 + signal.SIGTERM, "detached": 0}.items():
        ended = wait_until(lambda tag=tag: (now := daemon.get(f"/v1/leases/{leases[tag]}"))["state"] == "ended" and now,
                           f"{tag} ends with its processes", 60)
        assert ended["end_reason"] == "released" and ended["exit_status"] == status, ended
    assert detached.wait(60) == 0


def test_a_framed_process_without_memory_lives(daemon, tmp_path):
    # The framed process inherits the device file and the mapping of the offender, and leaves its tree.
    report = tmp_path / "framed"
    offender = daemon.spawn(sys.executable, "-c", HOLD + f"""
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        open({str(report)!r}, "w").write(str(os.getpid()))
        signal.alarm(600)
        signal.pause()
    os._exit(0)
os.wait()
time.sleep(600)
""")
    framed = int(wait_until(lambda: report.exists() and report.read_text(), "it was forked"))
    try:
        files = {os.readlink(f"/proc/{framed}/fd/{name}") for name in os.listdir(f"/proc/{framed}/fd")}
        assert any(path.startswith(str(daemon.dir / "simgpu")) for path in files), files
        was_ended(daemon, offender.pid)
        assert living(framed) and verdict_of(daemon, framed) is None
    finally:
        os.kill(framed, signal.SIGKILL)


class CloneArgs(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls", "set_tid",
        "set_tid_size", "cgroup")]


def bystander_with_pid(pid):
    """Starts a process with this pid that sleeps. None: the pid is taken, or this is not permitted."""
    wanted = ctypes.c_int(pid)
    args = CloneArgs(exit_signal=signal.SIGCHLD, set_tid=ctypes.addressof(wanted), set_tid_size=1)
    libc = ctypes.CDLL(None, use_errno=True)
    # A plain fork in a process without other threads, which then becomes `sleep`.
    got = libc.syscall(435, ctypes.byref(args), ctypes.sizeof(args))
    if got == 0:
        os.execv("/bin/sleep", ["sleep", "600"])
    return got if got > 0 else None


STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLD + "time.sleep(600)"


def test_a_pid_that_is_used_again_while_the_daemon_is_dead(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG.format(grace="5s", start_grace="3s"))
    stubborn = daemon.spawn(sys.executable, "-c", STUBBORN)
    wait_until(lambda: "SIGTERM" in steps_of(daemon, stubborn.pid), "SIGTERM was sent", 90)
    daemon.kill()
    stubborn.kill()
    stubborn.wait()
    if os.geteuid() != 0 or (bystander := bystander_with_pid(stubborn.pid)) is None:
        pytest.skip("no pid can be chosen here")
    try:
        daemon.start()
        was_ended(daemon, stubborn.pid)
        passes(daemon, 3)
        assert living(bystander) and "SIGKILL" not in steps_of(daemon, stubborn.pid)
    finally:
        os.kill(bystander, signal.SIGKILL)
        os.waitpid(bystander, 0)


def test_a_verdict_shows_parents_that_have_ended(start_daemon, tmp_path):
    config = CONFIG.format(grace="2s", start_grace="3s")
    daemon = start_daemon("1x4GiB", config=config.replace('"enforce"', '"observe"'))
    def connector():
        return next(row for row in daemon.get("/v1/enforcer")["sources"] if row["name"] == "connector")
    wait_until(lambda: connector()["text"] != "not asked yet", "the actor has answered")
    if not connector()["works"]:
        pytest.skip(f"no process connector here: {connector()['text']}")
    pids = tmp_path / "pids"
    launcher = daemon.spawn("sh", "-c", f"echo $$ > {pids}; (setsid sh -c 'echo $$ >> {pids}; {' '.join(LOAD)} & "
                            f"echo $! >> {pids}') ; exit 0")
    assert launcher.wait(60) == 0
    outer, inner, outsider = map(int, pids.read_text().split())
    try:
        row = wait_until(lambda: verdict_of(daemon, outsider), "it is found")
        def ancestry():
            found = daemon.get(f"/v1/verdicts/{row['id']}")["ancestry"]
            return found if found and found[0]["ended"] else None
        found = wait_until(ancestry, "its dead parents are known")
        by_pid = {parent["pid"]: parent for parent in found}
        for dead in (inner, outer):
            assert by_pid[dead]["ended"] and by_pid[dead]["source"] == "connector" and by_pid[dead]["ended_at"]
        assert found[0]["pid"] == inner and found[0]["certain"]
        assert not by_pid[os.getpid()]["ended"], "the process that started the launcher lives"
        text = daemon.cli("why", f"pid:{outsider}", check=0).stdout
        assert f"({inner}, ended " in text and "by connector)" in text
        daemon.restart()
        kept = daemon.get(f"/v1/verdicts/{row['id']}")["ancestry"]
        assert [parent["pid"] for parent in kept] == [parent["pid"] for parent in found], "they are stored"
    finally:
        os.kill(outsider, signal.SIGKILL)


def test_a_policy_can_be_replaced_at_the_limit_of_rules(start_daemon):
    daemon = start_daemon("1x4GiB")
    api = daemon.api()
    assert api.post("/v1/policies", {"subject": "user:ana", "policy": "warn"}).status == 201
    for number in range(999):
        assert api.post("/v1/approvals", {"subject": f"unit:a{number}"}).status == 201
    full = api.post("/v1/policies", {"subject": "user:ben", "policy": "warn"})
    assert full.status == 409 and "there are 1000 approvals and policies, which is the limit" in full["detail"]
    replaced = api.post("/v1/policies", {"subject": "user:ana", "policy": "observe"})
    assert replaced.status == 201
    assert [rule["policy"] for rule in daemon.get("/v1/enforcer")["policies"]] == ["observe"]
    api.call("DELETE", f"/v1/policies/{replaced['id']}")
    daemon.restart()
    assert daemon.api().post("/v1/policies", {"subject": "user:ben", "policy": "warn"})["id"] > replaced["id"]


def test_doctor_tells_which_sources_of_links_work(daemon):
    def links():
        checks = json.loads(daemon.cli("doctor", "--json").stdout)["checks"]
        found = [check for check in checks if check["name"] == "links"]
        return found if not any("not asked yet" in check["text"] for check in found) else None
    found = wait_until(links, "the actor has answered")
    texts = "\n".join(check["text"] for check in found)
    assert "keepers, ancestry, sessions and process groups" in texts
    assert "process accounting: not read: enforcer.accounting names no file" in texts
    [connector] = [check for check in found if "process connector" in check["text"]]
    assert connector["level"] == ("ok" if "complete since" in connector["text"] else "note")


@pytest.mark.parametrize("capabilities", [CAPABILITIES, "+kill,+setuid,+setgid,+sys_ptrace"])
def test_the_packaged_actor_reads_fork_records(capabilities):
    system = System(config='[enforcer]\ninterval = "1s"\n', capabilities=capabilities)
    def connector():
        row = next(row for row in system.get("/v1/enforcer")["sources"] if row["name"] == "connector")
        return row if row["text"] != "not asked yet" else None
    try:
        found = wait_until(system.start() and connector, "the actor has answered")
        if not found["works"]:
            assert "CAP_NET_ADMIN" in found["text"]  # Linux 6.6 and later do not need it
            pytest.skip(f"no process connector here: {found['text']}")
        system.process.kill()
        system.process.wait()
        system.start_daemon()
        again = wait_until(connector, "the actor has answered")
        assert again["text"] == found["text"], "its records outlive the daemon"
    finally:
        system.close()
