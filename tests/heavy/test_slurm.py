# SPDX-License-Identifier: Apache-2.0
"""Jobs of Debian's Slurm under leases: one controller, two slurmd on one host, and simulated cards."""
import os
import pwd
import re
import signal
import subprocess
import time

import pytest

from tests.support.groups import hierarchies
from tests.support.slurm_jobs import HOLD, load, not_drained, urgent
from tests.support.sublet import BIN, GIB, wait_until

pytestmark = pytest.mark.heavy


def test_twelve_jobs_of_6_gib_on_one_card_of_24_with_factor_2_all_finish(cluster):
    began = time.monotonic()
    jobs = [cluster.submit(load(5, "2"), "--vram=6", node="n1") for _ in range(12)]
    for job in jobs:
        assert cluster.until(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", timeout=300) == "COMPLETED", job
        assert "right:" in cluster.output(job), cluster.output(job)
    print(f"12 jobs in {time.monotonic() - began:.1f} s")
    waited = [job for job in jobs if "place" in cluster.output(job)]
    assert waited, "some of them waited for memory, and were told their place"
    cluster.until_no_lease()
    assert cluster.daemons["n1"].cards()["violations"] == 0


def test_an_array_of_200_jobs_ends_without_a_failure(cluster):
    job = cluster.submit("true", "--vram=1", "--array=1-200")
    text = ""
    def done():
        nonlocal text
        text = cluster.call("squeue", "-h", "-j", job, "-t", "all", "-r", "-o", "%T", check=False).stdout
        return text and not set(text.split()) - {"COMPLETED", "FAILED"}
    wait_until(done, f"the array ends: {text}", 120)
    assert text.split() == ["COMPLETED"] * 200, text
    cluster.until_no_lease("n1"), cluster.until_no_lease("n2")


def test_a_job_whose_memory_limit_cannot_hold_its_parked_bytes_is_not_paused(cluster):
    memory = hierarchies().get("memory")
    if memory is None:
        pytest.skip("no memory hierarchy of version 1 here")
    group = memory / f"sublet-test-{os.getpid()}"
    job = cluster.submit(f"mkdir {group}\necho 512M > {group}/memory.limit_in_bytes\necho $$ > {group}/cgroup.procs\n"
                         + load(1), "--vram=6", node="n1")
    lease = cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > GIB, "it fills its memory")
    refused = cluster.daemons["n1"].cli("pause", lease["id"])
    assert refused.returncode != 0 and "control group" in refused.stderr, refused
    smaller = cluster.daemons["n1"].cli("slurm", "gres", "--factor", "0.2", "--node", "n1")
    assert smaller.returncode == 1 and "6.0 GiB leased to jobs" in smaller.stderr, smaller
    assert cluster.state(job) == "RUNNING" and cluster.lease_of(job)["state"] == "active"
    cluster.call("scancel", job)
    wait_until(lambda: cluster.lease_of(job) is None, "its lease ends")

    def removed():
        try:
            group.rmdir()
        except OSError:  # its last process is still ending
            return False
        return True

    wait_until(removed, "the group is empty")


@pytest.mark.parametrize("moment", ["waiting", "paused", "resuming"])
def test_scancel_ends_the_lease_at_any_moment(cluster, moment):
    node = cluster.daemons["n1"]
    if moment == "waiting":
        api = urgent(cluster, 20)
    job = cluster.submit(load(5), "--vram=6", node="n1")
    if moment != "waiting":
        cluster.until_lease(job, "active")
        wait_until(lambda: cluster.lease_of(job)["used_bytes"] > 5 * GIB, "it fills its memory")
        if moment == "resuming":
            node.ctl("set", "restore_us", 3_000_000)
        api = urgent(cluster, 20)
        cluster.until_lease(job, "paused")
    else:
        cluster.until_lease(job, "queued")
    if moment == "resuming":
        api.post("/v1/leases/urgent/release", {"force": True})
        cluster.until_lease(job, "resuming")
    cluster.call("scancel", job)
    cluster.until(job, "CANCELLED")
    wait_until(lambda: cluster.lease_of(job) is None, "its lease ends")
    node.ctl("set", "restore_us", 0)
    if moment != "resuming":
        api.post("/v1/leases/urgent/release", {"force": True})
    other = cluster.submit(load(20, "1"), "--vram=21", node="n1")
    assert cluster.until(other, "COMPLETED", "FAILED") == "COMPLETED", cluster.output(other)
    not_drained(cluster)


