# SPDX-License-Identifier: Apache-2.0
"""The parts for Slurm that need no Slurm: gres.conf, sizes, the helper of the plugin, and the agent."""
import pathlib
import socket
import subprocess

import pytest

from tests.support.contract import ROOT
from tests.support.groups import Groups
from tests.support.sublet import BIN, GIB, wait_until

CONFIG = '[lease]\nlinger = "1s"\n[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[pause]\ncooldown = "1s"\n'
PROC = pathlib.Path("/proc")
SCONTROL = """#!/bin/sh
echo "$@" >> {log}
[ "$1" = show ] && cat {job}
exit 0
"""


@pytest.fixture(params=["v2", "v1"])
def groups(request):
    made = Groups(request.param)
    yield made
    made.close()


@pytest.fixture
def daemon(start_daemon):
    return start_daemon("1x4GiB", config=CONFIG)


class Task:
    """A process in the group of a job, and the plugin's helper for it."""

    def __init__(self, daemon, groups, job, *flags, shards="4", account="(null)", name="job", controller="", step=0):
        self.group = groups.make(f"slurm/uid_0/job_{job}/step_{step}")
        self.process = daemon.spawn("sleep", "600")
        groups.move(self.process.pid, self.group)
        gres = f"shard:{shards}(IDX:0)" if shards else ""
        scontrol = daemon.dir / f"scontrol-{job}"
        scontrol.write_text(f"#!/bin/sh\n{controller}\n"
                            f"echo JobId={job} 'Account={account}' Nodes=n1 CPU_IDs=0 'GRES={gres}'\n")
        scontrol.chmod(0o755)
        self.socket, theirs = socket.socketpair()
        self.helper = daemon.spawn(BIN / "sublet", "slurm", "lease", "--host", f"unix://{daemon.socket}", "--job", job,
                                   "--uid", "0", "--node", "n1", "--scontrol", scontrol, *flags, stdin=theirs,
                                   stdout=theirs)
        theirs.close()
        lines = [f"pid {self.process.pid}", f"SLURM_JOB_NAME {name}", "go", ""]
        self.socket.sendall("\n".join(lines).encode())
        self.lines = self.socket.makefile()

    def until(self, word):
        """Returns the lines up to the first one that begins with the word."""
        said = []
        for line in filter(str.strip, self.lines):  # empty lines tell only that the helper lives
            said.append(line.rstrip("\n"))
            if line.startswith(word):
                return said
        raise AssertionError(f"the helper ended without '{word}': {said}")

    def close(self):
        self.lines.close()
        self.socket.close()


def shards(daemon, *flags):
    text = daemon.cli("slurm", "gres", "--node", "n1", *flags, check=0).stdout
    return [int(word[6:]) for word in text.split() if word.startswith("Count=")]


def test_gres_declares_the_memory_of_the_cards_by_a_factor(daemon, groups, tmp_path):
    capacity = daemon.get("/v1/devices")["devices"][0]["capacity_bytes"]
    for factor in ("1", "2", "1.5"):
        assert shards(daemon, "--factor", factor) == [int(capacity * float(factor) / GIB)]
    for factor in ("0", "-1", "x", "", "17", "nan"):
        refused = daemon.cli("slurm", "gres", "--factor", factor)
        assert refused.returncode == 2 and "--factor" in refused.stderr, refused
    out = tmp_path / "gres.conf"
    daemon.cli("slurm", "gres", "--factor", "2", "--node", "n1", "--device-file", "/dev/card%d", "--out", out, check=0)
    assert "NodeName=n1 Name=gpu File=/dev/card0\n" in out.read_text()
    task = Task(daemon, groups, 7, "--vram", "3")
    task.until("ok")
    refused = daemon.cli("slurm", "gres", "--factor", "0.5")
    assert refused.returncode == 1 and "3.0 GiB leased to jobs" in refused.stderr, refused
    assert shards(daemon, "--factor", "0.5", "--force") == [int(capacity / 2 / GIB)]
    task.close()


def test_sizes_of_the_plugin(tmp_path):
    source = tmp_path / "sizes.c"
    source.write_text('#include "vram_size.h"\n#include <stdio.h>\nint main(int c, char **v) {\n'
                      'for (int i = 1; i < c; ++i) printf("%ld\\n", sublet_mib_of(v[i]));\nreturn 0; }\n')
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/integrations/slurm", "-o", tmp_path / "sizes",
                    source], check=True)
    cases = {"6": 6144, "6G": 6144, "6GiB": 6144, "1536M": 1536, "1536MiB": 1536, "256M": 256, "255M": 0, "0": 0,
             "": 0, "-6": 0, "6T": 0, "6 G": 0, "x": 0, "6.5": 0, "99999999999": 0, "1048576": 1 << 30, "1048577": 0}
    done = subprocess.run([tmp_path / "sizes", *cases], capture_output=True, text=True, check=True)
    assert dict(zip(cases, map(int, done.stdout.split()))) == cases


