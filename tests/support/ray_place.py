# SPDX-License-Identifier: Apache-2.0
"""Two daemons with simulated cards, and a cluster of Ray with a node for each of them, in this machine."""
import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import textwrap

import pytest

from .python_place import SOURCE
from .sublet import GIB, ROOT, Daemon, wait_until

VENV = ROOT / ".venv-ray"
CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "0B"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "20s"\n[pause]\nverify_timeout = "10s"\ncooldown = "100ms"\n')


def need():
    """Skips where Ray is not installed."""
    if not (VENV / "bin" / "ray").exists():
        pytest.skip("Ray is not installed: tools/ray-venv installs it from PyPI")


def environment(daemon, **more):
    """Returns the variables with which Ray and its workers run."""
    env = daemon.env(PYTHONPATH=f"{SOURCE}:{ROOT}", PYTHONDONTWRITEBYTECODE="1", RAY_AUTH_MODE="disabled",
                     RAY_USAGE_STATS_ENABLED="0", RAY_raylet_start_wait_time_s="100", RAY_DEDUP_LOGS="0",
                     RAY_memory_monitor_refresh_ms="0",
                     RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="1", **more)
    env["PATH"] = f"{VENV / 'bin'}:{env['PATH']}"
    return env


@pytest.fixture(name="ray_cluster", scope="session")
def ray_cluster_fixture():
    need()
    place = RayPlace()
    try:
        yield place.start()
    finally:
        place.close()


@pytest.fixture(name="rays")
def rays_fixture(ray_cluster):
    """The cluster that all tests share. Each test begins and ends without leases."""
    log = len(ray_cluster.log())
    ray_cluster.mark()
    yield ray_cluster
    print(ray_cluster.log()[log:])
    for daemon in ray_cluster.daemons:  # a test that has failed may leave work behind
        owners = [lease["owner"]["pid"] for lease in daemon.get("/v1/leases")["leases"]]
        for pid in owners + [process["pid"] for process in daemon.get("/v1/processes")["processes"]]:
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not ray_cluster.leases() and not ray_cluster.leases(node=1), "all leases have ended")


class RayPlace:
    """The cluster. `run` executes code in its driver, which has `ray`, `sublet` and `node_ids`."""

    def __init__(self, factor=2.0, sims=("1x24GiB", "2x24GiB"), config=CONFIG):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # a socket has a short path
        (self.dir / "ray").mkdir()
        self.daemons = [Daemon(sim, config=config) for sim in sims]
        self.log_path = self.dir / "log"
        self.driver = None
        self._answers = None
        self.factor = factor

    def start(self):
        nodes = []
        for number, daemon in enumerate(self.daemons):
            daemon.start()
            total = sum(card["capacity_bytes"] for card in daemon.get("/v1/devices")["devices"])
            env = environment(daemon)
            env = {name: env[name] for name in ("SUBLET_HOST", "SIMGPU_DIR", "LD_LIBRARY_PATH", "PYTHONPATH", "PATH")}
            nodes.append({"env": env, "resources": {"vram_gib": total * self.factor // GIB, f"node{number}": 10}})
        ours, theirs = os.pipe()
        env = environment(self.daemons[0], RAY_TMPDIR=str(self.dir))
        with open(self.log_path, "ab") as log:
            command = [VENV / "bin" / "python", "-m", "tests.support.ray_driver", str(theirs), json.dumps(nodes)]
            self.driver = subprocess.Popen(list(map(str, command)), env=env, stdin=subprocess.PIPE, stdout=log,
                                           stderr=log, text=True, pass_fds=[theirs], start_new_session=True,
                                           cwd=ROOT)
        os.close(theirs)
        self._answers = os.fdopen(ours)
        self.address = self._answer(180)
        return self

    def log(self):
        return self.log_path.read_text(errors="replace")

    def send(self, code, **values):
        """Sends code to the driver. `values` are names in it."""
        head = "".join(f"{name} = {value!r}\n" for name, value in values.items())
        self.driver.stdin.write(json.dumps({"code": head + textwrap.dedent(code)}) + "\n")
        self.driver.stdin.flush()

    def _answer(self, timeout):
        readable, _, _ = select.select([self._answers], [], [], timeout)
        assert readable, f"the driver did not answer in {timeout} s:\n{self.log()[-6000:]}"
        line = self._answers.readline()
        assert line, f"the driver has ended:\n{self.log()[-6000:]}"
        answer = json.loads(line)
        assert "error" not in answer, answer["trace"]
        return answer["answer"]

    def result(self, timeout=150):
        """Returns what the code left in `answer`."""
        return self._answer(timeout)

    def run(self, code, timeout=150, **values):
        self.send(code, **values)
        return self.result(timeout)

    def mark(self):
        """Begins a test: `ended` counts from here."""
        self._ended_before = {self._key(node, lease) for node, lease in self._all()}

    def _all(self):
        return [(node, lease) for node, daemon in enumerate(self.daemons)
                for lease in daemon.get("/v1/leases?all=true")["leases"]]

    @staticmethod
    def _key(node, lease):
        return node, lease["id"]

    def ended(self):
        """Returns the leases of all nodes that have ended in this test, the oldest first."""
        found = [lease for node, lease in self._all()
                 if lease["state"] == "ended" and self._key(node, lease) not in self._ended_before]
        return sorted(found, key=lambda lease: lease["created_at"])

    def leases(self, *states, node=0):
        """Returns the living leases of a node, or those in one of these states."""
        found = self.daemons[node].get("/v1/leases")["leases"]
        return [lease for lease in found if not states or lease["state"] in states]

    def free(self, node):
        """Returns the bytes that can still be leased on a node."""
        return self.daemons[node].get("/v1/devices")["devices"][0]["effective_free_bytes"]

    @contextlib.contextmanager
    def hold(self, node, size, tier):
        """Holds memory of a node by a lease that cannot be paused."""
        daemon = self.daemons[node]
        child = daemon.spawn("sublet", "run", "--vram", size, "--tier", tier, "--pausable", "no", "--", "sleep", "600")
        wait_until(lambda: self.leases("active", node=node), "the memory is held")
        try:
            yield
        finally:
            child.terminate()
            child.wait(30)

    def python(self, code, *arguments, **more):
        """Runs a program of its own in the cluster, and returns what it prints."""
        env = environment(self.daemons[0], RAY_TMPDIR=str(self.dir), RAY_ADDRESS=self.address, **more)
        done = subprocess.run([VENV / "bin" / "python", "-c", code, *arguments], env=env, capture_output=True,
                              text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ray_start(self, node, *arguments):
        """Runs `python -m sublet.ray start` to its end."""
        return subprocess.run([VENV / "bin" / "python", "-m", "sublet.ray", "start", *arguments],
                              env=environment(self.daemons[node]), capture_output=True, text=True, timeout=120)

    def close(self):
        if self.driver is not None:
            with contextlib.suppress(OSError):
                self.driver.stdin.close()
            try:
                self.driver.wait(30)
            except subprocess.TimeoutExpired:
                pass
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
        for daemon in self.daemons:
            daemon.close()
        shutil.rmtree(self.dir, ignore_errors=True)