def helper_of(job):
    """Returns the pid of the plugin's helper of the job."""
    done = subprocess.run(["pgrep", "-f", rf"sublet slurm lease .*--job {job} "], capture_output=True, text=True)
    return int(done.stdout.split()[0])


def test_a_stopped_helper_ends_its_task_and_keeps_no_lease(cluster):
    cluster.write_plugstack(timeout="2s")
    api = urgent(cluster, 20)
    silent, cancelled = (cluster.submit(HOLD, "--vram=6", node="n1") for _ in range(2))
    cluster.until_lease(silent, "queued"), cluster.until_lease(cancelled, "queued")
    stopped = [helper_of(job) for job in (silent, cancelled)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        cluster.call("scancel", cancelled)
        cluster.until(cancelled, "CANCELLED", "FAILED")
        assert cluster.until(silent, "FAILED", "COMPLETED") == "FAILED"
        assert "does not answer" in cluster.output(silent), cluster.output(silent)
        wait_until(lambda: not cluster.lease_of(cancelled) and not cluster.lease_of(silent), "their leases end")
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
    api.post("/v1/leases/urgent/release", {"force": True})
    cluster.write_plugstack()
    not_drained(cluster)


def test_a_job_without_a_daemon_fails_in_its_time_and_drains_no_node(cluster):
    cluster.write_plugstack(timeout="2s")
    daemon = cluster.daemons["n1"]
    daemon.kill()
    job = cluster.submit(HOLD, "--vram=6", node="n1")
    assert cluster.until(job, "FAILED", "COMPLETED") == "FAILED"
    assert "does not answer" in cluster.output(job) and "no daemon answers" in cluster.output(job), cluster.output(job)
    not_drained(cluster)
    cluster.write_plugstack()
    patient = cluster.submit(load(5, "1"), "--vram=6", node="n1")
    wait_until(lambda: "does not answer" in cluster.output(patient), "it is told to wait")
    daemon.start()
    assert cluster.until(patient, "FAILED", "COMPLETED") == "COMPLETED", cluster.output(patient)


def test_a_killed_daemon_ends_no_job_and_knows_its_lease_again(cluster):
    running = cluster.submit(HOLD, "--vram=20", node="n1")
    lease = cluster.until_lease(running, "active")
    waits = cluster.submit(load(5, "1"), "--vram=6", node="n1")
    cluster.until_lease(waits, "queued")
    daemon = cluster.daemons["n1"]
    daemon.kill()
    daemon.start()
    assert cluster.until_lease(running, "active")["id"] == lease["id"]
    cluster.until_lease(waits, "queued")
    cluster.call("scancel", running)
    assert cluster.until(waits, "COMPLETED", "FAILED") == "COMPLETED", cluster.output(waits)


def stepd_of(job):
    """Returns the pids of the job's slurmstepd."""
    done = subprocess.run(["pgrep", "-f", rf"slurmstepd: \[{job}\."], capture_output=True, text=True)
    return [int(pid) for pid in done.stdout.split()]


def test_a_killed_slurmd_ends_no_job_and_a_killed_slurmstepd_frees_nothing_that_is_used(cluster):
    job = cluster.submit(HOLD, "--vram=6", node="n1")
    cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > GIB, "it uses its card")
    cluster.processes["n1"].kill()
    cluster.processes["n1"].wait()
    cluster.start_node("n1")
    cluster.until_idle()
    assert cluster.until_lease(job, "active")["used_bytes"] > GIB
    for pid in stepd_of(job):
        os.kill(pid, signal.SIGKILL)
    def safe():
        lease = cluster.lease_of(job)
        return lease is None or lease["state"] == "active"
    assert safe(), "the program may live on in its group, under its lease"
    cluster.call("scancel", job, check=False)
    for name in cluster.groups_of(job):
        cluster.kill_group(name)
    wait_until(lambda: cluster.lease_of(job) is None, "the lease ends with the last process")


