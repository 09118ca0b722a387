# SPDX-License-Identifier: Apache-2.0
"""A daemon without rights has other users' programs parked. The actor starts the helpers, each with the rights of the
process that it parks and no others.
"""
import json
import os
import pathlib
import shutil
import signal

import pytest

from tests.support.sublet import MIB, living, wait_until
from tests.support.system import GROUP, System, helpers_of

ANA, BEN = 54331, 54332  # an id without an account


@pytest.fixture
def make_system():
    made = []

    def make(**options):
        made.append(System(**options))
        return made[-1]

    yield make
    for system in made:
        system.close()


@pytest.fixture
def system(make_system):
    return make_system().start()


def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, value in (line.split(":", 1) for line in lines)}


def used(system):
    return system.get("/v1/devices")["devices"][0]["used_bytes"]


def process_of(system, tag):
    lease = system.lease(tag)["id"]
    return next(row["pid"] for row in system.get("/v1/processes")["processes"] if row["lease"] == lease)


def owner_of(system, tag):
    return system.lease(tag)["owner"]["pid"]


def end(program, status=128 + signal.SIGTERM):
    """Ends the program by SIGTERM. It checks its bytes a last time and reports that all are right."""
    program.send_signal(signal.SIGTERM)
    assert program.wait(60) == status, program.communicate()[1]


def at_work(system, uid, tag, verb="pause", step="checkpoint"):
    """Returns a helper in the middle of a step that lasts until the faults are cleared, and the command that caused it.
    """
    system.ctl("fault", f"{step}-hang")
    asking = system.begin(uid, verb, tag)
    wait_until(lambda: any(fault["name"] == f"{step}-hang" and fault["hits"] for fault in system.cards()["faults"]),
               f"the driver is in its {step}")
    [helper] = helpers_of(process_of(system, tag))
    return helper, asking


