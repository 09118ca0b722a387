# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm on this machine: munged, one controller and two slurmd, each with a daemon and simulated cards of its
own.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time

from .contract import ROOT
from .sublet import BIN, BUILD, Daemon, wait_until

NEEDED = ("slurmctld", "slurmd", "munged", "sbatch", "gcc")
HEADER = pathlib.Path("/usr/include/slurm/spank.h")
PLUGIN = ROOT / "integrations/slurm"
FAST = '[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[lease]\nlinger = "1s"\n[pause]\ncooldown = "1s"\n'
NODES = ("n1", "n2")


def missing():
    """Returns why Slurm cannot run here; "" if it can."""
    absent = [name for name in NEEDED if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
    if absent:
        return f"Slurm is not installed: {', '.join(absent)}"
    if not HEADER.exists():
        return f"{HEADER} is missing: libslurm-dev"
    if os.geteuid() != 0:
        return "only root can run slurmd for several users"
    return ""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def build_plugin(folder):
    plugin = folder / "spank_sublet.so"
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", plugin, PLUGIN / "spank_sublet.c"],
                   check=True)
    return plugin


class Cluster:
    """`cards`: the simulated cards of each node; `factor`: declared memory by the memory of the cards."""

    def __init__(self, cards="1x24GiB", factor="2"):
        # The groups of Slurm's jobs have the same names in each cluster, so one runs at a time.
        self.alone = open(pathlib.Path(tempfile.gettempdir()) / "sublet-test-slurm.lock", "w")
        fcntl.flock(self.alone, fcntl.LOCK_EX)
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="slurm-", dir=os.environ.get("SUBLET_TEST_TMP")))
        self.dir.chmod(0o755)
        self.processes, self.logs = {}, {}
        self.daemons = {}
        self.timeout = "60s"
        try:
            self._start(cards, factor)
        except BaseException:
            self.close()
            raise

    def _start(self, cards, factor):
        for node in NODES:
            self.daemons[node] = Daemon(cards, config=FAST).start()
            self.daemons[node].dir.chmod(0o755)
            (self.dir / f"{node}.sock").symlink_to(self.daemons[node].socket)
        build_plugin(self.dir)
        self.ports = free_ports(3)
        self.write_files(factor)
        self.munge()
        self.start("slurmctld", "slurmctld", "-D", "-i", "-f", self.dir / "slurm.conf")
        for node in NODES:
            self.start_node(node)
        self.until_idle()

    def munge(self):
        key, home = self.dir / "munge.key", self.dir / "munge"
        home.mkdir(mode=0o755)
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self.start("munged", "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={home}/munge.sock",
                   f"--pid-file={home}/munged.pid", f"--log-file={home}/munged.log", f"--seed-file={home}/munged.seed")
        wait_until(lambda: (home / "munge.sock").exists(), "munged listens")

    def write_files(self, factor):
        control, *nodes = self.ports
        lines = []
        shards = {}
        for number, node in enumerate(NODES):
            card = self.dir / f"card{number}-0"
            if not card.exists():
                os.mknod(card, 0o666 | stat.S_IFCHR, os.makedev(1, 3))  # any device: nobody opens it
            done = self.daemons[node].cli("slurm", "gres", "--factor", factor, "--node", node, "--device-file",
                                          self.dir / f"card{number}-%d", check=0)
            lines.append(done.stdout + f"NodeName={node} Name=tape Count=2\n")
            shards[node] = sum(int(word[6:]) for word in done.stdout.split() if word.startswith("Count="))
        (self.dir / "gres.conf").write_text("".join(lines))
        user = "SlurmUser=root\nSlurmdUser=root\n"
        (self.dir / "slurm.conf").write_text(
            f"ClusterName=sublet\nSlurmctldHost={socket.gethostname()}(127.0.0.1)\nSlurmctldPort={control}\n{user}"
            f"AuthType=auth/munge\nAuthInfo=socket={self.dir}/munge/munge.sock\nMpiDefault=none\n"
            f"StateSaveLocation={self.dir}/state\nSlurmdSpoolDir={self.dir}/spool.%n\n"
            f"SlurmctldPidFile={self.dir}/slurmctld.pid\nSlurmdPidFile={self.dir}/slurmd.%n.pid\n"
            f"ProctrackType=proctrack/cgroup\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
            f"SelectTypeParameters=CR_Core\nGresTypes=gpu,shard,tape\nSlurmdParameters=config_overrides\n"
            f"ReturnToService=2\nKillWait=3\nSchedulerParameters=sched_interval=2,bf_interval=2,"
            f"max_rpc_cnt=0\nPlugStackConfig={self.dir}/plugstack.conf\nJobSubmitPlugins=lua\nJobRequeue=1\n"
            f"MailProg=/bin/true\nBatchStartTimeout=60\nMessageTimeout=30\nInactiveLimit=0\n"
            + "".join(f"NodeName={node} NodeAddr=127.0.0.1 Port={port} CPUs=64 RealMemory=20000 "
                      f"Gres=gpu:1,shard:{shards[node]},tape:2\n" for node, port in zip(NODES, nodes))
            + "PartitionName=all Nodes=ALL Default=YES MaxTime=1-0 State=UP OverSubscribe=NO\n")
        (self.dir / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=yes\n")
        lua = (PLUGIN / "job_submit.lua").read_text()
        (self.dir / "job_submit.lua").write_text(lua)
        self.write_plugstack()

    def write_plugstack(self, **arguments):
        words = {"sublet": BIN / "sublet", "host": f"unix://{self.dir}/%n.sock", "timeout": self.timeout, **arguments}
        (self.dir / "plugstack.conf").write_text(
            f"required {self.dir}/spank_sublet.so {' '.join(f'{name}={value}' for name, value in words.items())}\n")

    # --- processes ---
    def env(self, **more):
        env = {"PATH": f"{BIN}:/usr/sbin:/usr/bin:/sbin:/bin", "SLURM_CONF": str(self.dir / "slurm.conf"),
               "LANG": "C.UTF-8", "HOME": str(self.dir)}
        env.update(more)
        return env

    def start(self, name, *command):
        self.logs[name] = self.dir / f"{name}.log"
        with open(self.logs[name], "ab") as log:
            self.processes[name] = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=log,
                                                    stderr=log, env=self.env(), start_new_session=True)

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-N", node, "-f", self.dir / "slurm.conf")

    def until_idle(self):
        try:
            wait_until(lambda: all(state in ("idle", "mixed", "allocated") for state in self.states().values()),
                       "both nodes are up")
        except AssertionError:
            print(self.all_logs())
            raise

    def states(self):
        done = self.call("sinfo", "-h", "-N", "-o", "%N %T", check=False)
        states = dict(line.split() for line in done.stdout.splitlines())
        return states if set(states) == set(NODES) else {node: "unknown" for node in NODES}

    def call(self, *command, check=True, timeout=120, env=None):
        done = subprocess.run(list(map(str, command)), env=env or self.env(), capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout, cwd=self.dir)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    # --- jobs ---
    def program_env(self, node):
        """The environment in which programs see the simulated cards of that node."""
        daemon = self.daemons[node]
        return {"SIMGPU_DIR": str(daemon.dir / "simgpu"), "LD_LIBRARY_PATH": str(BUILD / "lib/simgpu")}

    def submit(self, script, *flags, node=None, name="job"):
        """Starts a batch job and returns its number. `script` sees the cards of the node that it runs on."""
        text = f"#!/bin/bash\nexport PATH={BIN}:$PATH\n"
        for each in NODES:
            variables = " ".join(f"{key}={value}" for key, value in self.program_env(each).items())
            text += f'if [ "$SLURMD_NODENAME" = {each} ]; then export {variables}; fi\n'
        text += script + "\n"
        words = ["sbatch", "--parsable", "-J", name, "-o", self.dir / "%j.out", *flags]
        if node:
            words += ["-w", node]
        done = subprocess.run(list(map(str, words)), env=self.env(), input=text, text=True, capture_output=True,
                              timeout=60, cwd=self.dir)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return int(done.stdout.split(";")[0])

    def output(self, job):
        path = self.dir / f"{job}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def job(self, job):
        done = self.call("scontrol", "show", "job", "-o", job, check=False)
        fields = {}
        for word in done.stdout.split():
            name, _, value = word.partition("=")
            fields.setdefault(name, value)
        fields["text"] = done.stdout
        return fields

    def state(self, job):
        return self.job(job).get("JobState", "")

    def until(self, job, *states, timeout=120):
        try:
            return wait_until(lambda: (state := self.state(job)) in states and state, f"job {job} is {states}", timeout)
        except AssertionError:
            print(self.job(job)["text"], self.output(job), self.all_logs(), sep="\n")
            raise

    def leases(self, node="n1", all=False):
        return self.daemons[node].leases(all)

    def lease_of(self, job, node="n1"):
        """Returns the living lease of the job on that node, or None."""
        tag = f"slurm-{job}-{node}"
        return next((lease for lease in self.leases(node) if lease["tag"] == tag), None)

    def until_lease(self, job, state, node="n1"):
        try:
            return wait_until(lambda: (lease := self.lease_of(job, node)) and lease["state"] == state and lease,
                              f"the lease of job {job} is {state}")
        except AssertionError:
            print(self.job(job)["text"], self.output(job), json.dumps(self.leases(node, True), indent=1),
                  self.all_logs(), sep="\n")
            raise

    def until_no_lease(self, node="n1"):
        wait_until(lambda: not self.leases(node), f"no lease is left on {node}")

    def groups_of(self, job):
        return [path for node in NODES for path in
                pathlib.Path("/sys/fs/cgroup").glob(f"*/slurm_{node}/uid_*/job_{job}")]

    def kill_group(self, group):
        """Kills all processes of the group, as the engine does."""
        for procs in group.rglob("cgroup.procs"):
            for pid in procs.read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    def clear(self):
        """Ends all jobs, and brings both nodes back, for the next test."""
        self.call("scancel", "--state=PENDING", "-u", "root", check=False)
        for job in self.call("squeue", "-h", "-o", "%A", check=False).stdout.split():
            self.call("scancel", "-s", "KILL", job, check=False)
            self.call("scancel", job, check=False)
        for name in ("slurmctld", *NODES):
            if self.processes[name].poll() is not None:
                self.start_node(name) if name in NODES else self.start(
                    "slurmctld", "slurmctld", "-D", "-f", self.dir / "slurm.conf")
        for node, daemon in self.daemons.items():
            if daemon.process is None or daemon.process.poll() is not None:
                daemon.start()
        wait_until(lambda: not self.call("squeue", "-h", check=False).stdout.strip(), "no job is left")
        self.until_idle()
        for node in NODES:
            for lease in self.leases(node):
                if lease["owner"]["kind"] != "group":
                    self.daemons[node].cli("release", lease["id"], "--force")
            self.until_no_lease(node)

    def all_logs(self):
        return "\n".join(f"--- {name}\n{path.read_text(errors='replace')[-4000:]}" for name, path in self.logs.items()
                         if path.exists())

    def close(self):
        if "slurmctld" in self.processes:
            self.call("scancel", "-u", "root", check=False, timeout=20)
            deadline = time.monotonic() + 15
            while time.monotonic() < deadline and self.call("squeue", "-h", check=False).stdout.strip():
                pass
        for name in ("n1", "n2", "slurmctld", "munged"):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self._end_steps()
        for daemon in self.daemons.values():
            daemon.close()
        for top in (path for node in NODES for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/slurm_{node}")):
            for folder in sorted([top, *(path for path in top.rglob("*") if path.is_dir())], reverse=True):
                with contextlib.suppress(OSError):  # a process is still ending there
                    folder.rmdir()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.alone.close()

    def _end_steps(self):
        """Kills slurmstepd and programs of this cluster that outlived slurmd."""
        mark = f"SLURM_CONF={self.dir}/slurm.conf".encode()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass
