# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the Python package. A conftest.py imports them."""
import os
import signal
import sys

import pytest

from .python_place import CONFIG, SHOWN, SOURCE, Place
from .sublet import Daemon

sys.path.insert(0, str(SOURCE))
from sublet import _http  # noqa: E402

# A shell that starts the tests in the background makes them, and so their programs, ignore this signal.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
        for name in ("SUBLET_LEASE", "SUBLET_TOKEN_FILE", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
            monkeypatch.delenv(name, raising=False)
        return Place(daemon)

    yield start
    for client in _http._clients.values():
        client.close()
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