def test_a_requeued_job_gets_a_new_lease(cluster):
    job = cluster.submit(HOLD, "--vram=6", "--requeue", node="n1")
    first = cluster.until_lease(job, "active")
    cluster.call("scontrol", "requeue", job)

    def again():
        if cluster.state(job) == "PENDING":  # it would wait for two minutes
            cluster.call("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)
        now = cluster.lease_of(job)
        return now and now["id"] != first["id"] and now["state"] == "active"

    wait_until(again, "another lease", 300)
    ended = next(lease for lease in cluster.leases(all=True) if lease["id"] == first["id"])
    assert ended["state"] == "ended"


def test_a_step_on_two_nodes_has_a_lease_on_each(cluster):
    done = cluster.call("srun", "-N2", "--vram=5", "sh", "-c", "echo $SLURMD_NODENAME $SUBLET_LEASE $SUBLET_HOST")
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    assert set(lines) == {"n1", "n2"}
    for node, said in lines.items():
        assert said.startswith("lease-") and f"{node}.sock" in said, said


def test_all_tasks_and_steps_of_a_job_share_its_lease(cluster):
    job = cluster.submit("echo batch=$SUBLET_LEASE; srun -n4 sh -c 'echo task=$SUBLET_LEASE'", "--vram=6", "-n", "4",
                         node="n1")
    assert cluster.until(job, "COMPLETED", "FAILED") == "COMPLETED", cluster.output(job)
    leases = set(re.findall(r"=(lease-\d+)", cluster.output(job)))
    assert len(leases) == 1 and cluster.output(job).count("task=lease-") == 4, cluster.output(job)


def test_nobody_gets_more_than_slurm_counted(cluster):
    for words, said in ((("srun", "--vram=25", "true"), "more than a card has"),
                        (("srun", "--vram-share=50", "true"), "not supported"),
                        (("srun", "--vram=100M", "true"), "no size"),
                        (("srun", "--vram=6", "--pausable=maybe", "true"), "unknown"),
                        (("srun", "--vram=6", "--vram-tier=critical", "true"), "unknown")):
        refused = cluster.call(*words, check=False)
        assert refused.returncode != 0 and said in refused.stderr, (words, refused)
    inner = cluster.submit("srun --vram=20 true; echo status=$?", "--gres=shard:1", node="n1")
    cluster.until(inner, "COMPLETED", "FAILED")
    lease, = [lease for lease in cluster.leases(all=True) if lease["tag"] == f"slurm-{inner}-n1"]
    assert lease["vram_bytes"] == GIB, "the shards of the job are its size"
    plain = cluster.submit("echo lease=$SUBLET_LEASE", node="n1")
    cluster.until(plain, "COMPLETED")
    assert "lease=\n" in cluster.output(plain), "a job without memory of a card has no lease"


def test_the_memory_of_a_job_is_added_to_its_other_resources(cluster):
    job = cluster.submit("true", "--vram=2", "--gres=tape:1,shard:9", node="n1")
    shown = cluster.call("scontrol", "show", "job", "-d", "-o", job).stdout
    assert "tape:1" in shown and re.search(r"shard:2\b", shown) and "shard:9" not in shown, shown
    cluster.until(job, "COMPLETED")


def test_the_environment_of_a_task_gives_it_no_memory(cluster):
    forged = "ALL,SLURM_SHARDS_ON_NODE=20,SLURM_JOB_GPUS=7,SLURM_STEP_GPUS=7,SLURM_JOB_ACCOUNT=others"
    job = cluster.submit("sleep 600", "--gres=shard:1", f"--export={forged}", node="n1")
    lease = cluster.until_lease(job, "active")
    assert (lease["vram_bytes"], lease["tenant"]) == (GIB, "root"), "Slurm's controller tells the size and the account"
    for script, export in (("sleep 600", "ALL,SLURM_SHARDS_ON_NODE="), ("sleep 600", "NIL,SLURMD_NODENAME=n2"),
                           ("sleep 600", "ALL,SLURM_SHARDS_ON_NODE=0")):
        job = cluster.submit(script, "--gres=shard:2", f"--export={export}", node="n1")
        lease = cluster.until_lease(job, "active")
        assert lease["vram_bytes"] == 2 * GIB, "no user can hide the shards of a step"
    step = cluster.call("salloc", "-w", "n1", "--gres=shard:2", "env", "-u", "SLURM_SHARDS_ON_NODE", "srun", "sh", "-c",
                        "echo lease=$SUBLET_LEASE")
    assert "lease=lease-" in step.stdout, step
    done = cluster.call("srun", "-w", "n1", "sh", "-c", "echo lease=$SUBLET_LEASE", check=False,
                        env=cluster.env(SLURM_SHARDS_ON_NODE="20", _SLURM_SPANK_OPTION_sublet_vram="20"))
    counted = cluster.call("scontrol", "show", "job", "-d").stdout
    assert "lease=lease-" not in done.stdout or "shard:20" in counted, done


def test_a_job_of_another_user_has_a_lease_of_this_user_and_is_paused(cluster):
    node = cluster.daemons["n1"]
    (node.dir / "simgpu").chmod(0o1777)
    games = pwd.getpwnam("games")
    script = cluster.dir / "games.sh"
    variables = " ".join(f"{key}={value}" for key, value in cluster.program_env("n1").items())
    script.write_text(f"#!/bin/bash\nexport {variables}\nid -u\n{BIN}/{load(1)}\n")
    done = cluster.call("setpriv", "--reuid", games.pw_uid, "--regid", games.pw_gid, "--clear-groups", "sbatch",
                        "--parsable", "--vram=6", "-w", "n1", "-o", "/dev/null", "-D", "/", script)
    job = int(done.stdout)
    lease = cluster.until_lease(job, "active")
    assert (lease["user"], lease["uid"], lease["tenant"]) == ("games", games.pw_uid, "games"), lease
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > GIB, "its program uses the card")
    api = urgent(cluster, 20)
    cluster.until_lease(job, "paused")
    api.post("/v1/leases/urgent/release", {"force": True})
    cluster.until_lease(job, "active")