def test_a_program_is_parked_with_its_users_rights(system):
    program = system.load(ANA, "hers")
    pid = process_of(system, "hers")
    assert status_of(pid)["Uid"] == [str(ANA)] * 4
    helper, pausing = at_work(system, ANA, "hers")
    said = status_of(helper)
    assert said["Uid"] == [str(ANA)] * 4 and said["Gid"] == [str(ANA)] * 4 and said["Groups"] == [str(GROUP)]
    assert [said[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")] == [["0" * 16]] * 4
    assert said["NoNewPrivs"] == ["1"] and said["SigBlk"] == ["0" * 16]
    assert int(said["SigIgn"][0], 16) & 1 << signal.SIGCHLD - 1 == 0
    stat = pathlib.Path(f"/proc/{helper}/stat").read_text().rsplit(")", 1)[1].split()
    assert int(stat[1]) == system.actor.pid and stat[2] == stat[3] == str(helper), "a session of its own"
    environment = pathlib.Path(f"/proc/{helper}/environ").read_bytes()
    assert environment == f"SIMGPU_DIR={system.home}/gpu/simgpu\0".encode()
    links = {int(entry.name): os.readlink(entry) for entry in pathlib.Path(f"/proc/{helper}/fd").iterdir()}
    assert [links[fd] for fd in (0, 1, 2)] == ["/dev/null"] * 3 and links[3].startswith("socket:")
    its_own = (f"{system.home}/gpu", "anon_inode")
    strange = [link for fd, link in links.items() if fd > 3 and not link.startswith(its_own)]
    assert not strange, "nothing of the actor's or the daemon's"
    assert os.readlink(f"/proc/{helper}/cwd") == "/"
    system.ctl("clear")
    err = pausing.communicate(timeout=60)[1]
    assert pausing.returncode == 0 and "is paused" in err, err
    assert used(system) < 64 * MIB
    wait_until(lambda: not helpers_of(pid), "who is parked needs none")
    assert system.cli(ANA, "resume", "hers").returncode == 0
    system.until("hers", "active")
    wait_until(lambda: not helpers_of(pid), "nor does who runs")
    end(program)


def test_two_users_share_a_card_by_tier(system):
    hers = system.load(ANA, "hers", vram="3GiB", alloc="2GiB")
    pid = process_of(system, "hers")
    his = system.run(BEN, "his", "simgpu-load", "--alloc", "2GiB", "--seconds", "600", "--verify", vram="3GiB",
                     more=("--tier", "interactive"))
    system.until("hers", "paused")
    system.until("his", "active")
    end(his)
    system.until("hers", "active")
    wait_until(lambda: not helpers_of(pid), "who runs needs no helper")
    end(hers)


def test_a_paused_program_survives_daemon_and_actor(system):
    program = system.load(ANA, "hers")
    system.cli(ANA, "pause", "hers", check=0)
    system.actor.kill()
    system.actor.wait()
    system.start_actor()
    wait_until(lambda: system.get("/v1/status")["daemon"]["actor"]["ready"], "another actor")
    system.process.kill()
    system.process.wait()
    system.start_daemon()
    assert system.lease("hers")["state"] == "paused"
    system.cli(ANA, "resume", "hers", check=0)
    system.until("hers", "active")
    end(program)


def test_the_next_actor_knows_a_working_helper(system):
    program = system.load(ANA, "hers")
    pid = process_of(system, "hers")
    helper, _ = at_work(system, ANA, "hers")
    system.process.kill()
    system.actor.kill()
    system.process.wait(), system.actor.wait()
    assert living(helper), "their death takes nobody along: the driver's call goes on"
    system.start()

    def busy():
        assert helpers_of(pid) == [helper]
        return "is still at work" in json.dumps(system.get("/v1/leases/hers/why").body) + system.log()
    wait_until(busy, "another one was asked for, and refused")
    system.ctl("clear")
    wait_until(lambda: not living(helper), "it ends when its call has returned")
    system.until("hers", "active")
    end(program)


def test_a_tree_of_many_processes_is_parked_and_restored(system):
    """More processes than helpers are allowed for one user at a time; two of them use the card."""
    many = 'for n in $(seq 150); do sleep 600 & done; simgpu-load "$@" & exec simgpu-load "$@"'
    program = system.load(ANA, "many", program=["sh", "-c", many, "sh"])
    wait_until(lambda: len([row for row in system.get("/v1/processes")["processes"] if row["lease"] and
                            row["used_bytes"] >= 1 << 30]) == 2, "both have filled their memory")
    system.cli(ANA, "pause", "many", check=0)
    assert used(system) < 128 * MIB
    system.cli(ANA, "resume", "many", check=0)
    system.until("many", "active")
    system.cli(ANA, "stop", "many", check=0)
    assert program.wait(60) == 128 + signal.SIGTERM, program.communicate()[1]


def refused(system, tag, reason):
    done = system.cli(0, "pause", tag)
    assert done.returncode == 1 and "is active" in done.stderr, done.stdout + done.stderr
    texts = [entry["text"] for entry in system.get(f"/v1/leases/{tag}/why")["reasons"]]
    assert any(reason in text for text in texts), texts
    assert system.lease(tag)["state"] == "active"


def test_an_untraceable_program_is_refused_and_runs_on(system):
    hidden = system.home / "bin/hidden-load"
    shutil.copy(system.home / "bin/simgpu-load", hidden)
    hidden.chmod(0o711)  # the tree of a program that may not be read cannot be inspected
    program = system.load(ANA, "hidden", program=["hidden-load"])
    refused(system, "hidden", "forbids tracing")
    assert not helpers_of(process_of(system, "hidden")), "none was started for it"
    end(program)


CLOSES = """
import ctypes, sys
cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(640 << 20)) == 0
while True:
    with open(sys.argv[1]) as words:
        assert libc.prctl(4, int(words.read())) == 0  # PR_SET_DUMPABLE
"""


def test_a_parked_program_that_becomes_untraceable_is_tried_again(system):
    (system.home / "closes.py").write_text(CLOSES)
    word = system.home / "word"
    os.mkfifo(word)
    word.chmod(0o666)
    program = system.run(ANA, "closes", "python3", system.home / "closes.py", word)
    wait_until(lambda: system.lease("closes").get("used_bytes", 0) >= 640 * MIB, "it has filled its memory")
    system.cli(ANA, "pause", "closes", check=0)
    pid = owner_of(system, "closes")
    word.write_text("0")
    wait_until(lambda: os.stat(f"/proc/{pid}/environ").st_uid == 0, "it has closed itself")
    system.cli(ANA, "resume", "closes", "--no-wait", check=0)

    def said():
        why = system.get("/v1/leases/closes/why")
        return str(why["reasons"]), str(why["helps"])

    wait_until(lambda: "forbids tracing" in said()[0], "it is told what is in the way")
    assert system.lease("closes")["state"] == "resuming"
    reasons, helps = said()
    assert "tries again" in reasons and f"kill -KILL {pid}" in helps, (reasons, helps)
    codes = [warning["code"] for warning in system.get("/v1/status")["warnings"]]
    assert "not-back" in codes, codes
    word.write_text("1")
    system.until("closes", "active")
    assert "not-back" not in str(system.get("/v1/status")["warnings"])
    assert program.poll() is None


def test_a_lease_gives_no_rights_of_another_user(system):
    # Like sudo: a program of ana starts a program of ben.
    shutil.copy(shutil.which("setpriv"), system.home / "bin/as-another")
    (system.home / "bin/as-another").chmod(0o4755)
    program = system.load(ANA, "mixed", program=["as-another", "--reuid", BEN, "--regid", BEN, "--clear-groups", "env",
                                                 f"LD_LIBRARY_PATH={system.home}/lib/simgpu", "simgpu-load"])
    pid = process_of(system, "mixed")
    assert status_of(pid)["Uid"] == [str(BEN)] * 4
    refused(system, "mixed", "does not belong to the lease's user")
    assert not helpers_of(pid) and living(pid)
    os.kill(pid, signal.SIGKILL)
    assert program.wait(60) == 128 + signal.SIGKILL


def test_roots_program_needs_an_actor_that_may_trace(make_system):
    system = make_system().start()
    program = system.load(0, "roots")
    helper, pausing = at_work(system, 0, "roots")
    said = status_of(helper)
    assert said["Uid"] == ["0"] * 4 and int(said["CapEff"][0], 16) == 1 << 19, "nothing but CAP_SYS_PTRACE"
    system.ctl("clear")
    assert pausing.wait(60) == 0, pausing.communicate()[1]
    system.cli(0, "resume", "roots", check=0)
    end(program)


def test_an_actor_without_setuid_reports_it(make_system):
    system = make_system(capabilities="+kill").start()
    actor = system.get("/v1/status")["daemon"]["actor"]
    assert actor["ready"] and not actor["parks_others"] and not actor["parks_roots"]
    program = system.load(ANA, "hers")
    refused(system, "hers", "Operation not permitted")
    end(program)
    said = system.cli(0, "doctor").stdout
    assert "cannot park other users' programs" in said and "CAP_SETUID" in said


def test_doctor_says_whose_programs_can_be_parked_and_by_what(system):
    report = json.loads(system.cli(0, "doctor", "--json").stdout)
    found = {check["name"]: check for check in report["checks"]}
    assert found["parking"]["level"] == "ok" and "every user" in found["parking"]["text"]
    assert found["checkpoint"]["level"] == "ok" and "lib/simgpu/libcuda.so.1" in found["checkpoint"]["text"]
    scope = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    expected = scope.read_text().strip() if scope.exists() else "not restricted"
    assert expected in found["ptrace"]["text"]
    actor = system.get("/v1/status")["daemon"]["actor"]
    assert actor["parks_others"] and actor["parks_roots"]


def test_doctor_says_that_root_s_programs_are_left_out(make_system):
    system = make_system(capabilities="+kill,+setuid,+setgid").start()
    said = system.cli(0, "doctor").stdout
    assert "root's programs cannot" in said and "CAP_SYS_PTRACE" in said
    program = system.load(0, "roots")
    assert system.cli(0, "pause", "roots").returncode == 1
    texts = [entry["text"] for entry in system.get("/v1/leases/roots/why")["reasons"]]
    assert any("tracing" in text for text in texts), texts
    assert system.lease("roots")["state"] == "active"
    end(program)
    hers = system.load(ANA, "hers")
    system.cli(ANA, "pause", "hers", check=0)
    system.cli(ANA, "resume", "hers", check=0)
    end(hers)
