# SPDX-License-Identifier: Apache-2.0
"""Private daemons for the Python package, in this process and in programs of their own."""
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "python" / "src"
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(SOURCE))
from tests.support.sublet import Daemon  # noqa: E402

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "64MiB"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\n'
          '[pause]\nverify_timeout = "10s"\nyield_timeout = "3s"\ncooldown = "100ms"\n')
SHOWN = ("SUBLET_HOST", "SIMGPU_DIR", "LD_LIBRARY_PATH", "PATH")


class Place:
    """A daemon that this process and its programs use."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.get = daemon.get

    def env(self, **more):
        return self.daemon.env(PYTHONPATH=str(SOURCE), PYTHONDONTWRITEBYTECODE="1", **more)

    def python(self, text, *arguments, **options):
        """Starts a program with the package. Its input and output are pipes, and `ask` reads one line."""
        options.setdefault("stdin", subprocess.PIPE)
        return self.daemon.spawn(sys.executable, "-c", text, *arguments, env=self.env(**options.pop("more", {})),
                                 **options)

    def leases(self, *states):
        """Returns the live leases, or those in one of these states."""
        return [lease for lease in self.get("/v1/leases")["leases"] if not states or lease["state"] in states]


@pytest.fixture
def start_place(monkeypatch):
    """Starts a daemon, and has the package in this process find it."""
    daemons = []

    def start(sim="1x4GiB", config=CONFIG):
        daemon = Daemon(sim, config=config)
        daemons.append(daemon)
        daemon.start()
        env = daemon.env()
        for name in SHOWN:
            monkeypatch.setenv(name, env[name])
        for name in ("SUBLET_LEASE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            monkeypatch.delenv(name, raising=False)
        return Place(daemon)

    yield start
    for daemon in daemons:
        print(f"--- log of {daemon.dir}\n{daemon.log()}")
        daemon.close()


@pytest.fixture
def place(start_place):
    return start_place()


@pytest.fixture(autouse=True)
def environment_returns():
    """No test leaves variables of a lease behind."""
    before = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "SUBLET_LEASE")}
    yield
    assert {name: os.environ.get(name) for name in before} == before
