# SPDX-License-Identifier: Apache-2.0
"""The agent beside Slurm's controller: minutes that are given back, comments, and tenants."""
import re
import subprocess

import pytest

from tests.support.slurm_jobs import HOLD, load, not_drained, urgent
from tests.support.sublet import BIN, GIB, wait_until

pytestmark = pytest.mark.heavy


def test_a_job_is_paused_for_another_and_its_comment_tells_so(cluster):
    job = cluster.submit(load(5), "--vram=6", "-t", "10", node="n1")
    lease = cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > 5 * GIB, "it fills its memory")
    api = urgent(cluster, 20)
    cluster.until_lease(job, "paused")
    agent = ("sublet", "--host", f"unix://{cluster.dir}/n1.sock", "slurm", "agent", "--once")
    cluster.call(*agent)
    shown = cluster.job(job)
    assert re.search(r"AdminComment=sublet: paused for lease-\d+.*; given back \d+ min", shown["text"]), shown["text"]
    assert shown["TimeLimit"] != "00:10:00", "the minutes of the pause are given back"
    why = cluster.daemons["n1"].cli("why", lease["id"], check=0).stdout
    assert f"It belongs to job {job} (control group" in why, why
    api.post("/v1/leases/urgent/release", {"force": True})
    cluster.until_lease(job, "active")
    cluster.call(*agent)
    assert "sublet: runs;" in cluster.job(job)["text"]


def test_a_paused_job_is_not_ended_at_its_first_limit(cluster):
    job = cluster.submit(load(5, "75"), "--vram=6", "-t", "1", node="n1")
    cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > 5 * GIB, "it fills its memory")
    api = urgent(cluster, 20)
    cluster.until_lease(job, "paused")
    cluster.call("sublet", "--host", f"unix://{cluster.dir}/n1.sock", "slurm", "agent", "--once")
    assert cluster.job(job)["TimeLimit"] == "00:02:00", cluster.job(job)["text"]
    api.post("/v1/leases/urgent/release", {"force": True})
    cluster.until_lease(job, "active")


def test_a_killed_agent_gives_no_minute_twice(cluster):
    job = cluster.submit(load(5), "--vram=6", "-t", "10", node="n1")
    lease = cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > 5 * GIB, "it fills its memory")
    cluster.daemons["n1"].cli("pause", lease["id"], check=0)
    cluster.until_lease(job, "paused")
    command = [BIN / "sublet", "--host", f"unix://{cluster.dir}/n1.sock", "slurm", "agent", "--every", "1s"]

    def given():
        text = cluster.job(job)["text"]
        found = re.search(r"AdminComment=sublet: paused; given back (\d+) min", text)
        limit = re.search(r"TimeLimit=00:(\d+):00", text)
        return (int(found.group(1)), int(limit.group(1)) - 10) if found else None

    for _ in range(3):
        agent = subprocess.Popen(list(map(str, command)), env=cluster.env(), stdout=subprocess.DEVNULL)
        minutes, added = wait_until(given, "the job has its minutes")
        agent.kill()
        agent.wait()
        assert minutes == added >= 1
    cluster.call(*command, "--once")
    assert given()[0] == given()[1] == minutes, "the comment tells each agent what was given"


def test_comment_and_minutes_reach_one_task_of_an_array(cluster):
    array = cluster.submit(load(5), "--vram=6", "-t", "10", "--array=1-2", node="n1")
    tasks = wait_until(lambda: len(found := cluster.call("squeue", "-h", "-r", "-t", "R", "-j", array, "-o",
                                                         "%A").stdout.split()) == 2 and found, "both tasks run")
    for task in tasks:
        cluster.until_lease(task, "active")
    wait_until(lambda: all(cluster.lease_of(task)["used_bytes"] > 5 * GIB for task in tasks), "they fill their memory")
    cluster.daemons["n1"].cli("pause", cluster.lease_of(array)["id"], check=0)  # its number means the whole array too
    cluster.until_lease(array, "paused")
    cluster.call("sublet", "--host", f"unix://{cluster.dir}/n1.sock", "slurm", "agent", "--once")
    lines = cluster.call("scontrol", "show", "job", "-o", array).stdout.splitlines()
    paused = [line for line in lines if "sublet: paused" in line]
    assert len(lines) == 2 and len(paused) == 1 and f"JobId={array} " in paused[0], lines
    assert [line for line in lines if "TimeLimit=00:10:00" in line] == [line for line in lines if line != paused[0]]


def test_the_account_of_a_job_names_its_tenant(cluster):
    cluster.write_plugstack(accounts="lab:vision,prod:ml")
    tenants = {}
    for account in ("lab", "other"):
        job = cluster.submit(HOLD, "--vram=2", f"--account={account}", node="n1")
        tenants[account] = cluster.until_lease(job, "active")["tenant"]
    assert tenants == {"lab": "vision", "other": "other"}
    agent = cluster.call("sublet", "--host", f"unix://{cluster.dir}/n1.sock", "slurm", "agent", "--once", "--accounts",
                         "lab:vision")
    assert "is charged to tenant" not in agent.stderr, agent
    cluster.write_plugstack(accounts="lab")
    job = cluster.submit(HOLD, "--vram=2", "--account=lab", node="n1")
    assert cluster.until(job, "FAILED", "COMPLETED") == "FAILED"
    assert "no list of accounts" in cluster.output(job), cluster.output(job)
    not_drained(cluster)
    cluster.write_plugstack()
