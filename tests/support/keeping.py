# SPDX-License-Identifier: Apache-2.0
"""Fixtures and helpers of the tests of `run` and `hold`. Tests use the fixtures by importing them."""
import os

import pytest

from tests.support.sublet import BIN, wait_until

SUBLET = BIN / "sublet"


@pytest.fixture
def daemon(start_daemon):
    """A private daemon with one small simulated card and short periods, so that tests are short."""
    return start_daemon("1x4GiB", config='[lease]\ngrace = "1s"\nlinger = "1s"\n[gpu]\ninterval_idle = "1s"\n')


def lease(daemon, name):
    api = daemon.api()
    try:
        return api.lease(name)
    finally:
        api.close()


def ended(daemon, name):
    """Returns the lease once it has ended."""
    return wait_until(lambda: (now := lease(daemon, name))["state"] == "ended" and now, f"{name} ends")


def wait_file(path, text=""):
    """Waits until the file is not empty and contains `text`; returns its content."""
    def content():
        try:
            found = path.read_text()
        except FileNotFoundError:
            return None
        return found if text in found else None
    return wait_until(content, f"{path} holds {text!r}")


def read_until(stream, text):
    """Reads lines until one contains `text`; returns that line."""
    lines = []
    while not lines or text not in lines[-1]:
        lines.append(stream.readline())
        assert lines[-1], lines
    return lines[-1]


def state_of(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(") ", 1)[1].split()[0]


@pytest.fixture
def full(daemon):
    """Fills the card with a lease named `blocker`."""
    hold = daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "blocker")
    assert hold.stdout.readline().strip()
    yield hold
    if hold.poll() is None:
        hold.terminate()
        assert hold.wait(timeout=60) == 0


def queued(daemon, tag):
    return wait_until(lambda: next((x for x in daemon.leases() if x["tag"] == tag and x["state"] == "queued"), None),
                      f"{tag} to queue")