def test_a_limit_that_is_reached_while_paused_ends_job_and_lease(cluster):
    job = cluster.submit(load(5), "--vram=6", node="n1")
    cluster.until_lease(job, "active")
    wait_until(lambda: cluster.lease_of(job)["used_bytes"] > 5 * GIB, "it fills its memory")
    urgent(cluster, 20)
    cluster.until_lease(job, "paused")
    cluster.call("scontrol", "update", f"JobId={job}", "EndTime=now+2")
    assert cluster.until(job, "TIMEOUT", "COMPLETED", "FAILED", "CANCELLED") == "TIMEOUT"
    wait_until(lambda: cluster.lease_of(job) is None, "its lease ends")
    not_drained(cluster)


def test_a_start_with_a_lease_is_measured_beside_one_without(cluster):
    def milliseconds(*flags):
        taken = []
        for _ in range(9):
            began = time.monotonic()
            cluster.call("srun", "-w", "n1", *flags, "true")
            taken.append(1000 * (time.monotonic() - began))
        return min(taken)

    with_lease = milliseconds("--gres=shard:1")
    assert any(lease["owner"]["kind"] == "group" for lease in cluster.leases(all=True))
    (cluster.dir / "plugstack.conf").write_text("")
    without = milliseconds("--gres=shard:1")
    cluster.write_plugstack()
    print(f"srun without a lease {without:.0f} ms, with one {with_lease:.0f} ms")