def test_a_task_gets_its_lease_and_its_environment(daemon, groups):
    task = Task(daemon, groups, 7, "--vram", "1536MiB", "--tier", "batch", "--pausable", "no", account="vision",
                name="train it")
    said = task.until("ok")
    lease, = daemon.leases()
    assert f"env SUBLET_LEASE={lease['id']}" in said, said
    assert any(line.startswith("env CUDA_VISIBLE_DEVICES=GPU-") for line in said), said
    assert [lease[name] for name in ("vram_bytes", "tier", "pausable", "consumer", "tenant", "tag")] == [
        3 * GIB // 2, "batch", "no", "trainit", "vision", "slurm-7-n1"], lease
    assert lease["owner"]["cgroup"].endswith("/slurm/uid_0/job_7"), "the group of the whole job"
    task.helper.wait(30)
    groups.remove(task.group.parent)
    wait_until(lambda: not daemon.leases(), "the lease ends with the job")
    task.close()


def test_a_task_waits_with_its_place_and_leaves_the_queue_with_its_end(daemon, groups):
    holder = daemon.api()
    first = holder.post("/v1/leases", {"vram_bytes": 3 * GIB, "owner": {"connection": True}, "pausable": "no"})
    task = Task(daemon, groups, 8, shards="2")
    assert "place 1" in task.until("say")[-1]
    assert daemon.leases()[-1]["vram_bytes"] == 2 * GIB, "the shards are its size"
    gone = Task(daemon, groups, 9, "--vram", "2")
    assert "place 2" in gone.until("say")[-1]
    gone.close()
    gone.helper.wait(30)
    groups.remove(gone.group.parent)
    wait_until(lambda: len(daemon.leases()) == 2, "the third lease ended with its job")
    holder.post(f"/v1/leases/{first['id']}/release", {"force": True})
    task.until("ok")
    task.close()


def test_a_task_without_a_daemon_is_told_so_and_fails_in_time(daemon, groups):
    daemon.kill()
    task = Task(daemon, groups, 7, "--vram", "1", "--timeout", "1s")
    said = task.until("fail")
    assert "does not answer" in said[0] and "up to 1 s" in said[0], said
    task.close()
    patient = Task(daemon, groups, 8, "--vram", "1")
    assert "does not answer" in patient.until("say")[-1]
    daemon.restart()
    patient.until("ok")
    patient.close()


def test_a_controller_that_hangs_costs_no_more_than_the_timeout(daemon, groups):
    task = Task(daemon, groups, 7, "--vram", "1", "--timeout", "1s", controller="exec sleep 600")
    said = task.until("fail")
    assert "did not answer within" in said[0] and "did not answer within" in said[-1], said
    assert task.helper.wait(30) == 1
    assert daemon.leases() == []
    task.close()


def test_a_controller_that_hangs_is_left_with_the_end_of_the_task(daemon, groups):
    asked = daemon.dir / "asked"
    task = Task(daemon, groups, 7, "--vram", "1", "--timeout", "10min",
                controller=f"echo $$ > {asked}.new; mv {asked}.new {asked}; exec sleep 600")
    wait_until(asked.exists, "the controller is asked")
    task.close()
    assert task.helper.wait(60) != 0
    wait_until(lambda: not (PROC / asked.read_text().strip()).exists(), "the question has ended too")
    assert daemon.leases() == []


def test_a_helper_that_waits_tells_that_it_lives(daemon, groups):
    holder = daemon.api()
    holder.post("/v1/leases", {"vram_bytes": 3 * GIB, "owner": {"connection": True}, "pausable": "no"})
    task = Task(daemon, groups, 8, shards="2")
    task.until("say")
    assert any(line == "\n" for line in task.lines), "an empty line"
    task.close()


def test_a_job_keeps_its_tag_while_its_earlier_lease_is_settled(daemon, groups):
    first = Task(daemon, groups, 7, "--vram", "2")
    first.until("ok")
    load = daemon.spawn("sh", "-c", f"echo $$ > {first.group}/cgroup.procs; "
                        "exec simgpu-load --alloc 1GiB --seconds 600")
    lease = daemon.leases()[0]["id"]
    wait_until(lambda: daemon.get(f"/v1/leases/{lease}")["used_bytes"] > GIB, "the job uses its card")
    daemon.cli("release", lease, "--force", check=0)
    second = Task(daemon, groups, 7, "--vram", "2", step=1)
    assert lease in second.until("say")[-1]
    load.kill()
    load.wait()
    second.until("ok")
    assert [now["tag"] for now in daemon.leases()] == ["slurm-7-n1"]
    first.close(), second.close()


def test_the_group_of_a_task_is_found_in_its_own_hierarchy(daemon):
    """Groups of the same name in other hierarchies are not the job's."""
    made = [Groups(kind) for kind in ("v2", "v1", "memory")]
    try:
        for own in made:
            for other in made:
                if other is not own:
                    other.make(f"{made.index(own)}/slurm/uid_0/job_7")
            own.make(str(made.index(own)))
            nested = type("Nested", (), {"make": lambda self, name: own.make(f"{made.index(own)}/{name}"),
                                         "move": own.move})()
            task = Task(daemon, nested, 7, "--vram", "1")
            task.until("ok")
            assert daemon.leases()[-1]["owner"]["cgroup"] == str(task.group.parent)
            task.helper.wait(30)
            own.remove(task.group.parent)
            wait_until(lambda: not daemon.leases(), "the lease ends with its group")
            task.close()
    finally:
        for groups in made:
            groups.close()


def test_what_a_task_cannot_get_is_told(daemon, groups):
    for number, (flags, shards, words) in enumerate((
            (("--vram", "100"), "100", "at most"), (("--vram", "x"), "4", "no size"),
            (("--vram", "2"), "1", "1 shards"), (("--vram", "2"), "", "0 shards"),
            ((), "", "neither --vram nor shards"))):
        task = Task(daemon, groups, 20 + number, *flags, shards=shards)
        assert words in task.until("fail")[-1]
        task.close()
    assert daemon.leases() == []


def test_the_agent_gives_time_back_once_and_tells_why_a_job_stands_still(daemon, groups, tmp_path):
    log, job, scontrol = tmp_path / "log", tmp_path / "job", tmp_path / "scontrol"
    scontrol.write_text(SCONTROL.format(log=log, job=job))
    scontrol.chmod(0o755)
    job.write_text("JobId=7 JobState=RUNNING TimeLimit=00:10:00 Account=vision AdminComment=keep it WorkDir=/\n")
    task = Task(daemon, groups, 7, "--vram", "2", account="vision")
    task.until("ok")
    load = daemon.spawn("sh", "-c", f"echo $$ > {task.group}/cgroup.procs; "
                        "exec simgpu-load --alloc 1GiB --seconds 600")
    lease = daemon.leases()[0]["id"]
    wait_until(lambda: daemon.get(f"/v1/leases/{lease}")["used_bytes"] > GIB, "the job uses its card")

    def agent():
        log.write_text("")
        daemon.cli("slurm", "agent", "--once", "--every", "10s", "--scontrol", scontrol, check=0)
        return [line for line in log.read_text().splitlines() if line.startswith("update")]

    assert agent() == [], "nothing is to tell of a job that runs"
    daemon.cli("pause", lease, check=0)
    wait_until(lambda: daemon.get(f"/v1/leases/{lease}")["state"] == "paused", "the job is paused")
    told, = agent()
    assert "JobId=7 TimeLimit=11 AdminComment=keep it sublet: paused; given back 1 min" in told, told
    job.write_text("JobId=7 JobState=RUNNING TimeLimit=00:11:00 AdminComment=keep it sublet: paused; given back 1 min "
                   "WorkDir=/\n")
    again, = agent()
    assert "TimeLimit" not in again, "another agent has given this minute"
    job.write_text("JobId=7 JobState=RUNNING TimeLimit=UNLIMITED AdminComment= WorkDir=/\n")
    unlimited, = agent()
    assert "TimeLimit" not in unlimited and "sublet: paused; given back 0 min" in unlimited, unlimited
    scontrol.write_text("#!/bin/sh\necho the controller is away >&2\nexit 1\n")
    failed = daemon.cli("slurm", "agent", "--once", "--scontrol", scontrol)
    assert failed.returncode == 1 and "the controller is away" in failed.stderr, failed
    assert load.poll() is None
    task.close()
