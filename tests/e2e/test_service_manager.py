# SPDX-License-Identifier: Apache-2.0
"""The service manager: it is told that the daemon serves and is alive, passes the socket, and keeps the log."""
import os
import select
import signal
import socket

import pytest

from tests.support.sublet import state_of, wait_until
from tests.support.system import System

HALF = 0.05  # seconds


class Manager:
    """A datagram socket like systemd's, which the daemon gets by name."""

    def __init__(self, start_daemon, folder, **more):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        path = folder / "notify"
        self.socket.bind(str(path))
        words = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": int(HALF * 2e6), **more}
        self.daemon = start_daemon("1x4GiB", command=["env", *(f"{name}={value}" for name, value in words.items())])

    def hears(self, seconds):
        return bool(select.select([self.socket], [], [], seconds)[0])

    def next(self):
        assert self.hears(60)
        return self.socket.recv(1024).decode()

    def forget(self):
        """Returns the messages so far."""
        while self.hears(0):
            self.socket.recv(1024)

    def hears_it_alive(self):
        self.forget()
        assert [self.next() for _ in range(5)] == ["WATCHDOG=1\n"] * 5


@pytest.fixture
def manager(start_daemon, tmp_path):
    manager = Manager(start_daemon, tmp_path)
    yield manager
    manager.socket.close()


def test_it_is_ready_and_then_alive(manager):
    assert manager.next() == "READY=1\n"
    manager.hears_it_alive()


def test_a_hanging_loop_sends_nothing(manager):
    pid = manager.daemon.process.pid
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "it stands still")
    manager.forget()
    assert not manager.hears(20 * HALF)
    os.kill(pid, signal.SIGCONT)
    manager.hears_it_alive()


def test_a_hanging_driver_does_not_hang_the_loop(manager):
    manager.daemon.ctl("fault", "nvml-hang")
    wait_until(lambda: any(fault["hits"] for fault in manager.daemon.cards()["faults"]), "a helper hangs in the driver")
    manager.hears_it_alive()
    wait_until(lambda: any(each["code"] == "gpu" for each in manager.daemon.get("/v1/status")["warnings"]),
               "the daemon has given it up")
    manager.hears_it_alive()


def test_another_process_watchdog_is_not_fed(start_daemon, tmp_path):
    manager = Manager(start_daemon, tmp_path, WATCHDOG_PID=os.getpid())
    assert manager.next() == "READY=1\n"
    assert not manager.hears(20 * HALF)
    manager.socket.close()


# --- its socket ---

@pytest.fixture
def system():
    made = System()
    yield made
    made.close()


def test_connections_wait_at_the_passed_socket(system):
    system.listen_for_daemon().start_actor()
    path = system.home / "run/sublet/sublet.sock"
    inode = path.stat().st_ino
    for _ in range(2):
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(str(path))
        waiting.sendall(b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        system.start_daemon()
        assert waiting.recv(12) == b"HTTP/1.1 200"
        waiting.close()
        system.process.terminate()
        assert system.process.wait(60) == 0
        assert path.stat().st_ino == inode, "the service manager's socket stays"


def test_a_socket_elsewhere_is_refused(system):
    system.listen_for_daemon("run/other.sock").begin_daemon([])
    assert system.process.wait(60) == 1
    assert "passed another socket than /run/sublet/sublet.sock" in system.log()
    assert "ListenStream=" in system.log()


# --- its journal ---

def test_entries_of_the_journal_name_their_lease(system):
    system.listen_for_entries().start()
    system.load(54331, "train")
    lease = system.lease("train")["id"]
    system.cli(54331, "pause", "train", check=0)
    entry = next(entry for entry in system.entries() if "paused" in entry["MESSAGE"])
    assert entry["SUBLET_LEASE"] == lease and entry["MESSAGE"].startswith(f"{lease}: paused: ")
    assert (entry["PRIORITY"], entry["SYSLOG_IDENTIFIER"]) == ("6", "subletd")
